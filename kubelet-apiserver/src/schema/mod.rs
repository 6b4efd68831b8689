//! The types of the served kinds: which fields there are, of what type, and how they merge.
//!
//! The [`table`] has the facts. [`check`] and [`unknown`] compare a body with it, and [`normalize`] writes an object
//! as the API server does. [`patch`](super::patch) and [`managed_fields`](super::managed_fields) read from it how
//! lists and maps merge.

mod check;
mod convert;
mod go_time;
mod normalize;
mod quantity;
mod table;
mod unknown;

use serde_json::Value;

pub(crate) use check::json_type;
#[cfg(feature = "tls")]
pub(crate) use go_time::{format as format_time, parse as parse_time};
pub(crate) use table::{Field, Kind, Topology, Type};

use super::resource::Resource;

/// The type of a resource's objects.
pub(crate) fn of(resource: &Resource) -> &'static Type {
    match resource.group {
        "events.k8s.io" => named("events.Event"),
        "resource.k8s.io" if resource.kind == "ResourceClaim" => named("resource.ResourceClaim"),
        _ => named(resource.kind),
    }
}

/// The type of a `POST` to a sub-resource: `TokenRequest`, `Binding`, `Eviction`, `DeleteOptions`.
///
/// An unknown type has no fields.
pub(crate) fn named(name: &str) -> &'static Type {
    table::find(name).unwrap_or(table::empty())
}

/// The unknown fields of an object, as paths: `spec.containers[0].bogus`.
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

/// Brings an object into the form in which the API server writes it. Unknown fields and empty optional fields are
/// left out, required fields are added, times are in UTC, and quantities have their shortest form.
///
/// Call it after [`check_types`]; it leaves wrong types as they are.
pub(crate) fn normalize(resource: &Resource, object: &mut Value) {
    of(resource).normalize(object);
}
