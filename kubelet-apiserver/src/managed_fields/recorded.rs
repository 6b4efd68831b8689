//! Managed fields as a real API server kept them.

use std::io::Read;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::super::patch::{self, PatchType};
use super::super::resource::RESOURCES;
use super::*;

fn cases() -> Vec<Value> {
    let gz: &[u8] = include_bytes!("../../tests/data/object-patches.jsonl.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(gz)
        .read_to_string(&mut text)
        .unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// When the newest of the entries was written.
fn newest(object: &Value) -> Timestamp {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let times = entries
        .iter()
        .map(|e| e["time"].as_str().unwrap().parse().unwrap());
    times.max().unwrap()
}

#[test]
fn patches_change_owners_as_they_did() {
    let mut compared = 0;
    for case in cases() {
        let name = case["name"].as_str().unwrap();
        let kind = PatchType::from_content_type(case["content_type"].as_str().unwrap()).unwrap();
        if kind == PatchType::Apply || case["status"] != 200 {
            continue;
        }
        compared += 1;
        let resource = RESOURCES.iter().find(|r| case["plural"] == r.plural).unwrap();
        let current = &case["current"];
        let mut new = patch::patch(kind, resource, current, &case["patch"]).unwrap();
        schema::normalize(resource, &mut new);
        if case["name"] == "status-strategic-pod-ips-merge-key" {
            new["status"]["podIPs"] = json!([{"ip": new["status"]["podIP"]}]);
        }
        let subresource = case["subresource"].as_str().unwrap();
        updated(
            resource,
            Some(current),
            &mut new,
            "",
            subresource,
            newest(&case["response"]),
        );
        assert_eq!(
            new["metadata"]["managedFields"], case["response"]["metadata"]["managedFields"],
            "{name}"
        );
    }
    assert!(compared > 15, "{compared}");
}

#[test]
fn applies_come_to_what_they_came_to() {
    let mut compared = 0;
    for case in cases() {
        let name = case["name"].as_str().unwrap();
        if case["content_type"] != "application/apply-patch+yaml" {
            continue;
        }
        compared += 1;
        let resource = RESOURCES.iter().find(|r| case["plural"] == r.plural).unwrap();
        let current = Some(&case["current"]).filter(|current| !current.is_null());
        let query = case["query"].as_str().unwrap();
        let manager = query.split(['=', '&']).nth(1).unwrap();
        let force = query.ends_with("force=true");
        let response = &case["response"];
        let now = "2026-11-21T06:21:25Z".parse().unwrap();
        match apply(resource, current, &case["patch"], manager, force, "", now) {
            Ok(object) => {
                assert_eq!(
                    object["metadata"]["managedFields"], response["metadata"]["managedFields"],
                    "{name}"
                );
                assert_eq!(
                    object["metadata"]["labels"], response["metadata"]["labels"],
                    "{name}"
                );
                if current.is_some() {
                    assert_eq!(object["spec"], response["spec"], "{name}");
                }
            }
            Err(refusal) => assert_eq!(refusal.to_value(), *response, "{name}"),
        }
    }
    assert_eq!(compared, 4);
}

/// What a created object says of its owner is what its sender set and the server defaulted.
#[test]
fn a_created_pod_is_its_creators() {
    let case = &cases()[0];
    let created = &case["current"];
    let mut new = created.clone();
    let metadata = new["metadata"].as_object_mut().unwrap();
    for name in [
        "managedFields",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
    ] {
        metadata.remove(name);
    }
    new.as_object_mut().unwrap().remove("status");
    // Set by admission.
    let spec = new["spec"].as_object_mut().unwrap();
    for name in [
        "serviceAccount",
        "serviceAccountName",
        "volumes",
        "tolerations",
        "priority",
        "preemptionPolicy",
    ] {
        spec.remove(name);
    }
    spec["containers"][0]
        .as_object_mut()
        .unwrap()
        .remove("volumeMounts");
    let pods = super::super::resource::Resource::find("", "v1", "pods").unwrap();
    schema::normalize(pods, &mut new);
    updated(pods, None, &mut new, "", "", newest(created));
    assert_eq!(
        new["metadata"]["managedFields"],
        created["metadata"]["managedFields"]
    );
}
