//! Patches as a real API server applied them.

use std::io::Read;

use serde_json::{Value, json};

use super::super::resource::{RESOURCES, Resource};
use super::*;

fn lines(gz: &[u8]) -> Vec<Value> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(gz)
        .read_to_string(&mut text)
        .unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn pods() -> &'static Resource {
    Resource::find("", "v1", "pods").unwrap()
}

/// The status patches of kubelets, in order, lead through the statuses that a watch saw.
#[test]
fn status_patches_lead_through_the_watched_history() {
    let recorded = lines(include_bytes!("../../tests/data/pod-status-patches.jsonl.gz"));
    let mut applied = 0;
    for pod in &recorded {
        let history = pod["history"].as_array().unwrap();
        let patches = pod["patches"].as_array().unwrap();
        let mut object = json!({"status": first(&history[0])});
        let mut seen = Vec::new();
        seen.push(object["status"].clone());
        for status in patches {
            object = patch(
                PatchType::StrategicMerge,
                pods(),
                &object,
                &json!({"status": status}),
            )
            .unwrap();
            schema::normalize(pods(), &mut object);
            applied += 1;
            if seen.last() != Some(&object["status"]) {
                seen.push(object["status"].clone());
            }
        }
        // A watch may begin late.
        assert!(seen.len() >= history.len(), "{}", pod["name"]);
        assert_eq!(&seen[seen.len() - history.len()..], history, "{}", pod["name"]);
    }
    assert!(applied > 300, "{applied}");
}

/// The status of a pod that was scheduled, before its kubelet's first patch.
fn first(after: &Value) -> Value {
    let mut conditions = after["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|condition| condition["type"] == "PodScheduled");
    for condition in &mut conditions {
        condition.as_object_mut().unwrap().remove("observedGeneration");
    }
    let mut status = json!({"phase": "Pending", "qosClass": after["qosClass"]});
    if !conditions.is_empty() {
        status["conditions"] = json!(conditions);
    }
    status
}

/// Patches of every type make of an object what they made of it there, but for what other parts of the server do.
#[test]
fn objects_become_what_they_became() {
    let recorded = lines(include_bytes!("../../tests/data/object-patches.jsonl.gz"));
    let mut compared = 0;
    for case in &recorded {
        let name = case["name"].as_str().unwrap();
        let kind = PatchType::from_content_type(case["content_type"].as_str().unwrap()).unwrap();
        if kind == PatchType::Apply {
            continue;
        }
        let resource = RESOURCES.iter().find(|r| case["plural"] == r.plural).unwrap();
        compared += 1;
        let patched = match patch(kind, resource, &case["current"], &case["patch"]) {
            Ok(patched) => patched,
            Err(refusal) => {
                assert_eq!(refusal.to_value(), case["response"], "{name}");
                continue;
            }
        };
        assert_eq!(case["status"], 200, "{name}");
        let comparable = |object: &Value| {
            let mut object = object.clone();
            schema::normalize(resource, &mut object);
            let metadata = object["metadata"].as_object_mut().unwrap();
            metadata.remove("managedFields");
            metadata.remove("resourceVersion");
            object
        };
        let mut patched = comparable(&patched);
        // The kind's strategy takes back what the sub-resource cannot change.
        if resource.plural == "pods" {
            let other = if case["subresource"] == "status" {
                "spec"
            } else {
                "status"
            };
            patched[other] = case["current"][other].clone();
        }
        // `podIP` rules over `podIPs`; that is the decoder's.
        let ip = patched.pointer("/status/podIP").cloned();
        if let (Some(ip), Some(ips)) = (ip, patched.pointer_mut("/status/podIPs"))
            && ips[0]["ip"] != ip
        {
            *ips = json!([{"ip": ip}]);
        }
        assert_eq!(patched, comparable(&case["response"]), "{name}");
    }
    assert!(compared > 15, "{compared}");
}
