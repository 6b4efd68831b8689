//! One scrape of a node.

use std::collections::BTreeMap;

use bytes::Bytes;
use k8s_openapi::jiff::Timestamp;

use crate::nodes;
use crate::server::Shared;

/// The path of a node's server.
const PATH: &str = "/metrics/resource";
const NANOSECONDS: f64 = 1e9;

/// What is known of a node or of a container at one time (`MetricsPoint`).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Point {
    /// When the container started, in nanoseconds; 0 for a node.
    pub(super) started: i128,
    /// When it was measured, in nanoseconds.
    pub(super) measured: i128,
    /// The CPU time since the start, in nanoseconds.
    pub(super) cpu: u64,
    /// The working set, in bytes.
    pub(super) memory: u64,
    /// The swap in use, in bytes.
    pub(super) swap: u64,
}

/// A pod's namespace and name.
pub(super) type PodName = (String, String);
/// Points by the name of the container.
pub(super) type Containers = BTreeMap<String, Point>;

/// The points of a node and of its containers.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Batch {
    pub(super) node: Option<Point>,
    pub(super) pods: BTreeMap<PodName, Containers>,
}

/// Asks a node, as `nodes/proxy` does.
///
/// # Errors
///
/// The node does not exist or does not answer.
pub(super) async fn fetch(shared: &Shared, node: &str) -> Result<Bytes, String> {
    nodes::get(shared, node, PATH).await
}

/// Reads the text. A series without a time was measured at `now`. A node or pod without CPU time or memory is left out,
/// because it is just starting.
pub(super) fn parse(text: &[u8], now: Timestamp) -> Batch {
    let text = String::from_utf8_lossy(text);
    let mut node = Point::default();
    let mut pods: BTreeMap<PodName, Containers> = BTreeMap::new();
    for sample in text.lines().filter_map(|line| Sample::of(line, now)) {
        let point = match sample.pod_and_container() {
            Some((pod, container)) => pods.entry(pod).or_default().entry(container).or_default(),
            None => &mut node,
        };
        match sample.name {
            "node_cpu_usage_seconds_total" | "container_cpu_usage_seconds_total" => {
                point.cpu = (sample.value * NANOSECONDS) as u64;
            }
            "node_memory_working_set_bytes" | "container_memory_working_set_bytes" => {
                point.memory = sample.value as u64;
            }
            "node_swap_usage_bytes" | "container_swap_usage_bytes" => point.swap = sample.value as u64,
            "container_start_time_seconds" => {
                point.started = (sample.value * NANOSECONDS) as i128;
                continue;
            }
            _ => continue,
        }
        point.measured = sample.measured;
    }
    let is_complete = |point: &Point| point.cpu != 0 && point.memory != 0;
    pods.retain(|_, containers| {
        // Of a container that is not running there is no more than the start.
        containers.retain(|_, point| point.measured != 0);
        !containers.is_empty() && containers.values().all(is_complete)
    });
    Batch {
        node: Some(node).filter(is_complete),
        pods,
    }
}

/// One line of the text.
struct Sample<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
    measured: i128,
}

impl<'a> Sample<'a> {
    fn of(line: &'a str, now: Timestamp) -> Option<Self> {
        let end = line.find(['{', ' ']).filter(|_| !line.starts_with('#'))?;
        let (name, rest) = line.split_at(end);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => rest.rsplit_once('}')?,
            None => ("", rest),
        };
        let mut numbers = rest.split_ascii_whitespace();
        let value = numbers.next()?.parse().ok()?;
        let milliseconds: Option<i64> = numbers.next().and_then(|time| time.parse().ok());
        let measured = milliseconds.map_or(now.as_nanosecond(), |time| i128::from(time) * 1_000_000);
        Some(Self {
            name,
            labels,
            value,
            measured,
        })
    }

    /// `None` for a series of the node. Names need no escapes.
    fn pod_and_container(&self) -> Option<(PodName, String)> {
        self.name.starts_with("container_").then_some(())?;
        let label = |name: &str| {
            let mut labels = self.labels.split(',');
            let value = labels.find_map(|label| label.strip_prefix(name)?.strip_prefix("=\""))?;
            value.strip_suffix('"').map(str::to_owned)
        };
        Some(((label("namespace")?, label("pod")?), label("container")?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_a_node_writes() {
        let text = "# HELP node_cpu_usage_seconds_total [STABLE] Cumulative cpu time\n\
            # TYPE node_cpu_usage_seconds_total counter\n\
            container_cpu_usage_seconds_total{container=\"main\",namespace=\"default\",pod=\"web\"} 1.5 1767225600500\n\
            container_memory_working_set_bytes{container=\"main\",namespace=\"default\",pod=\"web\"} 4096 1767225600500\n\
            container_start_time_seconds{container=\"main\",namespace=\"default\",pod=\"web\"} 1.767225590e+09\n\
            container_cpu_usage_seconds_total{container=\"main\",namespace=\"default\",pod=\"new\"} 0 1767225600500\n\
            container_memory_working_set_bytes{container=\"main\",namespace=\"default\",pod=\"new\"} 4096 1767225600500\n\
            container_start_time_seconds{container=\"main\",namespace=\"default\",pod=\"ended\"} 1.767225590e+09\n\
            node_cpu_usage_seconds_total 20.25 1767225601000\n\
            node_memory_working_set_bytes 1.048576e+06\n\
            pod_cpu_usage_seconds_total{namespace=\"default\",pod=\"web\"} 1.5 1767225600500\n\
            resource_scrape_error 0\n";
        let now = Timestamp::constant(1_767_225_602, 0);
        let container = Point {
            started: 1_767_225_590_000_000_000,
            measured: 1_767_225_600_500_000_000,
            cpu: 1_500_000_000,
            memory: 4096,
            swap: 0,
        };
        let web = ("default".to_owned(), "web".to_owned());
        let wanted = Batch {
            node: Some(Point {
                started: 0,
                measured: now.as_nanosecond(),
                cpu: 20_250_000_000,
                memory: 1_048_576,
                swap: 0,
            }),
            pods: BTreeMap::from([(web, BTreeMap::from([("main".to_owned(), container)]))]),
        };
        assert_eq!(parse(text.as_bytes(), now), wanted);
        assert_eq!(parse(b"nonsense } 1\n{ x", now), Batch::default());
    }
}
