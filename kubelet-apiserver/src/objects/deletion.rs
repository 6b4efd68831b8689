//! Deletion: grace periods, finalizers and preconditions.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::request::{Attributes, View};
use super::super::resource::Resource;
use super::super::status_error::StatusError;
use super::{admission, metadata};

/// The outcome of a `DELETE`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Deletion {
    /// Remove the stored object.
    Remove,
    /// Store this object (with `deletionTimestamp` and finalizers) and return it. If it is [`removable`], remove it
    /// right after: watchers see both, and the response has the removed object. Deleting a namespace deletes the
    /// objects in it.
    Store(Value),
    /// Nothing changes, because the object is being deleted already. Return the stored object.
    Pending,
}

/// The grace period of a deletion (`rest.BeforeDelete`).
enum Grace {
    /// The kind has no grace period.
    None,
    /// The object, marked as being deleted.
    Marked(Value),
    /// It is already being deleted, and no later than requested now.
    Pending,
}

/// Decides a `DELETE` of `old`; `options` is the decoded `DeleteOptions`, `{}` for none.
///
/// There is no garbage collector: `propagationPolicy` is validated and has no effect.
///
/// # Errors
///
/// 409 for a failed precondition, and the errors of admission and validation.
pub(crate) fn prepare_delete(
    attributes: &Attributes,
    view: &dyn View,
    old: &Value,
    options: &Value,
) -> Result<Deletion, StatusError> {
    validate_options(options)?;
    check_preconditions(attributes, old, options)?;
    admission::delete(attributes, view, old)?;
    if attributes.resource.kind == "Namespace" {
        return Ok(delete_namespace(attributes, old));
    }
    let finalizers = !is_empty(&old["metadata"]["finalizers"]);
    Ok(match grace(attributes, old, options) {
        Grace::Pending => Deletion::Pending,
        Grace::Marked(marked) => Deletion::Store(marked),
        Grace::None if finalizers => {
            let marked = mark_as_deleting(old, attributes.now);
            if marked == *old {
                Deletion::Pending
            } else {
                Deletion::Store(marked)
            }
        }
        Grace::None => Deletion::Remove,
    })
}

/// Whether an object that was just updated must be removed instead of stored: it is being deleted, and no finalizer
/// is left. The response has the object as it would have been stored, with the stored one's `resourceVersion`.
pub(crate) fn removable(resource: &Resource, object: &Value) -> bool {
    let meta = &object["metadata"];
    let over = if resource.kind == "Namespace" {
        !meta["deletionTimestamp"].is_null() && is_empty(&object["spec"]["finalizers"])
    } else {
        meta["deletionGracePeriodSeconds"] == 0
    };
    over && is_empty(&meta["finalizers"])
}

/// Whether the response to a `DELETE` has the removed object; otherwise it has a `Status` of success.
pub(crate) fn returns_deleted(resource: &Resource) -> bool {
    matches!(resource.kind, "Pod" | "Service" | "ServiceAccount" | "Namespace")
}

fn is_empty(list: &Value) -> bool {
    list.as_array().is_none_or(Vec::is_empty)
}

/// `ValidateDeleteOptions`.
fn validate_options(options: &Value) -> Result<(), StatusError> {
    let invalid = |reason: &'static str, message: String| {
        let cause = json!({"reason": reason, "message": message, "field": "propagationPolicy"});
        StatusError::new(
            422,
            "Invalid",
            format!("DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: {message}"),
        )
        .with_details(json!({"group": "meta.k8s.io", "kind": "DeleteOptions", "causes": [cause]}))
    };
    let Some(policy) = options["propagationPolicy"].as_str() else {
        return Ok(());
    };
    if !options["orphanDependents"].is_null() {
        let why = "orphanDependents and deletionPropagation cannot be both set";
        return Err(invalid(
            "FieldValueInvalid",
            format!("Invalid value: {policy:?}: {why}"),
        ));
    }
    if !matches!(policy, "Foreground" | "Background" | "Orphan") {
        let supported = r#""Foreground", "Background", "Orphan", "nil""#;
        return Err(invalid(
            "FieldValueNotSupported",
            format!("Unsupported value: {policy:?}: supported values: {supported}"),
        ));
    }
    Ok(())
}

pub(super) fn check_preconditions(
    attributes: &Attributes,
    old: &Value,
    options: &Value,
) -> Result<(), StatusError> {
    for (key, name, what_happened) in [
        ("uid", "UID", "deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "modified"),
    ] {
        let Some(wanted) = options["preconditions"][key].as_str() else {
            continue;
        };
        let found = old["metadata"][key].as_str().unwrap_or_default();
        if wanted != found {
            return Err(conflict(
                attributes,
                old,
                &format!(
                    "the {name} in the precondition ({wanted}) does not match the {name} in record ({found}). The object \
                     might have been {what_happened}"
                ),
            ));
        }
    }
    Ok(())
}

/// Here the API server writes the kind, elsewhere the resource.
fn conflict(attributes: &Attributes, old: &Value, why: &str) -> StatusError {
    let resource = attributes.resource;
    let name = old["metadata"]["name"].as_str().unwrap_or_default();
    let mut details = json!({"kind": resource.kind, "name": name});
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    let kind = resource.qualified_kind();
    let message = format!("Operation cannot be fulfilled on {kind} {name:?}: {why}");
    StatusError::new(409, "Conflict", message).with_details(details)
}

fn grace(attributes: &Attributes, old: &Value, options: &Value) -> Grace {
    // Only pods have a grace period.
    if attributes.resource.kind != "Pod" {
        return Grace::None;
    }
    let (meta, now) = (&old["metadata"], attributes.now);
    let asked = options["gracePeriodSeconds"]
        .as_i64()
        .map(|asked| if asked < 0 { 1 } else { asked });
    if let Some(due) = timestamp(&meta["deletionTimestamp"]) {
        let left = match meta["deletionGracePeriodSeconds"].as_i64() {
            None | Some(0) => return Grace::None,
            Some(left) if left < 0 => 1,
            Some(left) => left,
        };
        return match asked {
            Some(asked) if asked < left => {
                let (mut due, mut asked) = (due - SignedDuration::from_secs(left - asked), asked);
                if due < now {
                    due = now;
                    asked = asked.min(1);
                }
                let mut marked = old.clone();
                marked["metadata"]["deletionTimestamp"] = json!(metadata::time(due));
                marked["metadata"]["deletionGracePeriodSeconds"] = json!(asked);
                Grace::Marked(marked)
            }
            _ => Grace::Pending,
        };
    }
    let seconds = pod_grace(old, asked);
    let mut marked = old.clone();
    let meta = &mut marked["metadata"];
    meta["deletionTimestamp"] = json!(metadata::time(now + SignedDuration::from_secs(seconds)));
    meta["deletionGracePeriodSeconds"] = json!(seconds);
    raise_generation(meta);
    Grace::Marked(marked)
}

/// `CheckGracefulDelete` of pods: no grace period before a pod is bound or after it has ended.
fn pod_grace(pod: &Value, asked: Option<i64>) -> i64 {
    let scheduled = pod["spec"]["nodeName"]
        .as_str()
        .is_some_and(|node| !node.is_empty());
    let over = matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
    if !scheduled || over {
        return 0;
    }
    let seconds = asked
        .or(pod["spec"]["terminationGracePeriodSeconds"].as_i64())
        .unwrap_or(0);
    if seconds < 0 { 1 } else { seconds }
}

/// Marks an object of a kind without grace period that has finalizers (`markAsDeleting`).
fn mark_as_deleting(old: &Value, now: Timestamp) -> Value {
    let mut marked = old.clone();
    let meta = &mut marked["metadata"];
    if meta["deletionTimestamp"].is_null() {
        raise_generation(meta);
        meta["deletionTimestamp"] = json!(metadata::time(now));
    }
    meta["deletionGracePeriodSeconds"] = json!(0);
    marked
}

fn delete_namespace(attributes: &Attributes, old: &Value) -> Deletion {
    let mut marked = old.clone();
    if marked["metadata"]["deletionTimestamp"].is_null() {
        marked["metadata"]["deletionTimestamp"] = json!(metadata::time(attributes.now));
    }
    marked["status"]["phase"] = json!("Terminating");
    if marked == *old {
        Deletion::Pending
    } else {
        Deletion::Store(marked)
    }
}

fn raise_generation(meta: &mut Value) {
    if let Some(generation) = meta["generation"].as_i64().filter(|generation| *generation > 0) {
        meta["generation"] = json!(generation + 1);
    }
}

pub(super) fn timestamp(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}
