//! Admission of pods: `ServiceAccount`, `Priority`, `DefaultTolerationSeconds`, `RuntimeClass` and their like.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::super::request::{Attributes, View};
use super::super::super::resource::Resource;
use super::super::super::status_error::StatusError;
use super::super::metadata;
use super::super::metadata::display_name;
use super::super::value::Fields;
use super::MIRROR_ANNOTATION;

const TOKEN_MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const TOKEN_VOLUME_PREFIX: &str = "kube-api-access-";
/// The priority classes that every cluster has.
const PRIORITY_CLASSES: [(&str, i64); 2] = [
    ("system-node-critical", 2_000_001_000),
    ("system-cluster-critical", 2_000_000_000),
];
/// The labels that pods get from their node (`PodTopologyLabels`).
const TOPOLOGY_LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// `ServiceAccount`: the default account, its token, its pull secrets.
pub(in super::super) fn admit_service_account(
    attributes: &Attributes,
    view: &dyn View,
    rng: &mut fastrand::Rng,
    pod: &mut Value,
) -> Result<(), StatusError> {
    let forbid = |pod: &Value, why: &str| {
        Err(StatusError::forbidden(
            attributes.resource,
            &display_name(attributes, pod),
            why,
        ))
    };
    if pod["metadata"]["annotations"].has(MIRROR_ANNOTATION) {
        return match mirror_reference(&pod["spec"]) {
            Some(why) => forbid(pod, why),
            None => Ok(()),
        };
    }
    pod["spec"].default_text("serviceAccountName", "default");
    let name = pod["spec"].text("serviceAccountName").to_owned();
    let account = Resource::find("", "v1", "serviceaccounts")
        .and_then(|resource| view.get(resource, &attributes.namespace, &name));
    let Some(account) = account else {
        let why = format!(
            "error looking up service account {}/{name}: serviceaccount {name:?} not found",
            attributes.namespace
        );
        return forbid(pod, &why);
    };
    let mounts = [
        &pod["spec"]["automountServiceAccountToken"],
        &account["automountServiceAccountToken"],
    ];
    if mounts.into_iter().find_map(Value::as_bool).unwrap_or(true) {
        mount_token(&mut pod["spec"], rng);
    }
    let secrets = account.list("imagePullSecrets");
    if pod["spec"].list("imagePullSecrets").is_empty() && !secrets.is_empty() {
        let named: Vec<Value> = secrets
            .iter()
            .map(|secret| json!({"name": secret["name"]}))
            .collect();
        pod["spec"]["imagePullSecrets"] = Value::Array(named);
    }
    Ok(())
}

/// The other admission plugins for a new pod.
pub(in super::super) fn admit_create(
    attributes: &Attributes,
    view: &dyn View,
    pod: &mut Value,
) -> Result<(), StatusError> {
    let forbid = |pod: &Value, why: &str| {
        StatusError::forbidden(attributes.resource, &display_name(attributes, pod), why)
    };
    set_priority(pod).map_err(|why| forbid(pod, &why))?;
    tolerate_node_troubles(&mut pod["spec"]);
    tolerate_extended_resources(&mut pod["spec"]);
    set_runtime_class(pod, view).map_err(|why| forbid(pod, &why))?;
    let node = pod["spec"].text("nodeName").to_owned();
    let labels = topology_labels(&node, view);
    add_labels(pod, labels);
    Ok(())
}

pub(in super::super) fn admit_update(old: &Value, new: &mut Value) {
    for key in ["priority", "preemptionPolicy"] {
        if !new["spec"].has(key) {
            metadata::copy_field(&old["spec"], &mut new["spec"], key);
        }
    }
    tolerate_node_troubles(&mut new["spec"]);
    tolerate_extended_resources(&mut new["spec"]);
}

/// What a binding sets besides the node's name.
pub(in super::super) fn admit_binding(node: &str, view: &dyn View) -> Vec<(String, Value)> {
    topology_labels(node, view)
}

pub(super) fn add_labels(pod: &mut Value, labels: Vec<(String, Value)>) {
    for (key, value) in labels {
        pod["metadata"]["labels"][key] = value;
    }
}

/// What a mirror pod may not refer to.
fn mirror_reference(spec: &Value) -> Option<&'static str> {
    if !spec.text("serviceAccountName").is_empty() {
        return Some("a mirror pod may not reference service accounts");
    }
    if refers_to_secret(spec) {
        return Some("a mirror pod may not reference secrets");
    }
    let mut sources = spec
        .list("volumes")
        .iter()
        .flat_map(|volume| volume["projected"].list("sources"));
    sources
        .any(|source| source.has("serviceAccountToken"))
        .then_some("a mirror pod may not use ServiceAccountToken volume projections")
}

fn refers_to_secret(spec: &Value) -> bool {
    let containers = ["containers", "initContainers", "ephemeralContainers"]
        .into_iter()
        .flat_map(|key| spec.list(key));
    let mut in_containers = containers.flat_map(|container| {
        let env = container
            .list("env")
            .iter()
            .map(|variable| variable.pointer("/valueFrom/secretKeyRef").is_some());
        let from = container.list("envFrom").iter().map(|from| from.has("secretRef"));
        env.chain(from)
    });
    let in_volume = |volume: &Value| {
        volume.has("secret")
            || ["cephfs", "rbd", "iscsi", "flexVolume", "scaleIO", "storageos"]
                .iter()
                .any(|source| volume[source].has("secretRef"))
            || volume.has("azureFile")
            || volume["csi"].has("nodePublishSecretRef")
            || volume["projected"]
                .list("sources")
                .iter()
                .any(|source| source.has("secret"))
    };
    !spec.list("imagePullSecrets").is_empty()
        || in_containers.any(|refers| refers)
        || spec.list("volumes").iter().any(in_volume)
}

fn mount_token(spec: &mut Value, rng: &mut fastrand::Rng) {
    let existing = spec
        .list("volumes")
        .iter()
        .map(|volume| volume.text("name"))
        .find(|name| name.starts_with(TOKEN_VOLUME_PREFIX))
        .map(str::to_owned);
    let has_volume = existing.is_some();
    let name = existing.unwrap_or_else(|| format!("{TOKEN_VOLUME_PREFIX}{}", metadata::suffix(rng)));
    let mut needed = false;
    for key in ["initContainers", "containers"] {
        for container in spec.list_mut(key) {
            let mut mounts = container.list("volumeMounts").to_vec();
            if mounts
                .iter()
                .any(|mount| mount.text("mountPath") == TOKEN_MOUNT_PATH)
            {
                continue;
            }
            mounts.push(json!({"name": name, "readOnly": true, "mountPath": TOKEN_MOUNT_PATH}));
            container["volumeMounts"] = Value::Array(mounts);
            needed = true;
        }
    }
    if needed && !has_volume {
        let mut volumes = spec.list("volumes").to_vec();
        volumes.push(token_volume(&name));
        spec["volumes"] = Value::Array(volumes);
    }
}

fn token_volume(name: &str) -> Value {
    let namespace = json!({"apiVersion": "v1", "fieldPath": "metadata.namespace"});
    json!({
        "name": name,
        "projected": {
            "defaultMode": 0o644,
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
            ],
        },
    })
}

/// `Priority`.
fn set_priority(pod: &mut Value) -> Result<(), String> {
    let spec = &mut pod["spec"];
    let priority = match spec.text("priorityClassName") {
        "" => 0,
        class => PRIORITY_CLASSES
            .iter()
            .find(|(name, _)| *name == class)
            .map(|(_, priority)| *priority)
            .ok_or_else(|| format!("no PriorityClass with name {class} was found"))?,
    };
    if let Some(given) = spec.number("priority").filter(|given| *given != priority) {
        return Err(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        ));
    }
    let given = spec.text("preemptionPolicy");
    if !matches!(given, "" | "PreemptLowerPriority") {
        return Err(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed PreemptLowerPriority from the given PriorityClass name"
        ));
    }
    spec["priority"] = json!(priority);
    spec["preemptionPolicy"] = json!("PreemptLowerPriority");
    Ok(())
}

/// `DefaultTolerationSeconds`.
fn tolerate_node_troubles(spec: &mut Value) {
    let mut tolerations = spec.list("tolerations").to_vec();
    let given = tolerations.clone();
    for taint in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = given.iter().any(|toleration| {
            let (key, effect) = (toleration.text("key"), toleration.text("effect"));
            (key == taint || key.is_empty()) && matches!(effect, "" | "NoExecute")
        });
        if !tolerated {
            tolerations.push(json!({
                "key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            }));
        }
    }
    if tolerations.len() > given.len() {
        spec["tolerations"] = Value::Array(tolerations);
    }
}

/// `ExtendedResourceToleration`.
fn tolerate_extended_resources(spec: &mut Value) {
    let mut resources = BTreeSet::new();
    for key in ["containers", "initContainers"] {
        for container in spec.list(key) {
            for (resource, _) in container["resources"].entries("requests") {
                if resource.contains('/') && !resource.contains("kubernetes.io/") {
                    resources.insert(resource.clone());
                }
            }
        }
    }
    let mut tolerations = spec.list("tolerations").to_vec();
    let before = tolerations.len();
    for resource in resources {
        let toleration = json!({"key": resource, "operator": "Exists", "effect": "NoSchedule"});
        if !tolerations.contains(&toleration) {
            tolerations.push(toleration);
        }
    }
    if tolerations.len() > before {
        spec["tolerations"] = Value::Array(tolerations);
    }
}

/// `RuntimeClass`: overhead and scheduling.
fn set_runtime_class(pod: &mut Value, view: &dyn View) -> Result<(), String> {
    let spec = &mut pod["spec"];
    let class = match spec["runtimeClassName"].as_str() {
        None => None,
        Some(name) => Some(
            Resource::find("node.k8s.io", "v1", "runtimeclasses")
                .and_then(|resource| view.get(resource, "", name))
                .ok_or_else(|| format!("pod rejected: RuntimeClass {name:?} not found"))?,
        ),
    };
    let Some(overhead) = class
        .as_ref()
        .and_then(|class| class.pointer("/overhead/podFixed"))
    else {
        if spec.has("overhead") {
            return Err(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".into(),
            );
        }
        return class.map_or(Ok(()), |class| set_scheduling(spec, &class["scheduling"]));
    };
    if spec.entries("overhead").next().is_some() && spec["overhead"] != *overhead {
        return Err("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".into());
    }
    spec["overhead"] = overhead.clone();
    class
        .as_ref()
        .map_or(Ok(()), |class| set_scheduling(spec, &class["scheduling"]))
}

fn set_scheduling(spec: &mut Value, scheduling: &Value) -> Result<(), String> {
    for (key, wanted) in scheduling.entries("nodeSelector") {
        if let Some(given) = spec["nodeSelector"].get(key)
            && given != wanted
        {
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {}; pod.spec.nodeSelector[{key}] = {}",
                wanted.as_str().unwrap_or_default(),
                given.as_str().unwrap_or_default()
            ));
        }
    }
    for (key, wanted) in scheduling.entries("nodeSelector") {
        spec["nodeSelector"][key] = wanted.clone();
    }
    let mut tolerations = spec.list("tolerations").to_vec();
    let before = tolerations.len();
    for toleration in scheduling.list("tolerations") {
        if !tolerations.contains(toleration) {
            tolerations.push(toleration.clone());
        }
    }
    if tolerations.len() > before {
        spec["tolerations"] = Value::Array(tolerations);
    }
    Ok(())
}

fn topology_labels(node: &str, view: &dyn View) -> Vec<(String, Value)> {
    if node.is_empty() {
        return Vec::new();
    }
    let node = Resource::find("", "v1", "nodes").and_then(|resource| view.get(resource, "", node));
    let labels = node.as_ref().map(|node| &node["metadata"]["labels"]);
    TOPOLOGY_LABELS
        .iter()
        .filter_map(|key| Some(((*key).to_owned(), labels?.get(key)?.clone())))
        .collect()
}
