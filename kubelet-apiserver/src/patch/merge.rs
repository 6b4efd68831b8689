//! Merge patch, RFC 7386.

use serde_json::Value;

use super::super::schema::json_type;
use super::super::status_error::StatusError;

/// Merges the patch into the object; null removes.
///
/// # Errors
///
/// 400 for a patch that is not an object.
pub(super) fn patch(current: &Value, patch: &Value) -> Result<Value, StatusError> {
    if patch.is_null() {
        return Err(StatusError::bad_request("Invalid JSON Patch"));
    }
    if !patch.is_object() {
        return Err(StatusError::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            json_type(patch)
        )));
    }
    let mut patched = current.clone();
    json_patch::merge(&mut patched, patch);
    Ok(patched)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_removes_and_lists_replace() {
        let current = json!({"metadata": {"annotations": {"k": "v", "l": "w"}, "finalizers": ["a", "b"]}});
        let merged = patch(
            &current,
            &json!({"metadata": {"annotations": {"k": null}, "finalizers": ["c"]}}),
        );
        assert_eq!(
            merged.unwrap(),
            json!({"metadata": {"annotations": {"l": "w"}, "finalizers": ["c"]}})
        );
        assert_eq!(patch(&current, &json!([])).unwrap_err().code, 400);
    }
}
