//! `binding` and `eviction`.

use serde_json::{Value, json};

use super::super::super::request::{Attributes, View};
use super::super::super::status_error::StatusError;
use super::super::posted::Posted;
use super::super::value::Fields;
use super::super::{deletion, metadata};
use super::admission;

/// Binds a pod to a node, as a scheduler does.
pub(in super::super) fn bind(
    attributes: &Attributes,
    view: &dyn View,
    pod: &Value,
    binding: &Value,
) -> Result<Posted, StatusError> {
    let name = pod["metadata"].text("name");
    if binding["metadata"].text("name") != name {
        let why = "name in URL does not match name in Binding object";
        return Err(StatusError::bad_request(why));
    }
    let (target, kind) = (binding["target"].text("name"), binding["target"].text("kind"));
    if !matches!(kind, "" | "Node") {
        let why =
            format!("target.kind: Unsupported value: {kind:?}: supported values: \"Node\", \"<empty>\"");
        return Err(StatusError::new(500, "", why));
    }
    if target.is_empty() {
        return Err(StatusError::new(500, "", "target.name: Required value"));
    }
    for key in ["uid", "resourceVersion"] {
        let (wanted, found) = (binding["metadata"].text(key), pod["metadata"].text(key));
        if !wanted.is_empty() && wanted != found {
            let name = if key == "uid" { "UID" } else { "ResourceVersion" };
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: /registry/pods/{}/{}, ResourceVersion: 0, \
                 AdditionalErrorMsg: Precondition failed: {name} in precondition: {wanted}, {name} in object meta: \
                 {found}",
                attributes.namespace, attributes.name
            );
            return Err(StatusError::conflict(attributes.resource, &attributes.name, &why));
        }
    }
    let refusal = if !pod["metadata"]["deletionTimestamp"].is_null() {
        Some(format!(
            "pod {name} is being deleted, cannot be assigned to a host"
        ))
    } else if !pod["spec"].text("nodeName").is_empty() {
        let node = pod["spec"].text("nodeName");
        Some(format!("pod {name} is already assigned to node {node:?}"))
    } else if !pod["spec"].list("schedulingGates").is_empty() {
        Some(format!("pod {name} has non-empty .spec.schedulingGates"))
    } else {
        None
    };
    if let Some(why) = refusal {
        let message = format!("Operation cannot be fulfilled on pods/binding {name:?}: {why}");
        let details = json!({"name": name, "kind": "pods/binding"});
        return Err(StatusError::new(409, "Conflict", message).with_details(details));
    }
    let mut bound = pod.clone();
    bound["spec"]["nodeName"] = json!(target);
    metadata::remove(&mut bound, "/status", "nominatedNodeName");
    for (key, value) in binding["metadata"].entries("annotations") {
        bound["metadata"]["annotations"][key] = value.clone();
    }
    for (key, value) in binding["metadata"].entries("labels") {
        bound["metadata"]["labels"][key] = value.clone();
    }
    admission::add_labels(&mut bound, admission::admit_binding(target, view));
    set_scheduled(&mut bound, attributes);
    Ok(Posted::Update {
        object: bound,
        answer: success(),
    })
}

/// Evicts a pod. There are no disruption budgets: it is deleted with the options of the eviction.
pub(in super::super) fn evict(
    attributes: &Attributes,
    pod: &Value,
    eviction: &Value,
) -> Result<Posted, StatusError> {
    let name = eviction["metadata"].text("name");
    if name != attributes.name {
        let why = "name in URL does not match name in Eviction object";
        return Err(StatusError::bad_request(why));
    }
    let options = eviction
        .field("deleteOptions")
        .cloned()
        .unwrap_or_else(|| json!({}));
    deletion::check_preconditions(attributes, pod, &options)?;
    Ok(Posted::Delete {
        options,
        answer: success(),
    })
}

fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

fn set_scheduled(pod: &mut Value, attributes: &Attributes) {
    let now = metadata::time(attributes.now);
    let scheduled = json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now,
    });
    let mut conditions = pod["status"].list("conditions").to_vec();
    match conditions
        .iter_mut()
        .find(|condition| condition.text("type") == "PodScheduled")
    {
        Some(condition) if condition.text("status") == "True" => {
            let since = condition["lastTransitionTime"].clone();
            *condition = scheduled;
            condition["lastTransitionTime"] = since;
        }
        Some(condition) => *condition = scheduled,
        None => conditions.push(scheduled),
    }
    pod["status"]["conditions"] = Value::Array(conditions);
}
