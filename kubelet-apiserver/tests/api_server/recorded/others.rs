//! Changes that other clients made to the objects of a recording: a scheduler, a kubelet, controllers.
//!
//! If a response shows a version of an object that no recorded request made, another client made it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// A version of an object that others made.
pub(crate) struct Version {
    number: u64,
    pub(crate) path: String,
    pub(crate) object: Value,
}

/// A request that makes it.
pub(crate) struct Act {
    pub(crate) method: &'static str,
    /// The end of the path, after the object's.
    pub(crate) below: String,
    pub content_type: &'static str,
    pub(crate) body: Value,
}

/// The versions that others made, in their order.
pub(crate) fn versions(records: &[Value]) -> Vec<Version> {
    let answered: BTreeSet<u64> = records
        .iter()
        .filter(|record| record["method"] != "GET")
        .filter_map(|record| number(&record["response"]))
        .collect();
    let seen = records
        .iter()
        .flat_map(|record| record["events"].as_array().into_iter().flatten());
    let mut versions = BTreeMap::new();
    for event in seen.filter(|event| event["type"] == "MODIFIED") {
        let object = &event["object"];
        let Some(number) = number(object) else { continue };
        // An object that is being deleted was stored before it was removed.
        let ended = object["metadata"]["deletionGracePeriodSeconds"] == 0;
        if object["kind"] == "Pod" && !answered.contains(&number) && !ended {
            let meta = &object["metadata"];
            let text = |key: &str| meta[key].as_str().unwrap_or_default();
            let path = format!("/api/v1/namespaces/{}/pods/{}", text("namespace"), text("name"));
            let object = object.clone();
            versions.insert(number, Version { number, path, object });
        }
    }
    versions.into_values().collect()
}

/// How many of the versions were made before this request was answered.
pub(crate) fn due(versions: &[Version], record: &Value) -> usize {
    let at = number(&record["response"]).unwrap_or(0);
    versions.iter().take_while(|version| version.number <= at).count()
}

/// The request that changes `current` to `recorded`.
pub(crate) fn act(current: &Value, recorded: &Value) -> Option<Act> {
    if current["spec"]["nodeName"].is_null() && !recorded["spec"]["nodeName"].is_null() {
        return Some(Act {
            method: "POST",
            below: "/binding".into(),
            content_type: "application/json",
            body: json!({
                "apiVersion": "v1", "kind": "Binding",
                "metadata": {"name": recorded["metadata"]["name"]},
                "target": {"apiVersion": "v1", "kind": "Node", "name": recorded["spec"]["nodeName"]},
            }),
        });
    }
    let mut body = current.clone();
    body["status"] = recorded["status"].clone();
    let managers = recorded["metadata"]["managedFields"].as_array()?;
    let manager = managers.iter().find(|entry| entry["subresource"] == "status")?;
    (body != *current).then(|| Act {
        method: "PUT",
        below: format!(
            "/status?fieldManager={}",
            manager["manager"].as_str().unwrap_or_default()
        ),
        content_type: "application/json",
        body,
    })
}

/// The annotations that the controller manager made on an object.
pub(crate) fn annotations(response: &Value) -> Vec<Act> {
    const MANAGER: &str = "kube-controller-manager";
    let meta = &response["metadata"];
    let entries = meta["managedFields"].as_array().into_iter().flatten();
    let keys = entries
        .filter(|entry| entry["manager"] == MANAGER)
        .filter_map(|entry| entry.pointer("/fieldsV1/f:metadata/f:annotations")?.as_object())
        .flatten()
        .filter_map(|(key, _)| key.strip_prefix("f:"));
    keys.map(|key| Act {
        method: "PATCH",
        below: format!("?fieldManager={MANAGER}"),
        content_type: "application/merge-patch+json",
        body: json!({"metadata": {"annotations": {key: meta["annotations"][key]}}}),
    })
    .collect()
}

/// Whether a merge patch would change the object.
pub(crate) fn lacks(object: &Value, patch: &Value) -> bool {
    let wanted = patch["metadata"]["annotations"].as_object().into_iter().flatten();
    let mut wanted = wanted;
    wanted.any(|(key, value)| object["metadata"]["annotations"][key] != *value)
}

/// The path of the object that an answer shows.
pub(crate) fn object_path(record: &Value) -> Option<String> {
    let path = record["path"].as_str()?.split('?').next()?;
    let name = record["response"]["metadata"]["name"].as_str()?;
    let path = path.strip_suffix("/status").unwrap_or(path);
    path.ends_with(&format!("/{name}")).then(|| path.to_owned())
}

fn number(object: &Value) -> Option<u64> {
    object["metadata"]["resourceVersion"].as_str()?.parse().ok()
}
