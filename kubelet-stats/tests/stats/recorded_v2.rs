//! The files of a node with cgroup v2 and systemd in, the kubelet's numbers out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kubelet_stats::metrics::cadvisor_text;
use kubelet_stats::source::CgroupsV2;
use kubelet_stats::{Collector, NodeSummary, SummaryConfig};
use serde_json::Value;

use crate::recorded::Recorded;

/// What is not in the recorded files: times of files, file systems, names of disks, what the kubelet takes from network
/// namespaces; and limits of processes, which are shown for containers with a known name only.
const NOT_RECORDED: [&str; 6] = [
    "container_ulimits_soft",
    "container_start_time_seconds",
    "container_last_seen",
    "container_fs_",
    "container_blkio_",
    "container_network_",
];

fn collector(recorded: &Recorded) -> Collector {
    let mut config = recorded.tree.collector(&["/kubepods.slice"]).config().clone();
    let (cgroups, proc) = (recorded.tree.path("sys/fs/cgroup"), recorded.tree.path("proc"));
    config.cgroups = Arc::new(CgroupsV2::new(cgroups, &proc, None));
    Collector::new(config)
}

/// Without what moves: times, averages of stalls, rates, and the numbers of the node.
fn at_rest(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for moves in ["time", "avg10", "avg60", "avg300", "usageNanoCores"] {
                fields.remove(moves);
            }
            fields.values_mut().for_each(at_rest);
        }
        Value::Array(values) => {
            values.iter_mut().for_each(at_rest);
            let name = |value: &Value| {
                let name = value.get("name").or_else(|| value.pointer("/podRef/name"));
                name.map(Value::to_string)
            };
            values.sort_by_key(name);
        }
        _ => {}
    }
}

#[tokio::test(start_paused = true)]
async fn the_summary_of_cpu_and_memory() {
    let recorded = Recorded::v2();
    let answer = recorded.answer("/stats/summary?only_cpu_and_memory=true");
    let mut theirs: Value = serde_json::from_str(answer).unwrap();
    let mut config = SummaryConfig::new("vmnode");
    config.runtime = Some(Arc::new(recorded.runtime()));
    config.pods_cgroup = Some("/kubepods.slice".to_owned());
    let mut named = collector(&recorded).config().clone();
    named.runtime = config.runtime.clone();
    let collector = Collector::new(named);
    // At the first reading of a container it is not known whether it runs: it has no rate.
    collector.snapshot(Duration::ZERO).await.unwrap();
    tokio::time::advance(Duration::from_secs(15)).await;
    collector.snapshot(Duration::ZERO).await.unwrap();
    let summary = NodeSummary::new(collector, config);
    let summary = summary.cpu_and_memory_summary().await.unwrap();
    let mut ours = serde_json::to_value(summary).unwrap();
    for summary in [&mut theirs, &mut ours] {
        at_rest(summary);
        let node = summary["node"].as_object_mut().unwrap();
        node.retain(|field, _| field == "nodeName" || field == "systemContainers");
        // The time of a folder.
        let pods = node["systemContainers"][0].as_object_mut().unwrap();
        pods.remove("startTime");
    }
    let pods = theirs["pods"].as_array_mut().unwrap().iter_mut();
    let (mut compared, mut pairs) = (0, pods.zip(ours["pods"].as_array_mut().unwrap()));
    assert!(pairs.by_ref().all(|(theirs, ours)| {
        let of = |pod: &mut Value| std::mem::take(pod["containers"].as_array_mut().unwrap());
        // Of containers that were created while the runtime was busy, the kubelet did not know the cgroup: no stalls.
        let known = of(theirs).into_iter().zip(of(ours));
        let known: Vec<_> = known
            .filter(|(theirs, _)| theirs["cpu"].get("psi").is_some())
            .collect();
        compared += known.len();
        known.into_iter().all(|(theirs, ours)| theirs == ours)
    }));
    drop(pairs);
    assert!(compared >= 3, "{compared}");
    assert_eq!(ours["pods"].as_array().unwrap().len(), 4);
    assert_eq!(
        serde_json::to_string_pretty(&ours).unwrap(),
        serde_json::to_string_pretty(&theirs).unwrap()
    );
}

/// The series by name, cgroup and further labels. Those of pods and containers are not compared: the kubelet knew no names
/// of containers that were created while the runtime was busy.
fn series(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| line.starts_with("container_"));
    lines
        .filter(|line| line.contains("id=\"/kubepods.slice"))
        .filter(|line| !NOT_RECORDED.iter().any(|prefix| line.starts_with(prefix)))
        .map(|line| {
            let (name, rest) = line.split_once('{').unwrap();
            let (labels, value) = rest.split_once("} ").unwrap();
            let of_runtime = ["container=", "image=", "name=", "namespace=", "pod="];
            let labels: Vec<&str> = labels
                .split(',')
                .filter(|label| !of_runtime.iter().any(|name| label.starts_with(name)))
                .collect();
            let value = value.split(' ').next().unwrap();
            (format!("{name}{{{}}}", labels.join(",")), value.parse().unwrap())
        })
        .collect()
}

#[tokio::test]
async fn the_metrics_of_cgroups() {
    let recorded = Recorded::v2();
    let collector = collector(&recorded);
    let snapshot = collector.snapshot(Duration::ZERO).await.unwrap();
    assert!(!snapshot.incomplete);
    let text = cadvisor_text(&snapshot, collector.config().cgroups.has_psi(), Timestamp::now());
    let (ours, theirs) = (
        series(std::str::from_utf8(&text).unwrap()),
        series(recorded.answer("/metrics/cadvisor")),
    );
    let text = |series: BTreeMap<String, f64>| -> Vec<String> {
        series
            .into_iter()
            .map(|(name, value)| format!("{name} {value}"))
            .collect()
    };
    let (ours, theirs) = (text(ours), text(theirs));
    assert!(theirs.len() > 700, "{}", theirs.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.len(), theirs.len());
}
