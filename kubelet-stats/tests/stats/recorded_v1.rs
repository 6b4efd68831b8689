//! The files of a node with cgroup v1 in, the kubelet's numbers out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kubelet_stats::{NodeSummary, Reading, SummaryConfig};
use serde_json::Value;

use crate::recorded::Recorded;

/// The times of readings are not in the files. What moves between two reads is not at rest.
fn at_rest(mut summary: Value) -> Value {
    let node = summary["node"].as_object_mut().unwrap();
    node.remove("startTime");
    let remove_times = |value: &mut Value| {
        for part in ["cpu", "memory", "swap"] {
            if let Some(part) = value.get_mut(part).and_then(Value::as_object_mut) {
                part.remove("time");
            }
        }
    };
    for container in node["systemContainers"].as_array_mut().unwrap() {
        remove_times(container);
        container.as_object_mut().unwrap().remove("startTime");
    }
    for part in ["cpu", "memory", "swap"] {
        let fields = node[part].as_object_mut().unwrap();
        for value in fields.values_mut() {
            if value.is_u64() {
                *value = Value::from("moves");
            }
        }
        fields.remove("time");
    }
    let pods = summary["pods"].as_array_mut().unwrap();
    for pod in &mut *pods {
        remove_times(pod);
        for container in pod["containers"].as_array_mut().unwrap() {
            // The other times are the runtime's.
            container["swap"].as_object_mut().unwrap().remove("time");
        }
        let name = |container: &Value| container["name"].as_str().unwrap().to_owned();
        pod["containers"].as_array_mut().unwrap().sort_by_key(name);
    }
    pods.sort_by_key(|pod| pod["podRef"]["name"].as_str().unwrap().to_owned());
    summary
}

/// cAdvisor read the cgroups up to 12 s before the files were recorded. In that time the kernel freed page cache of
/// `st-guaranteed`, and nothing else changed.
const FREED: u64 = 100_000;

/// `ours`, with the numbers of `theirs` where page cache was freed.
fn page_cache_of(mut ours: Value, theirs: &Value) -> Value {
    for place in ["/node/systemContainers/0/memory", "/pods/0/memory"] {
        for field in ["availableBytes", "usageBytes", "workingSetBytes"] {
            let pointer = format!("{place}/{field}");
            let theirs = theirs.pointer(&pointer).unwrap();
            let ours = ours.pointer_mut(&pointer).unwrap();
            assert!(
                ours.as_u64().unwrap().abs_diff(theirs.as_u64().unwrap()) < FREED,
                "{pointer}"
            );
            *ours = theirs.clone();
        }
    }
    ours
}

#[tokio::test]
async fn the_summary_of_cpu_and_memory() {
    let recorded = Recorded::v1();
    let theirs = serde_json::from_str(recorded.answer("/stats/summary?only_cpu_and_memory=true")).unwrap();
    let theirs = at_rest(theirs);
    // A reading for the summary contains all that it shows.
    for with_all_details in [false, true] {
        let collector = recorded.tree.collector(&["/kubepods"]);
        if with_all_details {
            collector.snapshot(Duration::ZERO).await.unwrap();
        }
        let mut config = SummaryConfig::new("node1");
        // The kubelet did not find out to which containers the cgroups belong: its collector had no runtime.
        config.runtime = Some(Arc::new(recorded.runtime()));
        let summary = NodeSummary::new(collector, config)
            .cpu_and_memory_summary()
            .await
            .unwrap();
        let ours = at_rest(serde_json::to_value(summary).unwrap());
        let ours = page_cache_of(ours, &theirs);
        assert_eq!(
            serde_json::to_string_pretty(&ours).unwrap(),
            serde_json::to_string_pretty(&theirs).unwrap()
        );
    }
}

/// A metric of cAdvisor, and the number of the reading that it shows.
type Metric = (&'static str, fn(&Reading) -> f64);

const METRICS: [Metric; 23] = [
    ("container_cpu_usage_seconds_total", |r| {
        r.usage.cpu.total as f64 / 1e9
    }),
    ("container_cpu_user_seconds_total", |r| {
        r.usage.cpu.user as f64 / 1e9
    }),
    ("container_cpu_system_seconds_total", |r| {
        r.usage.cpu.system as f64 / 1e9
    }),
    ("container_cpu_cfs_periods_total", |r| {
        r.usage.cpu.cfs.periods as f64
    }),
    ("container_cpu_cfs_throttled_periods_total", |r| {
        r.usage.cpu.cfs.throttled_periods as f64
    }),
    ("container_cpu_cfs_throttled_seconds_total", |r| {
        r.usage.cpu.cfs.throttled_time as f64 / 1e9
    }),
    ("container_memory_cache", |r| r.usage.memory.cache as f64),
    ("container_memory_rss", |r| r.usage.memory.rss as f64),
    ("container_memory_kernel_usage", |r| r.usage.memory.kernel as f64),
    ("container_memory_mapped_file", |r| {
        r.usage.memory.mapped_file as f64
    }),
    ("container_memory_swap", |r| r.usage.memory.swap as f64),
    ("container_memory_failcnt", |r| r.usage.memory.failcnt as f64),
    ("container_memory_usage_bytes", |r| r.usage.memory.usage as f64),
    ("container_memory_max_usage_bytes", |r| {
        r.usage.memory.max_usage as f64
    }),
    ("container_memory_working_set_bytes", |r| {
        r.usage.memory.working_set as f64
    }),
    ("container_memory_total_active_file_bytes", |r| {
        r.usage.memory.total_active_file as f64
    }),
    ("container_memory_total_inactive_file_bytes", |r| {
        r.usage.memory.total_inactive_file as f64
    }),
    ("container_processes", |r| r.usage.processes.processes as f64),
    ("container_threads", |r| r.usage.processes.threads as f64),
    ("container_threads_max", |r| r.usage.processes.threads_max as f64),
    ("container_spec_cpu_shares", |r| r.spec.cpu.unwrap().shares as f64),
    ("container_spec_cpu_period", |r| r.spec.cpu.unwrap().period as f64),
    ("container_file_descriptors", |r| {
        r.usage.processes.file_descriptors as f64
    }),
];

/// The metrics that contain page cache.
const PAGE_CACHE: [&str; 5] = [
    "container_memory_cache",
    "container_memory_total_active_file_bytes",
    "container_memory_total_inactive_file_bytes",
    "container_memory_usage_bytes",
    "container_memory_working_set_bytes",
];

#[tokio::test]
async fn the_readings_of_cgroups() {
    let recorded = Recorded::v1();
    let collector = recorded.tree.collector(&["/kubepods"]);
    let snapshot = collector.snapshot(Duration::ZERO).await.unwrap();
    assert!(!snapshot.incomplete);
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    let mut compared = 0;
    for line in recorded
        .answer("/metrics/cadvisor")
        .lines()
        .filter(|line| line.starts_with("container_"))
    {
        let Some((metric, rest)) = line.split_once('{') else {
            continue;
        };
        let Some(id) = rest
            .split_once("id=\"")
            .and_then(|(_, rest)| rest.split_once('"'))
        else {
            continue;
        };
        // The root moves.
        if id.0 == "/" {
            continue;
        }
        *names.entry(id.0).or_default() += 1;
        let Some((_, of)) = METRICS.iter().find(|(name, _)| *name == metric) else {
            continue;
        };
        let value: f64 = rest
            .split_once("} ")
            .unwrap()
            .1
            .split(' ')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        let reading = snapshot
            .cgroup(id.0)
            .unwrap_or_else(|| panic!("no reading of {}", id.0));
        let freed = (id.0 == "/kubepods" || id.0.contains("podd75a4a3a")) && PAGE_CACHE.contains(&metric);
        match freed {
            true => assert!((of(reading) - value).abs() < FREED as f64, "{line}"),
            false => assert_eq!(of(reading), value, "{line}"),
        }
        compared += 1;
    }
    assert_eq!(
        snapshot.cgroups.len() - 1,
        names.len(),
        "no more cgroups than cAdvisor shows"
    );
    assert!(compared > 200, "{compared}");
    // The machine.
    let machine = &snapshot.machine;
    assert_eq!((machine.physical_cores, machine.sockets), (2, 1));
    assert_eq!(machine.memory_capacity, 25_276_510_208);
    assert_eq!(machine.swap_capacity, 0);
    assert_eq!(machine.machine_id, "00000000000000000000000000000001");
    assert_eq!(machine.boot_id, "00000000-0000-0000-0000-000000000002");
    let root = snapshot.cgroup("/").unwrap();
    assert_eq!(root.usage.processes.ulimits[0].soft, 32768);
    assert_eq!((root.usage.processes.threads, root.spec.threads_max), (0, None));
    let spec = root.spec.memory.unwrap();
    assert_eq!((spec.limit, spec.swap_limit), (25_276_510_208, 0));
}
