//! Who may do what: the Node authorizer, RBAC as far as an agent meets it, and `NodeRestriction`.

use serde_json::Value;

use super::request::{Attributes, View};
use super::status_error::StatusError;

/// Judges a request by its attributes alone, before its body is read.
///
/// # Errors
///
/// 403 `Forbidden`.
pub(crate) fn authorize(attributes: &Attributes, view: &dyn View) -> Result<(), StatusError> {
    let _ = (attributes, view);
    Ok(())
}

/// Admission by `NodeRestriction`: what a node's kubelet may write. `objects::prepare_*` call it in its turn.
///
/// `old` is `None` for a creation, `new` for a deletion.
///
/// # Errors
///
/// 403 `Forbidden`.
pub(crate) fn admit(
    attributes: &Attributes,
    old: Option<&Value>,
    new: Option<&Value>,
    view: &dyn View,
) -> Result<(), StatusError> {
    let _ = (attributes, old, new, view);
    Ok(())
}
