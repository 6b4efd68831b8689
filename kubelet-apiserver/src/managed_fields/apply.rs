//! Server-side apply.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::super::resource::Resource;
use super::super::schema::{self, json_type};
use super::super::status_error::StatusError;
use super::compare::{compare, fields};
use super::conflict;
use super::entries::{Id, Managed, Operation, Owner};
use super::field_set::FieldSet;
use super::last_applied::{self, KUBECTL};
use super::merge::merge;
use super::prune::prune;
use super::validate::validate;
use super::{Target, managed_fields, set_managed_fields, system_fields};

/// The manager of fields that existed before the first apply, if managed fields were not kept then.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Server-side apply: merges what `manager` applies into the object, removes what it applied before and does not
/// apply any more, and writes `metadata.managedFields`. The result must still be decoded and defaulted. If nothing
/// changed, it is equal to `current` but for managed fields.
///
/// # Errors
///
/// 400 for an object of another kind or version, 409 with every field that another manager owns unless `force` is
/// set, and 500, as from the API server, for an object that does not fit its type.
pub(crate) fn apply(
    resource: &Resource,
    current: Option<&Value>,
    applied: &Value,
    manager: &str,
    force: bool,
    subresource: &str,
    now: Timestamp,
) -> Result<Value, StatusError> {
    check(resource, applied)?;
    let target = Target::of(resource, subresource);
    let mut live = current.cloned().unwrap_or_else(|| target.empty());
    let mut managed = match managed_fields(&live) {
        None => Managed::default(),
        Some(entries) => {
            Managed::decode(entries).ok_or_else(|| internal("failed to decode managed fields".into()))?
        }
    };
    set_managed_fields(&mut live, Value::Null);
    if managed.is_empty() {
        target.update(None, &live, &mut managed, BEFORE_FIRST_APPLY, now);
    }
    validate(schema::of(resource), applied).map_err(|why| {
        let text = |name: &str| applied["metadata"][name].as_str().unwrap_or_default();
        internal(format!(
            "failed to create typed patch object ({}/{}; {}): {why}",
            text("namespace"),
            text("name"),
            version_and_kind(applied)
        ))
    })?;

    let id = target.id(manager, Operation::Apply);
    let mut object = match attempt(&target, &live, applied, managed.clone(), &id, force, now) {
        Ok(object) => object,
        Err(mut conflicts) => {
            let allowed = (manager == KUBECTL).then(|| last_applied::unchanged(&target.form, &live));
            if let Some(Some(allowed)) = allowed {
                for (_, fields) in &mut conflicts {
                    *fields = fields.difference(&allowed);
                }
                conflicts.retain(|(_, fields)| !fields.is_empty());
            }
            if !conflicts.is_empty() {
                return Err(conflict::error(&conflicts));
            }
            attempt(&target, &live, applied, managed, &id, true, now).map_err(|c| conflict::error(&c))?
        }
    };
    if manager == KUBECTL {
        last_applied::update(&mut object, applied);
    }
    Ok(object)
}

/// The fields that other managers own.
type Conflicts = Vec<(Id, FieldSet)>;

fn attempt(
    target: &Target,
    live: &Value,
    applied: &Value,
    mut managed: Managed,
    id: &Id,
    force: bool,
    now: Timestamp,
) -> Result<Value, Conflicts> {
    let form = &target.form;
    let previous = managed.owners.remove(id);
    let owner = Owner {
        api_version: target.api_version.clone(),
        fields: target.reset.filter(&fields(form, applied)),
        time: previous.as_ref().and_then(|owner| owner.time),
    };
    managed.owners.insert(id.clone(), owner);

    let merged = merge(form, Some(live), Some(applied)).unwrap_or_default();
    let before = previous.map(|owner| owner.fields).unwrap_or_default();
    let mut object = prune(form, &merged, &before, &managed);

    let changes = target.filtered(&compare(form, Some(live), Some(&object)));
    let conflicts = conflicts(&managed, id, &changes.modified.union(&changes.added));
    if !force && !conflicts.is_empty() {
        return Err(conflicts);
    }
    managed.take_away(&changes, Some(id));
    if let Some(owner) = managed.owners.get_mut(id) {
        owner.fields = owner.fields.difference(&system_fields());
        if object != *live {
            owner.time = Some(now);
        }
    }
    managed.owners.retain(|_, owner| !owner.fields.is_empty());
    set_managed_fields(&mut object, managed.encode());
    Ok(object)
}

/// The changed fields that other managers own, in the order of managers.
fn conflicts(managed: &Managed, id: &Id, changed: &FieldSet) -> Conflicts {
    let mut conflicts: Conflicts = managed
        .owners
        .iter()
        .filter(|(other, _)| *other != id)
        .map(|(other, owner)| (other.clone(), owner.fields.intersection(changed)))
        .filter(|(_, fields)| !fields.is_empty())
        .collect();
    conflicts.sort_by(|(a, _), (b, _)| (&a.manager, a).cmp(&(&b.manager, b)));
    conflicts
}

fn check(resource: &Resource, applied: &Value) -> Result<(), StatusError> {
    if !applied.is_object() {
        return Err(StatusError::bad_request(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {} into Go value \
             of type map[string]interface {{}}",
            json_type(applied)
        )));
    }
    if applied["apiVersion"] != resource.api_version() || applied["kind"] != resource.kind {
        return Err(StatusError::bad_request(format!(
            "invalid object type: {}",
            version_and_kind(applied)
        )));
    }
    if managed_fields(applied).is_some_and(|entries| !entries.is_null()) {
        return Err(StatusError::bad_request("metadata.managedFields must be nil"));
    }
    Ok(())
}

/// `apps/v1, Kind=Deployment`; the core group is empty.
fn version_and_kind(object: &Value) -> String {
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion")
        .split_once('/')
        .unwrap_or(("", text("apiVersion")));
    format!("{group}/{version}, Kind={}", text("kind"))
}

fn internal(message: String) -> StatusError {
    StatusError::new(500, "", message)
}
