//! Managed fields: which manager set which field, and server-side apply.
//!
//! `metadata.managedFields` has one [entry](entries) for each manager, operation, version and sub-resource, with the
//! [set](field_set) of fields that it owns. The fields that an update [changes](compare) become its manager's alone.
//! An apply may change another manager's fields only by force, and it removes the fields that the manager applied
//! before and does not apply any more.

mod apply;
mod compare;
mod conflict;
mod entries;
mod field_set;
mod form;
mod last_applied;
mod merge;
mod prune;
#[cfg(test)]
mod recorded;
mod reset;
#[cfg(test)]
mod tests;
mod validate;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

pub(crate) use apply::apply;

use self::compare::{Comparison, compare};
use self::entries::{Id, Managed, Operation, Owner};
use self::field_set::FieldSet;
use self::form::Form;
use self::reset::Reset;
use super::request::Attributes;
use super::resource::Resource;
use super::schema;

/// The manager of an update without a manager's name.
const UNKNOWN_MANAGER: &str = "unknown";

/// [`updated`] by the manager of a request.
pub(crate) fn written(attributes: &Attributes, old: Option<&Value>, new: &mut Value) {
    let manager = &attributes.field_manager;
    updated(
        attributes.resource,
        old,
        new,
        manager,
        attributes.subresource,
        attributes.now,
    );
}

/// Writes `metadata.managedFields` of an object about to be created or updated: the manager owns the fields that
/// differ from `old`.
///
/// Call it with the decoded, normalised and defaulted object, before admission and the kind's strategy, as the API
/// server does. So no manager owns what these two add. An update may contain managed fields of its own, or an empty
/// list to remove them all.
fn updated(
    resource: &Resource,
    old: Option<&Value>,
    new: &mut Value,
    manager: &str,
    subresource: &str,
    now: Timestamp,
) {
    let live_managed = old.and_then(managed_fields).unwrap_or(&Value::Null);
    let handed_over = managed_fields(new).cloned().unwrap_or_default();
    let managed = if !subresource.is_empty() {
        Managed::decode(live_managed)
    } else if is_reset(&handed_over) {
        None
    } else {
        match Managed::decode(&handed_over) {
            Some(managed) if !managed.is_empty() => Some(managed),
            _ => Managed::decode(live_managed),
        }
    };
    let mut managed = managed.unwrap_or_default();
    set_managed_fields(new, Value::Null);

    // An object without managed fields is older than managed fields.
    if old.is_none() || !managed.is_empty() {
        let kind = Target::of(resource, subresource);
        kind.update(old, new, &mut managed, manager, now);
    }
    set_managed_fields(new, managed.encode());
}

/// Restores the old times in `metadata.managedFields` of an object that is otherwise unchanged, so that nothing is
/// written. Call it after admission and the kind's strategy.
pub(crate) fn keep_times(old: &Value, new: &mut Value) {
    let timeless = |object: &Value| {
        let mut object = object.clone();
        if let Some(Value::Array(entries)) = object.pointer_mut("/metadata/managedFields") {
            for entry in entries.iter_mut().filter_map(Value::as_object_mut) {
                entry.remove("time");
            }
        }
        object
    };
    if old != new
        && managed_fields(old) != managed_fields(new)
        && timeless(old) == timeless(new)
        && let Some(managed) = managed_fields(old).cloned()
    {
        set_managed_fields(new, managed);
    }
}

/// The target of a write: a resource's objects or one of its sub-resources.
struct Target {
    form: Form,
    api_version: String,
    subresource: String,
    reset: Reset,
}

impl Target {
    fn of(resource: &Resource, subresource: &str) -> Self {
        let (name, api_version) = match (resource.plural, subresource) {
            ("serviceaccounts", "token") => ("TokenRequest", "authentication.k8s.io/v1".to_string()),
            ("pods", "binding") => ("Binding", resource.api_version()),
            ("pods", "eviction") => ("Eviction", "policy/v1".to_string()),
            _ => (schema::of(resource).name, resource.api_version()),
        };
        Target {
            form: Form::Struct(schema::named(name)),
            api_version,
            subresource: subresource.to_string(),
            reset: Reset::of(resource, subresource),
        }
    }

    /// An empty object, as the API server writes it.
    fn empty(&self) -> Value {
        let mut empty = Value::Null;
        if let Form::Struct(r#type) = self.form {
            r#type.normalize(&mut empty);
        }
        empty
    }

    fn id(&self, manager: &str, operation: Operation) -> Id {
        let manager = if manager.is_empty() {
            UNKNOWN_MANAGER
        } else {
            manager
        };
        let api_version = match operation {
            Operation::Update => self.api_version.clone(),
            // A manager that applies keeps its entry when the version changes.
            Operation::Apply => String::new(),
        };
        Id {
            operation,
            manager: manager.to_string(),
            api_version,
            subresource: self.subresource.clone(),
        }
    }

    /// Gives the manager the fields that `new` adds or changes.
    fn update(&self, old: Option<&Value>, new: &Value, managed: &mut Managed, manager: &str, now: Timestamp) {
        let changes = match old {
            Some(old) => compare(&self.form, Some(old), Some(new)),
            None => compare(&self.form, Some(&self.empty()), Some(new)),
        };
        managed.take_away(&self.filtered(&changes), None);
        let changed = changes.modified.union(&changes.added);
        let own = self.reset.filter(&changed).difference(&system_fields());
        if own.is_empty() {
            return;
        }
        let id = self.id(manager, Operation::Update);
        let fields = match managed.owners.remove(&id) {
            Some(previous) => previous.fields.union(&own),
            None => own,
        };
        let owner = Owner {
            api_version: self.api_version.clone(),
            fields,
            time: Some(now),
        };
        managed.owners.insert(id, owner);
        managed.cap_updates();
    }

    /// The changes without those that the kind's strategy resets.
    fn filtered(&self, changes: &Comparison) -> Comparison {
        Comparison {
            added: self.reset.filter(&changes.added),
            modified: self.reset.filter(&changes.modified),
            removed: self.reset.filter(&changes.removed),
        }
    }
}

/// The fields that belong to the API server, whoever sends them.
fn system_fields() -> FieldSet {
    let mut fields = FieldSet::of(&[&["apiVersion"], &["kind"], &["metadata"]]);
    for name in [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ] {
        fields.insert(&["metadata", name]);
    }
    fields
}

fn managed_fields(object: &Value) -> Option<&Value> {
    object.pointer("/metadata/managedFields")
}

/// Null removes them.
fn set_managed_fields(object: &mut Value, managed: Value) {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else {
        return;
    };
    if managed.is_null() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".into(), managed);
    }
}

/// An empty list, or a list of one empty entry.
fn is_reset(handed_over: &Value) -> bool {
    match handed_over.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(|entry| entry.is_empty()),
        _ => false,
    }
}
