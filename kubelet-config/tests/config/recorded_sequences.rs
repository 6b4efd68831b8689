//! The merger held to what the kubelet's does on the same sequences.
use std::io::Read;
use std::sync::Arc;

use flate2::read::GzDecoder;
use k8s_openapi::api::core::v1::Pod;
use kubelet_config::{PodConfigNotificationMode, PodOperation, PodStorage, SourceUpdate};
use kubelet_core::{Clock, LogEvents, PodExt};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Case {
    case: u64,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    source: String,
    set: Option<Vec<Pod>>,
    emitted: Vec<Emitted>,
}

#[derive(Deserialize, Debug, PartialEq)]
struct Emitted {
    op: String,
    source: String,
    pods: Vec<Value>,
}

#[test]
fn merges_as_recorded() {
    let packed: &[u8] = include_bytes!("../data/pod-storage.jsonl.gz");
    let mut text = String::new();
    GzDecoder::new(packed).read_to_string(&mut text).unwrap();
    let mut cases = 0;
    for line in text.lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        replay(case);
        cases += 1;
    }
    assert_eq!(cases, 800);
}

fn replay(case: Case) {
    let mode = PodConfigNotificationMode::Incremental;
    let mut storage = PodStorage::new(mode, Arc::new(LogEvents), Clock::system());
    for (index, step) in case.steps.into_iter().enumerate() {
        let told = step.set.unwrap_or_default().into_iter().map(Arc::new).collect();
        let updates = storage.merge(&step.source, SourceUpdate::Snapshot(told));
        let emitted: Vec<_> = updates
            .iter()
            .map(|update| {
                sorted_if_removed(Emitted {
                    op: name(update.op).into(),
                    source: update.source.to_string(),
                    pods: update.pods.iter().map(|pod| picture(pod)).collect(),
                })
            })
            .collect();
        let expected: Vec<_> = step.emitted.into_iter().map(sorted_if_removed).collect();
        assert_eq!(emitted, expected, "case {} step {index}", case.case);
    }
}

/// The reference finds the removed pods in the order of a Go map, which is none.
fn sorted_if_removed(mut emitted: Emitted) -> Emitted {
    if emitted.op == "REMOVE" {
        emitted.pods.sort_by_key(|pod| pod["uid"].to_string());
    }
    emitted
}

fn name(op: PodOperation) -> &'static str {
    match op {
        PodOperation::Set => "SET",
        PodOperation::Add => "ADD",
        PodOperation::Delete => "DELETE",
        PodOperation::Remove => "REMOVE",
        PodOperation::Update => "UPDATE",
        PodOperation::Reconcile => "RECONCILE",
    }
}

fn picture(pod: &Pod) -> Value {
    let mut annotations = pod.metadata.annotations.clone().unwrap();
    if let Some(seen) = annotations.get_mut("kubernetes.io/config.seen") {
        // What a source says of this is replaced by a time.
        if seen.parse::<k8s_openapi::jiff::Timestamp>().is_ok() {
            *seen = "<time>".into();
        }
    }
    let status = pod.status.as_ref();
    json!({
        "annotations": annotations,
        "deleting": pod.is_deleting(),
        "image": pod.spec.as_ref().unwrap().containers[0].image,
        "labels": pod.metadata.labels,
        "phase": status.and_then(|status| status.phase.as_deref()).unwrap_or_default(),
        "resourceVersion": pod.metadata.resource_version.as_deref().unwrap_or_default(),
        "uid": pod.uid_str(),
    })
}
