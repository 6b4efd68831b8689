//! Conflicts: fields that another manager owns.

use serde_json::json;

use super::super::status_error::StatusError;
use super::entries::{Id, Operation};
use super::field_set::FieldSet;

/// 409 with every field that another manager owns. `conflicts` has these fields by manager, in the order of managers.
pub(super) fn error(conflicts: &[(Id, FieldSet)]) -> StatusError {
    let mut causes = Vec::new();
    let mut lines = Vec::new();
    for (id, set) in conflicts {
        let manager = display(id);
        lines.push(format!("conflicts with {manager}:"));
        for path in set.paths() {
            lines.push(format!("- {path}"));
            causes.push(json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with {manager}"),
                "field": path,
            }));
        }
    }
    let message = match &causes[..] {
        [only] => format!(
            "Apply failed with 1 conflict: {}: {}",
            only["message"].as_str().unwrap_or_default(),
            only["field"].as_str().unwrap_or_default()
        ),
        causes => format!(
            "Apply failed with {} conflicts: {}",
            causes.len(),
            lines.join("\n")
        ),
    };
    StatusError::new(409, "Conflict", message).with_details(json!({"causes": causes}))
}

fn display(id: &Id) -> String {
    let mut text = format!("{:?}", id.manager);
    if !id.subresource.is_empty() {
        text.push_str(&format!(" with subresource {:?}", id.subresource));
    }
    if id.operation == Operation::Update {
        text.push_str(&format!(" using {}", id.api_version));
    }
    text
}
