//! The last two points of each node and container, and the usage between them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::scrape::{Batch, Containers, PodName, Point};

/// A container that has run for less time has no CPU usage since its start (`freshContainerMinMetricsResolution`).
const FRESH_CONTAINER_MIN: Duration = Duration::from_secs(10);

/// The last two points of everything (`storage.storage`).
#[derive(Debug, Default)]
pub(super) struct Points {
    nodes: BTreeMap<String, Pair>,
    pods: BTreeMap<PodName, BTreeMap<String, Pair>>,
}

/// The last point, and the one before, if it is of the same life of the container.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Pair {
    last: Point,
    previous: Option<Point>,
}

/// The usage of a node or container in a window (`resourceUsage`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Usage {
    /// Nanocores.
    pub(super) cpu: u64,
    /// Bytes.
    pub(super) memory: u64,
    /// Bytes.
    pub(super) swap: u64,
    /// The end of the window, in nanoseconds.
    pub(super) measured: i128,
    /// The length of the window.
    pub(super) window: Duration,
}

impl Points {
    /// Adds what the nodes answered. Whatever is not in it is forgotten. If two nodes report the same pod, the first counts.
    pub(super) fn store(&mut self, batches: impl Iterator<Item = (String, Batch)>, resolution: Duration) {
        let (mut nodes, mut pods) = (BTreeMap::new(), BTreeMap::new());
        for (node, batch) in batches {
            if let Some(point) = batch.node {
                let known = self.nodes.get(&node).copied();
                nodes.insert(node, Pair::moved(known, point));
            }
            for (pod, containers) in batch.pods {
                let known = self.pods.get(&pod);
                let moved = || moved(known, containers, resolution);
                pods.entry(pod.clone()).or_insert_with(moved);
            }
        }
        *self = Points { nodes, pods };
    }

    pub(super) fn node(&self, name: &str) -> Option<Usage> {
        self.nodes.get(name)?.usage()
    }

    /// The usage of each container. `None`, if one is not known yet.
    pub(super) fn pod(&self, namespace: &str, name: &str) -> Option<Vec<(&str, Usage)>> {
        let pod = self.pods.get(&(namespace.to_owned(), name.to_owned()))?;
        if pod.values().any(|pair| pair.previous.is_none()) {
            return None;
        }
        let usages = pod
            .iter()
            .filter_map(|(name, pair)| Some((name.as_str(), pair.usage()?)));
        Some(usages.collect())
    }
}

fn moved(
    known: Option<&BTreeMap<String, Pair>>,
    containers: Containers,
    resolution: Duration,
) -> BTreeMap<String, Pair> {
    let pairs = containers.into_iter().map(|(name, point)| {
        let since_start = nanoseconds(point.measured - point.started);
        let pair = if (FRESH_CONTAINER_MIN..resolution).contains(&since_start) {
            let start = Point {
                measured: point.started,
                cpu: 0,
                ..point
            };
            Pair {
                last: point,
                previous: Some(start),
            }
        } else {
            let known = known.and_then(|known| known.get(&name)).copied();
            // A container that was restarted has nothing in common with the one before.
            Pair::moved(known.filter(|known| point.started < known.last.measured), point)
        };
        (name, pair)
    });
    pairs.collect()
}

impl Pair {
    fn moved(known: Option<Pair>, point: Point) -> Self {
        let previous = known.and_then(|known| {
            if point.measured > known.last.measured {
                Some(known.last)
            } else {
                known
                    .previous
                    .filter(|previous| previous.measured < point.measured)
            }
        });
        Self {
            last: point,
            previous,
        }
    }

    /// `None` without a point before, and if the start or the CPU time went back.
    fn usage(&self) -> Option<Usage> {
        let (last, previous) = (self.last, self.previous?);
        if last.started < previous.started {
            return None;
        }
        let cpu = last.cpu.checked_sub(previous.cpu)?;
        let window = nanoseconds(last.measured - previous.measured);
        Some(Usage {
            cpu: (cpu as f64 / window.as_secs_f64()) as u64,
            memory: last.memory,
            swap: last.swap,
            measured: last.measured,
            window,
        })
    }
}

fn nanoseconds(difference: i128) -> Duration {
    Duration::from_nanos(u64::try_from(difference).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i128 = 1_000_000_000;

    /// Scrapes of one container: started, measured (seconds), CPU (seconds). The usage after the last: nanocores, window.
    #[track_caller]
    fn check(scrapes: &[(i128, i128, u64)], usage: Option<(u64, u64)>) {
        let mut points = Points::default();
        for (started, measured, cpu) in scrapes {
            let point = Point {
                started: started * SECOND,
                measured: measured * SECOND,
                cpu: cpu * 1_000_000_000,
                memory: 1,
                swap: 0,
            };
            let pod = ("default".to_owned(), "web".to_owned());
            let batch = Batch {
                node: None,
                pods: BTreeMap::from([(pod, BTreeMap::from([("main".to_owned(), point)]))]),
            };
            points.store([("one".to_owned(), batch)].into_iter(), Duration::from_secs(15));
        }
        let found = points.pod("default", "web");
        let found = found.and_then(|all| all.first().map(|(_, usage)| (usage.cpu, usage.window.as_secs())));
        assert_eq!(found, usage, "{scrapes:?}");
    }

    #[test]
    fn compute_rates_as_metrics_server_does() {
        check(&[], None);
        check(&[(100, 200, 5)], None);
        check(&[(100, 200, 5), (100, 210, 10)], Some((500_000_000, 10)));
        // The node had nothing new.
        check(
            &[(100, 200, 5), (100, 210, 10), (100, 210, 10)],
            Some((500_000_000, 10)),
        );
        check(&[(100, 200, 5), (100, 200, 5)], None);
        check(&[(100, 200, 5), (100, 190, 5)], None);
        // The container was restarted.
        check(&[(100, 200, 5), (205, 210, 1)], None);
        check(
            &[(100, 200, 5), (205, 210, 1), (205, 225, 4)],
            Some((200_000_000, 15)),
        );
        // It is fresh, so the usage is that since its start.
        check(&[(100, 109, 5)], None);
        check(&[(100, 110, 5)], Some((500_000_000, 10)));
        check(&[(100, 115, 5)], None);
        // The counter went back.
        check(&[(100, 200, 5), (100, 210, 4)], None);
    }

    #[test]
    fn forget_what_is_not_reported() {
        let mut points = Points::default();
        let node = |measured| Batch {
            node: Some(Point {
                measured: measured * SECOND,
                cpu: 1,
                memory: 1,
                ..Point::default()
            }),
            ..Batch::default()
        };
        let mut store = |batch: Option<Batch>| {
            let batches = batch.map(|batch| ("one".to_owned(), batch));
            points.store(batches.into_iter(), Duration::from_secs(15));
            points.node("one").is_some()
        };
        assert!(!store(Some(node(1))));
        assert!(store(Some(node(2))));
        assert!(!store(None));
        assert!(!store(Some(node(3))));
        assert!(store(Some(node(4))));
    }
}
