//! What the API server knows of each kind: how to read, default, admit, validate, change and delete it.
//!
//! The order of a write, as in the API server:
//!
//! 1. [`decode`] (or [`decode_patched`] for the result of a patch) reads, normalises and defaults.
//! 2. The caller computes managed fields.
//! 3. [`prepare_create`], [`prepare_update`] or [`prepare_delete`] run admission, the strategy of the kind and
//!    validation.
//! 4. The caller stores the result. After an update it asks [`removable`].
//!
//! All functions are pure: a [`View`] shows what is stored, the [`Attributes`] hold the time, and the caller passes
//! the random numbers.

mod admission;
mod claim;
mod config;
#[cfg(feature = "tls")]
mod csr;
mod decode;
mod deletion;
mod event;
mod fields;
mod initial;
mod json_syntax;
mod lease;
mod metadata;
mod names;
mod namespace;
mod node;
mod persistent_volume;
mod pod;
mod pod_certificate;
mod posted;
mod problems;
mod quantity;
mod runtime_class;
mod service;
mod service_account;
mod storage;
mod strategy;
mod token_request;
mod value;

pub(crate) use decode::{Decoded, FieldValidation, check_applied, decode, decode_patched};
pub(crate) use deletion::{Deletion, prepare_delete, removable, returns_deleted};
pub(crate) use metadata::display_name;
// Until the store shows events of one group in the other.
#[allow(unused_imports)]
pub(crate) use event::convert as convert_event;
pub(crate) use fields::{check_field_label, selectable_field};
pub(crate) use initial::{NamespaceDefaults, beside_namespace, initial_objects};
pub(crate) use metadata::{time, uid as new_uid};
pub(crate) use posted::{Posted, post_subresource};
pub(crate) use strategy::{prepare_create, prepare_update};
pub(crate) use value::Fields;
