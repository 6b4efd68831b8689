//! `/metrics/resource`: CPU, memory and swap from the summary (`resourceMetricsCollector`).

use std::cmp::Reverse;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubelet_core::stats::{ContainerStats, CpuStats, MemoryStats, PodStats, Summary, SwapStats};

use super::text::Kind::{self, Counter, Gauge};
use super::text::Number::{self, Float, Nanoseconds, Whole};
use super::text::{Text, push_label};

/// A value, and the time at which it was measured in milliseconds.
type Measured = (Number, Option<i64>);

/// A metric of each container, of the node, or of each pod.
enum Of {
    Container(fn(&ContainerStats) -> Option<Measured>),
    Node(fn(&Summary) -> Option<Measured>),
    Pod(fn(&PodStats) -> Option<Measured>),
}

/// All metrics, sorted by name.
const METRICS: [(&str, Kind, &str, Of); 11] = [
    (
        "container_cpu_usage_seconds_total",
        Counter,
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
        Of::Container(|container| cpu(&container.cpu)),
    ),
    (
        "container_memory_working_set_bytes",
        Gauge,
        "[STABLE] Current working set of the container in bytes",
        Of::Container(|container| memory(&container.memory)),
    ),
    (
        "container_start_time_seconds",
        Gauge,
        "[STABLE] Start time of the container since unix epoch in seconds",
        Of::Container(started),
    ),
    (
        "container_swap_limit_bytes",
        Gauge,
        "[ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems",
        Of::Container(|container| swap_limit(&container.swap)),
    ),
    (
        "container_swap_usage_bytes",
        Gauge,
        "[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems",
        Of::Container(|container| swap(&container.swap)),
    ),
    (
        "node_cpu_usage_seconds_total",
        Counter,
        "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
        Of::Node(|summary| cpu(&summary.node.cpu)),
    ),
    (
        "node_memory_working_set_bytes",
        Gauge,
        "[STABLE] Current working set of the node in bytes",
        Of::Node(|summary| memory(&summary.node.memory)),
    ),
    (
        "node_swap_usage_bytes",
        Gauge,
        "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems",
        Of::Node(|summary| swap(&summary.node.swap)),
    ),
    (
        "pod_cpu_usage_seconds_total",
        Counter,
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
        Of::Pod(|pod| cpu(&pod.cpu)),
    ),
    (
        "pod_memory_working_set_bytes",
        Gauge,
        "[STABLE] Current working set of the pod in bytes",
        Of::Pod(|pod| memory(&pod.memory)),
    ),
    (
        "pod_swap_usage_bytes",
        Gauge,
        "[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
        Of::Pod(|pod| swap(&pod.swap)),
    ),
];

/// Writes the metrics. Without a summary, there was an error.
pub(super) fn write(summary: Option<&Summary>) -> Vec<u8> {
    let pods: &[PodStats] = summary
        .and_then(|summary| summary.pods.as_deref())
        .unwrap_or_default();
    let mut text = Text::with_capacity(4096 + pods.len() * 2048);
    let mut containers: Vec<(&PodStats, &ContainerStats)> = pods
        .iter()
        .flat_map(|pod| {
            pod.containers
                .iter()
                .flatten()
                .map(move |container| (pod, container))
        })
        .collect();
    let key = |pod: &PodStats| (pod.pod_ref.namespace.clone(), pod.pod_ref.name.clone());
    // Of two with the same labels, e.g. of a pod with two sandboxes, the one that started last is shown: a text with the same
    // series twice is not valid.
    let latest = |start: &Option<Time>| Reverse(start.as_ref().map(|start| start.0));
    containers.sort_by_cached_key(|(pod, container)| {
        (container.name.clone(), key(pod), latest(&container.start_time))
    });
    containers.dedup_by_key(|(pod, container)| (container.name.clone(), key(pod)));
    let mut sorted: Vec<&PodStats> = pods.iter().collect();
    sorted.sort_by_cached_key(|pod| (key(pod), latest(&pod.start_time)));
    sorted.dedup_by_key(|pod| key(pod));

    let labels_of_containers: Vec<String> = containers
        .iter()
        .map(|(pod, container)| labels(Some(&container.name), pod))
        .collect();
    let labels_of_pods: Vec<String> = sorted.iter().map(|pod| labels(None, pod)).collect();
    for (name, kind, help, of) in &METRICS {
        let mut begun = false;
        let mut begin = |text: &mut Text| {
            if !std::mem::replace(&mut begun, true) {
                text.header(name, *kind, help);
            }
        };
        match of {
            Of::Container(value) => {
                for ((_, container), labels) in containers.iter().zip(&labels_of_containers) {
                    if let Some((value, at)) = value(container) {
                        begin(&mut text);
                        text.series(name, [labels], value, at);
                    }
                }
            }
            Of::Pod(value) => {
                for (pod, labels) in sorted.iter().zip(&labels_of_pods) {
                    if let Some((value, at)) = value(pod) {
                        begin(&mut text);
                        text.series(name, [labels], value, at);
                    }
                }
            }
            Of::Node(value) => {
                if let Some((value, at)) = summary.and_then(value) {
                    text.single(name, *kind, help, value, at);
                }
            }
        }
    }
    let help = "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise";
    let failed = Whole(summary.is_none().into());
    text.single("resource_scrape_error", Gauge, help, failed, None);
    text.into_bytes()
}

fn labels(container: Option<&str>, pod: &PodStats) -> String {
    let mut labels = String::new();
    if let Some(container) = container {
        push_label(&mut labels, "container", container);
        labels.push(',');
    }
    push_label(&mut labels, "namespace", &pod.pod_ref.namespace);
    push_label(&mut labels, ",pod", &pod.pod_ref.name);
    labels
}

fn cpu(cpu: &Option<CpuStats>) -> Option<Measured> {
    let cpu = cpu.as_ref()?;
    Some((Nanoseconds(cpu.usage_core_nano_seconds?), milliseconds(&cpu.time)))
}

fn memory(memory: &Option<MemoryStats>) -> Option<Measured> {
    let memory = memory.as_ref()?;
    Some((Whole(memory.working_set_bytes?), milliseconds(&memory.time)))
}

fn swap(swap: &Option<SwapStats>) -> Option<Measured> {
    let swap = swap.as_ref()?;
    Some((Whole(swap.swap_usage_bytes?), milliseconds(&swap.time)))
}

fn swap_limit(swap: &Option<SwapStats>) -> Option<Measured> {
    let swap = swap.as_ref()?;
    let limit = swap
        .swap_available_bytes?
        .saturating_add(swap.swap_usage_bytes.unwrap_or(0));
    Some((Whole(limit), milliseconds(&swap.time)))
}

/// A start before 1970 is none.
fn started(container: &ContainerStats) -> Option<Measured> {
    let started = container.start_time.as_ref()?.0;
    let seconds = started.as_nanosecond() as f64 / 1e9;
    (started.as_second() > 0).then_some((Float(seconds), None))
}

fn milliseconds(time: &Option<Time>) -> Option<i64> {
    time.as_ref().map(|time| time.0.as_millisecond())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use kubelet_core::stats::{NodeStats, PodReference};

    use super::*;

    fn series(summary: Option<&Summary>) -> Vec<String> {
        let text = String::from_utf8(write(summary)).unwrap();
        let series = text.lines().filter(|line| !line.starts_with('#'));
        series.map(str::to_owned).collect()
    }

    #[test]
    fn an_error_is_a_metric() {
        assert_eq!(series(None), ["resource_scrape_error 1"]);
        assert_eq!(series(Some(&Summary::default())), ["resource_scrape_error 0"]);
    }

    #[test]
    fn of_two_with_the_same_labels_the_later_one_is_shown() {
        let pod = |started: i64| PodStats {
            pod_ref: PodReference {
                name: "web".into(),
                namespace: "default".into(),
                uid: started.to_string(),
            },
            start_time: Some(Time(Timestamp::from_second(started).unwrap())),
            memory: Some(MemoryStats {
                working_set_bytes: Some(started.unsigned_abs()),
                ..Default::default()
            }),
            containers: Some(vec![ContainerStats {
                name: "main".into(),
                start_time: Some(Time(Timestamp::from_second(started).unwrap())),
                ..Default::default()
            }]),
            ..Default::default()
        };
        let summary = Summary {
            pods: Some(vec![pod(5), pod(7), pod(6)]),
            ..Default::default()
        };
        assert_eq!(
            series(Some(&summary)),
            [
                r#"container_start_time_seconds{container="main",namespace="default",pod="web"} 7"#,
                r#"pod_memory_working_set_bytes{namespace="default",pod="web"} 7"#,
                "resource_scrape_error 0",
            ]
        );
    }

    #[test]
    fn what_is_not_measured_is_left_out() {
        let at = |seconds| Some(Time(Timestamp::constant(seconds, 0)));
        let container = ContainerStats {
            name: "main".into(),
            start_time: at(0),
            swap: Some(SwapStats {
                time: at(5),
                swap_available_bytes: Some(10),
                swap_usage_bytes: None,
            }),
            ..Default::default()
        };
        let summary = Summary {
            node: NodeStats {
                cpu: Some(CpuStats {
                    time: at(5),
                    usage_core_nano_seconds: Some(1_500_000_000),
                    ..Default::default()
                }),
                ..Default::default()
            },
            pods: Some(vec![PodStats {
                pod_ref: PodReference {
                    name: "web".into(),
                    namespace: "default".into(),
                    uid: String::new(),
                },
                containers: Some(vec![container]),
                ..Default::default()
            }]),
        };
        assert_eq!(
            series(Some(&summary)),
            [
                r#"container_swap_limit_bytes{container="main",namespace="default",pod="web"} 10 5000"#,
                "node_cpu_usage_seconds_total 1.5 5000",
                "resource_scrape_error 0",
            ]
        );
    }
}
