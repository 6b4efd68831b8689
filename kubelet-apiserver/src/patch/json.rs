//! JSON patch, RFC 6902, with the API server's limits.

use json_patch::PatchOperation;
use serde_json::{Value, json};

use super::super::schema::json_type;
use super::super::status_error::StatusError;
use super::{MAX_DEPTH, unprocessable, within_depth};

/// `maxJSONPatchOperations` of the API server.
const MAX_OPERATIONS: usize = 10_000;

/// `JSONPatchMaxCopyBytes` of the API server: the limit for all `copy` operations of a patch together.
const MAX_COPY_BYTES: usize = 3 * 1024 * 1024;

/// Applies the operations one after the other; all or none.
///
/// # Errors
///
/// 400 for an invalid JSON patch, 413 for too many operations, 422 for a failed test, a path that does not exist and
/// too many copied bytes.
pub(super) fn patch(current: &Value, patch: &Value) -> Result<Value, StatusError> {
    let operations = operations(patch)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(StatusError::new(
            413,
            "RequestEntityTooLarge",
            format!(
                "Request entity is too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                operations.len()
            ),
        ));
    }
    let mut patched = current.clone();
    let mut copied = 0;
    for operation in operations {
        let operation = &operation.ok_or_else(unprocessable)?;
        if let PatchOperation::Copy(copy) = operation {
            copied += size(copy.from.resolve(&patched).unwrap_or(&Value::Null));
            if copied > MAX_COPY_BYTES {
                return Err(unprocessable());
            }
        }
        if tests_for_absence(operation, &patched) {
            continue;
        }
        if nests_too_deep(operation, &patched) {
            return Err(unprocessable());
        }
        json_patch::patch(&mut patched, std::slice::from_ref(operation)).map_err(|_| unprocessable())?;
    }
    Ok(patched)
}

/// The operations; `None` for one that the API server can read but not apply.
fn operations(patch: &Value) -> Result<Vec<Option<PatchOperation>>, StatusError> {
    let Some(list) = patch.as_array() else {
        return Err(undecodable(patch, "Go value of type []handlers.jsonPatchOp"));
    };
    list.iter().map(operation).collect()
}

fn operation(value: &Value) -> Result<Option<PatchOperation>, StatusError> {
    let Some(operation) = value.as_object() else {
        return Err(undecodable(value, "Go value of type handlers.jsonPatchOp"));
    };
    for name in ["op", "path", "from"] {
        if let Some(value) = operation.get(name).filter(|v| !v.is_null() && !v.is_string()) {
            let place = format!("Go struct field jsonPatchOp.{name} of type string");
            return Err(undecodable(value, &place));
        }
    }
    let mut operation = operation.clone();
    operation.entry("value").or_insert(Value::Null);
    Ok(serde_json::from_value(json!(operation)).ok())
}

fn undecodable(value: &Value, place: &str) -> StatusError {
    StatusError::bad_request(format!(
        "error decoding patch: json: cannot unmarshal {} into {place}",
        json_type(value)
    ))
}

/// A missing field is equal to null in a `test`, as in the API server's library.
fn tests_for_absence(operation: &PatchOperation, object: &Value) -> bool {
    let PatchOperation::Test(test) = operation else {
        return false;
    };
    test.value.is_null()
        && test.path.resolve(object).is_err()
        && test
            .path
            .parent()
            .is_some_and(|parent| parent.resolve(object).is_ok_and(Value::is_object))
}

fn nests_too_deep(operation: &PatchOperation, object: &Value) -> bool {
    let value = match operation {
        PatchOperation::Add(add) => &add.value,
        PatchOperation::Replace(replace) => &replace.value,
        PatchOperation::Move(r#move) => r#move.from.resolve(object).unwrap_or(&Value::Null),
        PatchOperation::Copy(copy) => copy.from.resolve(object).unwrap_or(&Value::Null),
        PatchOperation::Remove(_) | PatchOperation::Test(_) => return false,
    };
    match MAX_DEPTH.checked_sub(operation.path().count()) {
        Some(left) => !within_depth(value, left),
        None => true,
    }
}

/// The size of a value as JSON, in bytes.
fn size(value: &Value) -> usize {
    value.to_string().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_apply_in_order() {
        let current = json!({"metadata": {"name": "a", "labels": {"app": "x"}}});
        let ok = json!([
            {"op": "test", "path": "/metadata/name", "value": "a"},
            {"op": "add", "path": "/metadata/labels/j", "value": "1"},
            {"op": "test", "path": "/metadata/uid", "value": null},
            {"op": "move", "from": "/metadata/labels/app", "path": "/metadata/labels/was"},
        ]);
        assert_eq!(
            patch(&current, &ok).unwrap(),
            json!({"metadata": {"name": "a", "labels": {"j": "1", "was": "x"}}})
        );
    }

    #[test]
    fn refusals() {
        let current = json!({"metadata": {"name": "a"}});
        let cases = [
            (
                json!([{"op": "test", "path": "/metadata/name", "value": "b"}]),
                422,
            ),
            (json!([{"op": "remove", "path": "/metadata/labels"}]), 422),
            (
                json!([{"op": "add", "path": "/metadata/labels/x", "value": "1"}]),
                422,
            ),
            (json!([{"op": "bogus", "path": "/metadata"}]), 422),
            (json!([{"op": "add"}]), 422),
            (json!([{"op": "add", "path": 1}]), 400),
            (json!(["add"]), 400),
            (json!({"metadata": {}}), 400),
            (
                Value::Array(vec![
                    json!({"op": "test", "path": "", "value": 1});
                    MAX_OPERATIONS + 1
                ]),
                413,
            ),
        ];
        for (operations, code) in cases {
            assert_eq!(
                patch(&current, &operations).unwrap_err().code,
                code,
                "{operations:.200}"
            );
        }
        let failed = patch(
            &current,
            &json!([{"op": "test", "path": "/metadata/name", "value": "b"}]),
        );
        assert_eq!(failed.unwrap_err().details, Some(json!({})));
    }

    #[test]
    fn neither_size_nor_depth_explode() {
        let doubling: Vec<_> = (0..40)
            .map(|i| json!({"op": "copy", "from": "", "path": format!("/c{i}")}))
            .collect();
        let refused = patch(&json!({"text": "x".repeat(100)}), &json!(doubling)).unwrap_err();
        assert_eq!(refused.code, 422);

        let mut path = String::new();
        let deeper: Vec<_> = (0..MAX_DEPTH)
            .map(|_| {
                path.push_str("/d");
                json!({"op": "add", "path": path, "value": {}})
            })
            .collect();
        let refused = patch(&json!({}), &json!(deeper)).unwrap_err();
        assert_eq!(refused.code, 422);
    }
}
