//! The types of the served kinds: which fields there are, of what type, and how they merge.
//!
//! The facts stand in a [`table`]; [`check`] and [`unknown`] hold a body against it, [`normalize`] writes an object as the
//! API server does. [`patch`](super::patch) and [`managed_fields`](super::managed_fields) ask it how lists and maps merge.

mod check;
mod convert;
mod go_time;
mod normalize;
mod quantity;
mod table;
mod unknown;

use serde_json::Value;

pub(crate) use check::json_type;
pub(crate) use table::{Field, Kind, Topology, Type};

use super::resource::Resource;

/// The type of a resource's objects.
pub(crate) fn of(resource: &Resource) -> &'static Type {
    match resource.group {
        "events.k8s.io" => named("events.Event"),
        _ => named(resource.kind),
    }
}

/// A type by its name, for what is posted to sub-resources: `TokenRequest`, `Binding`, `Eviction`, `DeleteOptions`.
///
/// A type that isn't known has no fields.
pub(crate) fn named(name: &str) -> &'static Type {
    table::find(name).unwrap_or(table::empty())
}

/// The fields of an object that its kind doesn't have, as paths: `spec.containers[0].bogus`.
pub(crate) fn unknown_fields(resource: &Resource, object: &Value) -> Vec<String> {
    of(resource).unknown_fields(object)
}

/// Checks that every field has the JSON type that its kind wants.
///
/// # Errors
///
/// What is wrong, in the API server's words.
pub(crate) fn check_types(resource: &Resource, object: &Value) -> Result<(), String> {
    of(resource).check(object)
}

/// Brings an object into the form in which the API server writes it: without the fields its kind doesn't have and
/// without empty optional ones, with the ones that are always written; times in UTC, quantities in their shortest form.
///
/// To be called with what [`check_types`] found right; what is wrong stays as it is.
pub(crate) fn normalize(resource: &Resource, object: &mut Value) {
    of(resource).normalize(object);
}
