//! Patches: JSON patch, merge patch and strategic merge patch.
//!
//! All functions are pure: they take an object and a patch and return the patched object. The
//! [`schema`](super::schema) has the merge rules of each field. Server-side apply also depends on the managers of
//! fields, so it is in [`managed_fields`](super::managed_fields).

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

/// `delete` or `replace`: what to do with the object or list element that contains the directive.
const DIRECTIVE: &str = "$patch";
/// The maximum nesting depth of objects and patches: the same as for JSON bodies, so a patch cannot exceed it.
const MAX_DEPTH: usize = 128;

/// The type of a `PATCH`, from its content type.
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
    /// `None` for other content types; parameters (`; charset=utf-8`) are ignored.
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

/// Applies a patch to a stored object. The result is not yet decoded, defaulted or validated.
///
/// # Errors
///
/// 400 for an invalid patch, 422 for a patch that cannot be applied to this object, and 500, as from the API server,
/// for a strategic merge patch that contradicts the types. [`PatchType::Apply`] is not supported here: 415.
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

/// The error for a valid patch that cannot be applied. The API server does not report the cause.
/// An error for which the API server has no better code.
fn internal(message: impl Into<String>) -> StatusError {
    StatusError::new(500, "", message)
}

fn unprocessable() -> StatusError {
    StatusError::new(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
    )
    .with_details(Value::Object(Default::default()))
}

/// The error for a strategic merge patch whose result does not fit the types.
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
