//! Sub-resources that take a `POST`: `binding`, `eviction`, `token`.

use serde_json::Value;

use super::super::request::{Attributes, View};
use super::super::status_error::StatusError;
use super::{admission, pod, token_request};

/// The outcome of a `POST` to a sub-resource. The response is 201 with `answer`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Posted {
    /// Nothing is stored.
    Answer(Value),
    /// Replace the parent with `object`.
    Update { object: Value, answer: Value },
    /// Delete the parent with these `DeleteOptions`.
    Delete { options: Value, answer: Value },
}

/// Decides a `POST` of a decoded `body` to a sub-resource of `parent`.
///
/// # Errors
///
/// The errors of admission and validation.
pub(crate) fn post_subresource(
    attributes: &Attributes,
    view: &dyn View,
    rng: &mut fastrand::Rng,
    parent: &Value,
    body: Value,
) -> Result<Posted, StatusError> {
    match attributes.subresource {
        "token" => token_request::grant(attributes, view, rng, parent, body).map(Posted::Answer),
        "binding" => {
            admission::post(attributes, view, &body)?;
            pod::bind(attributes, view, parent, &body)
        }
        "eviction" => {
            admission::post(attributes, view, &body)?;
            pod::evict(attributes, parent, &body)
        }
        other => Err(StatusError::bad_request(format!(
            "{} has no sub-resource {other:?} to post to",
            attributes.resource.qualified()
        ))),
    }
}
