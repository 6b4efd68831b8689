//! The speed of the node agent with pods on a real containerd, compared with the same CRI calls made by hand.
//!
//! `cargo bench -p benches --bench agent_speed` needs root and containerd, and prints a message if they are missing.
//! It takes ten minutes.
//!
//! The agent is built by `kubelet-agent`, as the example `node-agent` is, with an API server in memory over loopback. The agent and
//! the calls by hand alternate, each with its own containerd. Pods have one busybox container on the host's network
//! and no volumes, as those by hand. Containers ignore SIGTERM. The kubelet gives each container at least 2 s to end,
//! so the calls by hand do the same. With containerd 1.6 or older the agent relists; with 2 it uses events.
//!
//! | measured | limit |
//! |---|---|
//! | a pod, created in the API until it is `Running` there | 1.6 × sandbox, create and start by hand |
//! | a pod, deleted in the API with a grace of 1 s until it is gone there | 200 ms more than the stop by hand |
//! | 80 pods at once, until all are `Running` | 1.15 × the same by hand |
//! | 110 pods at once, deleted until all are gone | 1.5 × stopping and removing them by hand |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a bench"
)]

#[path = "../by_hand.rs"]
mod by_hand;
mod cluster;
#[path = "../member.rs"]
mod member;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kubelet_cri::{CriClient, RuntimeService, v1};
use kubelet_testing::Containerd;

use crate::by_hand::{Made, calls_of_each, remove, remove_all};
use crate::cluster::Cluster;

const SINGLE_RUNS: usize = 15;
const MANY_RUNS: usize = 5;
const STARTED_AT_ONCE: usize = 80;
const DELETED_AT_ONCE: usize = 110;
/// The grace period of the deleted pods.
const GRACE: i64 = 1;
/// The minimum time that a kubelet gives a container to stop.
const STOP_TIMEOUT: i64 = 2;

fn pod(number: usize) -> Arc<Pod> {
    let name = format!("pod-{number}");
    let pod = serde_json::json!({
        "metadata": { "name": name, "namespace": "default", "uid": name },
        "spec": {
            "hostNetwork": true,
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": GRACE,
            "containers": [{
                "name": "main",
                "image": Containerd::BUSYBOX,
                "imagePullPolicy": "IfNotPresent",
                // It ignores SIGTERM, as the first process of a container does, so it uses its whole grace period.
                "command": ["sleep", "10000"],
            }],
        },
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// The times of two ways to do the same.
#[derive(Default)]
struct Times {
    agent: Vec<Duration>,
    by_hand: Vec<Duration>,
}

impl Times {
    /// The upper of the two middle values.
    fn medians(&mut self) -> (f64, f64) {
        let median = |times: &mut Vec<Duration>| {
            times.sort_unstable();
            times[times.len() / 2].as_secs_f64() * 1e3
        };
        (median(&mut self.agent), median(&mut self.by_hand))
    }

    fn tell_ratio(mut self, what: &str, most: f64) {
        let (agent, by_hand) = self.medians();
        let ratio = agent / by_hand;
        println!("  {what}: {ratio:.2} x (limit: {most} x), by the medians {agent:.0} and {by_hand:.0} ms");
        self.tell();
    }

    fn tell_difference(mut self, what: &str, most: Duration) {
        let (agent, by_hand) = self.medians();
        let more = agent - by_hand;
        println!("  {what}: {more:+.0} ms (limit: +{most:?}), by the medians {agent:.0} and {by_hand:.0} ms");
        self.tell();
    }

    fn tell(&self) {
        let millis = |times: &[Duration]| times.iter().map(Duration::as_millis).collect::<Vec<_>>();
        println!(
            "    the agent {:?}\n    by hand   {:?}",
            millis(&self.agent),
            millis(&self.by_hand)
        );
    }
}

/// A runtime whose pods are run by hand.
struct ByHand {
    client: Arc<CriClient>,
    calls: Vec<Vec<Made>>,
    started: Vec<(String, String)>,
    _dir: tempfile::TempDir,
}

impl ByHand {
    async fn new(client: Arc<CriClient>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pods: Vec<_> = (0..DELETED_AT_ONCE).map(pod).collect();
        let mut calls = calls_of_each(&client, dir.path(), &pods).await;
        for calls in &mut calls {
            calls.retain(|call| matches!(call, Made::Run(_) | Made::Create(_) | Made::Start));
        }
        remove_all(&client).await;
        Self {
            client,
            calls,
            started: Vec::new(),
            _dir: dir,
        }
    }

    /// Starts the pods with these numbers at once.
    async fn start(&mut self, pods: std::ops::Range<usize>) -> Duration {
        let begun = Instant::now();
        let starts = self.calls[pods].iter().cloned().map(|calls| {
            let client = self.client.clone();
            tokio::spawn(async move { by_hand::by_hand(&client, calls).await.unwrap() })
        });
        let started = join_all(starts).await;
        let took = begun.elapsed();
        self.started.extend(started.into_iter().map(Result::unwrap));
        took
    }

    /// Stops all containers at once.
    async fn stop(&self) -> Duration {
        let begun = Instant::now();
        join_all(
            self.started
                .iter()
                .map(|(_, container)| stop(&self.client, container.clone())),
        )
        .await;
        begun.elapsed()
    }

    /// Stops and removes all pods at once.
    async fn stop_and_remove(&mut self) -> Duration {
        let begun = Instant::now();
        let removals = self.started.drain(..).map(|(sandbox, container)| {
            let client = self.client.clone();
            tokio::spawn(async move {
                stop(&client, container).await;
                remove(&client, sandbox).await.unwrap();
            })
        });
        for removed in join_all(removals).await {
            removed.unwrap();
        }
        begun.elapsed()
    }
}

async fn stop(client: &CriClient, container_id: String) {
    client
        .stop_container(v1::StopContainerRequest {
            container_id,
            timeout: STOP_TIMEOUT,
        })
        .await
        .unwrap();
}

async fn measure(containerd: Option<Containerd>, other: Option<Containerd>, what: &str) {
    let (Some(containerd), Some(other)) = (containerd, other) else {
        return;
    };
    println!("{what}:");
    let client = Arc::new(CriClient::connect(containerd.endpoint()).await.unwrap());
    let mut by_hand = ByHand::new(Arc::new(CriClient::connect(other.endpoint()).await.unwrap())).await;
    let cluster = Cluster::start(&containerd.endpoint()).await;
    let pods: Vec<_> = (0..DELETED_AT_ONCE).map(pod).collect();

    let (mut start, mut delete) = (Times::default(), Times::default());
    for run in 0..SINGLE_RUNS {
        // Alternate, and change which one is first: the speed of a machine varies.
        for agents_turn in [run % 2 == 0, run % 2 != 0] {
            if agents_turn {
                start.agent.push(cluster.run(&pods[..1]).await);
                delete.agent.push(cluster.delete(&pods[..1]).await);
                remove_all(&client).await;
            } else {
                start.by_hand.push(by_hand.start(0..1).await);
                delete.by_hand.push(by_hand.stop().await);
                by_hand.stop_and_remove().await;
            }
        }
    }
    start.tell_ratio("a pod started", 1.6);
    delete.tell_difference(
        "a pod deleted, against its container stopped",
        Duration::from_millis(200),
    );

    let (mut start, mut delete) = (Times::default(), Times::default());
    for run in 0..MANY_RUNS {
        for agents_turn in [run % 2 == 0, run % 2 != 0] {
            if agents_turn {
                start.agent.push(cluster.run(&pods[..STARTED_AT_ONCE]).await);
                cluster.run(&pods[STARTED_AT_ONCE..]).await;
                delete.agent.push(cluster.delete(&pods).await);
                remove_all(&client).await;
            } else {
                start.by_hand.push(by_hand.start(0..STARTED_AT_ONCE).await);
                by_hand.start(STARTED_AT_ONCE..DELETED_AT_ONCE).await;
                delete.by_hand.push(by_hand.stop_and_remove().await);
            }
        }
    }
    start.tell_ratio(&format!("{STARTED_AT_ONCE} pods started at once"), 1.15);
    delete.tell_ratio(&format!("{DELETED_AT_ONCE} pods deleted at once"), 1.5);
    cluster.end().await;
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (one, other) = (
            Containerd::start().await.unwrap(),
            Containerd::start().await.unwrap(),
        );
        measure(one, other, "on the host's containerd").await;
        let (one, other) = (
            Containerd::start_2().await.unwrap(),
            Containerd::start_2().await.unwrap(),
        );
        measure(one, other, "on containerd 2, which has events").await;
    });
}
