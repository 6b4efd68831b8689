//! What the API server knows of each kind: how it is read, defaulted, admitted, checked, changed and deleted.
//!
//! The order of a write, as in the API server:
//!
//! 1. [`decode`] (or [`decode_patched`] for the outcome of a patch): reads, normalises and defaults;
//! 2. managed fields are computed by the caller;
//! 3. [`prepare_create`], [`prepare_update`] or [`prepare_delete`]: admission, the strategy of the kind and validation;
//! 4. the caller stores what comes back. After an update it asks [`removable`].
//!
//! All of it is pure: what is stored is seen through a [`View`], time is in the [`Attributes`], randomness is handed in.

// Until the service calls them.
#![allow(unused_imports)]

mod decode;
mod deletion;
mod fields;
mod initial;
mod metadata;
mod posted;

use serde_json::Value;

pub(crate) use decode::{Decoded, FieldValidation, decode, decode_patched};
pub(crate) use deletion::{Deletion, prepare_delete, removable, returns_deleted};
pub(crate) use fields::{check_field_label, selectable_field};
pub(crate) use initial::{beside_namespace, initial_objects};
pub(crate) use posted::{Posted, post_subresource};

use super::request::{Attributes, View};
use super::status_error::StatusError;

/// Makes of a decoded object the one to store: admission, system fields (`uid`, `creationTimestamp`, a name for
/// `generateName`, `generation`), the kind's strategy, validation.
///
/// The caller sets `resourceVersion`, and refuses a name that is taken.
///
/// # Errors
///
/// What admission or validation refuse.
pub(crate) fn prepare_create(
    attributes: &Attributes,
    view: &dyn View,
    rng: &mut fastrand::Rng,
    object: Value,
) -> Result<Value, StatusError> {
    let mut object = object;
    super::authorize::admit(attributes, None, Some(&object), view)?;
    metadata::fill(attributes, rng, &mut object)?;
    Ok(object)
}

/// Makes of a decoded object the one to store in the place of `old`: for the object itself and for the sub-resources
/// that are written with `PUT` and `PATCH` (`status`, `approval`, `resize`, `ephemeralcontainers`).
///
/// What a request may not change is taken from `old` or refused, as the API server does for the field. An object that
/// comes back equal to `old` is not to be written. `resourceVersion` in `new` is the precondition: the caller compares it
/// with `old`'s beforehand.
///
/// # Errors
///
/// What admission or validation refuse.
pub(crate) fn prepare_update(
    attributes: &Attributes,
    view: &dyn View,
    old: &Value,
    new: Value,
) -> Result<Value, StatusError> {
    super::authorize::admit(attributes, Some(old), Some(&new), view)?;
    Ok(new)
}
