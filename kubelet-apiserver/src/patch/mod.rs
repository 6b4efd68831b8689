//! Patches: JSON patch, merge patch and strategic merge patch.
//!
//! All of it is pure: a patch and the object as it is make the object as it shall be. What a field means is asked of the
//! [`schema`](super::schema). Server-side apply needs to know who owns what, so
//! [`managed_fields`](super::managed_fields) has it.

mod element_order;
mod go;
mod json;
mod merge;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod recorded;
mod strategic;

use serde_json::{Value, json};

use super::resource::Resource;
use super::schema;
use super::status_error::StatusError;

/// How deep an object or patch may nest. As deep as JSON is read; a patch cannot get round it.
const MAX_DEPTH: usize = 128;

/// What a `PATCH` holds, told by its content type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchType {
    /// `application/json-patch+json`: RFC 6902.
    Json,
    /// `application/merge-patch+json`: RFC 7386.
    Merge,
    /// `application/strategic-merge-patch+json`.
    StrategicMerge,
    /// `application/apply-patch+yaml`: server-side apply, done by [`managed_fields::apply`](super::managed_fields::apply).
    Apply,
}

impl PatchType {
    /// `None` for a content type that is no patch; parameters (`; charset=utf-8`) don't count.
    pub(crate) fn from_content_type(content_type: &str) -> Option<Self> {
        let media_type = content_type.split(';').next().unwrap_or_default();
        match media_type.trim() {
            "application/json-patch+json" => Some(PatchType::Json),
            "application/merge-patch+json" => Some(PatchType::Merge),
            "application/strategic-merge-patch+json" => Some(PatchType::StrategicMerge),
            "application/apply-patch+yaml" => Some(PatchType::Apply),
            _ => None,
        }
    }
}

/// Makes of the object as it is stored the object as the patch wants it: not yet decoded, defaulted or checked.
///
/// # Errors
///
/// 400 for what is no patch of its kind, 422 for a patch that cannot be applied to this object, 500 as the API server
/// gives for a strategic merge patch that contradicts the types. [`PatchType::Apply`] is none of these: 415.
pub(crate) fn patch(
    kind: PatchType,
    resource: &Resource,
    current: &Value,
    patch: &Value,
) -> Result<Value, StatusError> {
    if !within_depth(patch, MAX_DEPTH) {
        return Err(StatusError::bad_request("exceeded max depth"));
    }
    match kind {
        PatchType::Json => json::patch(current, patch),
        PatchType::Merge => merge::patch(current, patch),
        PatchType::StrategicMerge => {
            let patched = strategic::patch(schema::of(resource), current, patch)?;
            schema::of(resource)
                .check_converted(&patched)
                .map_err(|why| invalid(patch, &why))?;
            Ok(patched)
        }
        PatchType::Apply => Err(StatusError::new(
            415,
            "UnsupportedMediaType",
            "server-side apply is not a patch of one object alone",
        )),
    }
}

/// What a patch that was understood but cannot be applied is refused with; the API server keeps the cause to itself.
fn unprocessable() -> StatusError {
    StatusError::new(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
    )
    .with_details(Value::Object(Default::default()))
}

/// What a strategic merge patch is refused with whose outcome doesn't fit the types.
fn invalid(patch: &Value, why: &str) -> StatusError {
    let message = format!("Invalid value: {:?}: {why}", go::go_print(patch));
    let cause = json!({"reason": "FieldValueInvalid", "message": message, "field": "patch"});
    StatusError::new(422, "Invalid", format!(" \"\" is invalid: patch: {message}"))
        .with_details(json!({"causes": [cause]}))
}

/// Whether a value nests at most `levels` deep.
fn within_depth(value: &Value, levels: usize) -> bool {
    let Some(below) = levels.checked_sub(1) else {
        return false;
    };
    match value {
        Value::Object(map) => map.values().all(|v| within_depth(v, below)),
        Value::Array(list) => list.iter().all(|v| within_depth(v, below)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strategic_merge_patch_of_wrong_types() {
        let pods = Resource::find("", "v1", "pods").unwrap();
        let document = json!({"spec": {"priority": "x"}});
        let refusal = patch(PatchType::StrategicMerge, pods, &json!({"spec": {}}), &document).unwrap_err();
        assert_eq!(
            (refusal.code, refusal.message.as_str()),
            (
                422,
                " \"\" is invalid: patch: Invalid value: \"map[spec:map[priority:x]]\": unrecognized type: int32"
            )
        );
    }

    #[test]
    fn content_types() {
        let cases = [
            ("application/json-patch+json", Some(PatchType::Json)),
            (
                "application/merge-patch+json; charset=utf-8",
                Some(PatchType::Merge),
            ),
            (
                "application/strategic-merge-patch+json;q=1",
                Some(PatchType::StrategicMerge),
            ),
            ("application/apply-patch+yaml", Some(PatchType::Apply)),
            ("application/json", None),
            ("", None),
        ];
        for (content_type, expected) in cases {
            assert_eq!(
                PatchType::from_content_type(content_type),
                expected,
                "{content_type}"
            );
        }
    }
}
