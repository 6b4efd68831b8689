//! Updates of a pod's spec: most fields are immutable.

use serde_json::{Map, Value};

use super::super::metadata;
use super::super::problems::{Field, Problems};
use super::super::value::Fields;
use super::validation;
use super::{MIRROR_ANNOTATION, qos};

const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be \
    set to 1 if it was previously negative)";
const CONTAINER_LISTS: [&str; 2] = ["containers", "initContainers"];

/// `ValidatePodUpdate`.
pub(super) fn validate(old: &Value, new: &Value, problems: &mut Problems) {
    validation::validate(new, problems);
    validate_annotations(old, new, problems);
    let (old, new, field) = (&old["spec"], &new["spec"], Field::root("spec"));
    for key in CONTAINER_LISTS {
        if !validate_containers(old.list(key), new.list(key), &field.child(key), problems) {
            return;
        }
    }
    if !validate_deadline(old, new, &field.child("activeDeadlineSeconds"), problems) {
        return;
    }
    validate_tolerations(old, new, &field.child("tolerations"), problems);
    validate_gates(old, new, &field.child("schedulingGates"), problems);
    if new == old {
        return;
    }
    let mut munged = new.clone();
    for key in CONTAINER_LISTS {
        for (container, old) in munged.list_mut(key).iter_mut().zip(old.list(key)) {
            metadata::copy_field(old, container, "image");
        }
    }
    for key in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        metadata::copy_field(old, &mut munged, key);
    }
    let grace = |spec: &Value| spec.number("terminationGracePeriodSeconds");
    if grace(old).is_some_and(|grace| grace < 0) && grace(&munged) == Some(1) {
        metadata::copy_field(old, &mut munged, "terminationGracePeriodSeconds");
    }
    if !old.list("schedulingGates").is_empty() {
        validate_narrowed(old, &mut munged, &field, problems);
    }
    if munged != *old {
        let why = format!("pod updates may not change fields other than {UPDATABLE}\n");
        problems.forbidden(&field, &why);
    }
}

/// `ValidatePodSpecificAnnotationUpdates`.
pub(super) fn validate_annotations(old: &Value, new: &Value, problems: &mut Problems) {
    let field = Field::root("metadata")
        .child("annotations")
        .key(MIRROR_ANNOTATION);
    let annotation = |pod: &Value| pod["metadata"]["annotations"].get(MIRROR_ANNOTATION).cloned();
    match (annotation(old), annotation(new)) {
        (Some(old), new) if new.as_ref() != Some(&old) => {
            problems.forbidden(&field, "may not remove or update mirror pod annotation");
        }
        (None, Some(_)) => problems.forbidden(&field, "may not add mirror pod annotation"),
        _ => {}
    }
    validation::validate_annotations(new, problems);
}

/// `dropNonResizeUpdates`: only the new pod's resources count.
pub(super) fn prepare_resize(old: &Value, new: &mut Value) {
    let fits = |new: &[Value], old: &[Value]| {
        new.len() == old.len() && new.iter().zip(old).all(|(new, old)| new["name"] == old["name"])
    };
    let mut spec = old["spec"].clone();
    metadata::copy_field(&new["spec"], &mut spec, "resources");
    for key in CONTAINER_LISTS {
        if new["spec"].list(key).len() != old["spec"].list(key).len() {
            return;
        }
        if fits(new["spec"].list(key), old["spec"].list(key)) {
            for (container, new) in spec.list_mut(key).iter_mut().zip(new["spec"].list(key)) {
                metadata::copy_field(new, container, "resources");
                metadata::copy_field(new, container, "resizePolicy");
            }
        } else {
            metadata::copy_field(&new["spec"], &mut spec, key);
        }
    }
    keep_all_but(spec, old, new);
}

/// `ValidatePodResize`.
pub(super) fn validate_resize(old: &Value, new: &Value, problems: &mut Problems) {
    validation::validate(new, problems);
    if old["metadata"]["annotations"].has(MIRROR_ANNOTATION) {
        *problems = Problems::default();
        problems.forbidden(&Field::root("<nil>"), "static pods cannot be resized");
        return;
    }
    let field = Field::root("spec");
    let class = old["status"].text("qosClass");
    if class != qos::of(&new["spec"]) {
        let why = "Pod QOS Class may not change as a result of resizing";
        problems.invalid(&field, class, why);
    }
    let running = old["status"]
        .list("containerStatuses")
        .iter()
        .find(|status| status["state"].has("running"));
    if running.is_some_and(|status| !status.has("resources")) {
        problems.forbidden(&field, "Pod running on node without support for resize");
    }
    let (old, new) = (&old["spec"], &new["spec"]);
    let mut ordered = true;
    for key in CONTAINER_LISTS {
        ordered &= validate_order(key, old, new, &field.child(key), problems);
    }
    if !ordered {
        return;
    }
    let mut munged = new.clone();
    for key in ["initContainers", "containers"] {
        for (index, (container, old)) in munged.list_mut(key).iter_mut().zip(old.list(key)).enumerate() {
            let at = field.child(key).index(index).child("resources");
            for list in ["requests", "limits"] {
                let removed = old["resources"]
                    .entries(list)
                    .any(|(resource, _)| !container["resources"][list].has(resource));
                if removed {
                    let why = format!("resource {list} cannot be removed");
                    problems.forbidden(&at.child(list), &why);
                }
            }
            drop_cpu_and_memory(container, old);
            if container != old {
                let why = "only cpu and memory resources are mutable";
                problems.forbidden(&field, why);
            }
        }
    }
    if problems.is_empty() {
        metadata::copy_field(old, &mut munged, "resources");
        if munged != *old {
            problems.forbidden(&field, "only cpu and memory resources are mutable");
        }
    }
}

/// `dropNonEphemeralContainerUpdates`: only the new pod's ephemeral containers count.
pub(super) fn prepare_ephemeral_containers(old: &Value, new: &mut Value) {
    let mut spec = old["spec"].clone();
    metadata::copy_field(&new["spec"], &mut spec, "ephemeralContainers");
    keep_all_but(spec, old, new);
}

/// `ValidatePodEphemeralContainersUpdate`.
pub(super) fn validate_ephemeral_containers(old: &Value, new: &Value, problems: &mut Problems) {
    validation::validate(new, problems);
    validate_annotations(old, new, problems);
    if old["metadata"]["annotations"].has(MIRROR_ANNOTATION) {
        *problems = Problems::default();
        let why = "static pods do not support ephemeral containers";
        problems.forbidden(&Field::root("<nil>"), why);
        return;
    }
    let field = Field::root("spec").child("ephemeralContainers");
    for old in old["spec"].list("ephemeralContainers") {
        let name = old.text("name");
        let new = new["spec"]
            .list("ephemeralContainers")
            .iter()
            .find(|new| new.text("name") == name);
        match new {
            None => {
                let why = format!("existing ephemeral containers {name:?} may not be removed\n");
                problems.forbidden(&field, &why);
            }
            Some(new) if new != old => {
                let why = format!("existing ephemeral containers {name:?} may not be changed\n");
                problems.forbidden(&field, &why);
            }
            Some(_) => {}
        }
    }
}

/// The new pod of a sub-resource: this spec and otherwise the old pod (`ResetObjectMetaForStatus`).
fn keep_all_but(spec: Value, old: &Value, new: &mut Value) {
    for key in [
        "deletionTimestamp",
        "generation",
        "selfLink",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
    ] {
        metadata::copy_field(&old["metadata"], &mut new["metadata"], key);
    }
    metadata::copy_field(old, new, "status");
    new["spec"] = spec;
}

fn drop_cpu_and_memory(container: &mut Value, old: &Value) {
    let mut resources = container["resources"].as_object().cloned().unwrap_or_default();
    for list in ["requests", "limits"] {
        let mut amounts: Map<String, Value> = resources
            .get(list)
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default();
        for resource in ["cpu", "memory"] {
            metadata::copy(&old["resources"][list], &mut amounts, resource);
        }
        if amounts.is_empty() {
            resources.remove(list);
        } else {
            resources.insert(list.into(), Value::Object(amounts));
        }
    }
    container["resources"] = Value::Object(resources);
    metadata::copy_field(old, container, "resizePolicy");
}

fn validate_order(key: &str, old: &Value, new: &Value, field: &Field, problems: &mut Problems) -> bool {
    let (old, new) = (old.list(key), new.list(key));
    if old.len() != new.len() {
        problems.forbidden(field, &format!("{key} may not be added or removed on resize"));
        return false;
    }
    let mut ordered = true;
    for (index, (old, new)) in old.iter().zip(new).enumerate() {
        if old["name"] != new["name"] {
            let why = format!("{key} may not be renamed or reordered on resize");
            problems.forbidden(&field.index(index).child("name"), &why);
            ordered = false;
        }
    }
    ordered
}

/// False if further checks make no sense.
fn validate_containers(old: &[Value], new: &[Value], field: &Field, problems: &mut Problems) -> bool {
    if old.len() != new.len() {
        problems.forbidden(field, "pod updates may not add or remove containers");
        return false;
    }
    for (index, container) in new.iter().enumerate() {
        let (field, image) = (field.index(index).child("image"), container.text("image"));
        if image.is_empty() {
            problems.required(&field, "");
        }
        if image.trim() != image {
            problems.invalid(&field, image, "must not have leading or trailing whitespace");
        }
    }
    true
}

/// False if further checks make no sense.
fn validate_deadline(old: &Value, new: &Value, field: &Field, problems: &mut Problems) -> bool {
    let most = i64::from(i32::MAX);
    match (
        old.number("activeDeadlineSeconds"),
        new.number("activeDeadlineSeconds"),
    ) {
        (_, Some(new)) if !(0..=most).contains(&new) => {
            problems.unless_within(field, new, 0, most);
            false
        }
        (Some(old), Some(new)) if old < new => {
            problems.invalid(field, new, "must be less than or equal to previous value");
            false
        }
        (Some(_), None) => {
            let why = "must not update from a positive integer to nil value";
            problems.invalid(field, Value::Null, why);
            true
        }
        _ => true,
    }
}

fn validate_tolerations(old: &Value, new: &Value, field: &Field, problems: &mut Problems) {
    let timeless = |toleration: &Value| {
        let mut toleration = toleration.clone();
        toleration.fields_mut().remove("tolerationSeconds");
        toleration
    };
    let kept: Vec<Value> = new.list("tolerations").iter().map(timeless).collect();
    if !old
        .list("tolerations")
        .iter()
        .all(|toleration| kept.contains(&timeless(toleration)))
    {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        problems.forbidden(field, why);
        return;
    }
    validation::validate_tolerations(new, field, problems);
}

fn validate_gates(old: &Value, new: &Value, field: &Field, problems: &mut Problems) {
    for (index, gate) in new.list("schedulingGates").iter().enumerate() {
        let known = old
            .list("schedulingGates")
            .iter()
            .any(|old| old["name"] == gate["name"]);
        if !known {
            let why = format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                gate.text("name")
            );
            problems.forbidden(&field.index(index).child("name"), &why);
        }
    }
}

/// While a pod has scheduling gates, its node selector may be narrowed. For affinities this checks only that there
/// were none before.
fn validate_narrowed(old: &Value, munged: &mut Value, field: &Field, problems: &mut Problems) {
    let at = field.child("nodeSelector");
    for (key, value) in old.entries("nodeSelector") {
        if munged["nodeSelector"].get(key) != Some(value) {
            let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            problems.invalid(&at, munged["nodeSelector"].clone(), why);
            break;
        }
    }
    metadata::copy_field(old, munged, "nodeSelector");
    if old["affinity"]["nodeAffinity"].is_null() {
        metadata::remove(munged, "/affinity", "nodeAffinity");
        if old["affinity"].is_null() && munged["affinity"].as_object().is_some_and(Map::is_empty) {
            munged.fields_mut().remove("affinity");
        }
    }
}
