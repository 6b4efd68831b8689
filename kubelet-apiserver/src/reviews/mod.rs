//! Reviews: objects that are created for their answer, and never stored.

mod access;
mod token;

use serde_json::Value;

use crate::managed_fields;
use crate::objects::{self, Decoded, FieldValidation};
use crate::request::Attributes;
use crate::resource::Resource;
use crate::server::Shared;
use crate::status_error::StatusError;
use crate::write::Written;

/// Whether the objects of a resource are reviews.
pub(crate) fn is_review(resource: &Resource) -> bool {
    matches!(resource.group, "authentication.k8s.io" | "authorization.k8s.io")
}

impl Shared {
    /// `POST` of a review.
    ///
    /// # Errors
    ///
    /// The review is not valid.
    pub(crate) fn review(
        &self,
        attributes: &Attributes,
        body: &[u8],
        validation: FieldValidation,
    ) -> Result<Written, StatusError> {
        let Decoded { mut object, warnings } = objects::decode(attributes, body, validation)?;
        managed_fields::written(attributes, None, &mut object);
        let answer: Value = match attributes.resource.kind {
            "TokenReview" => token::review(self, object)?,
            _ => access::review(self, attributes, object)?,
        };
        Ok(Written::new(201, answer).with_warnings(warnings))
    }
}
