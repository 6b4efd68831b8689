//! The overhead of the runtime manager over the CRI calls that start a pod.
//!
//! `cargo bench -p benches --bench overhead` measures two things; the second needs root and containerd.
//!
//! * On a runtime in memory: the time from `sync_pod` until the container runs, minus the time in its calls. Limit: 2
//!   ms.
//! * On containerd: 100 pods at once, compared with the same calls made by hand in parallel. Limit: 5 % more.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a bench"
)]

#[path = "by_hand.rs"]
mod by_hand;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::Clock;
use kubelet_cri::CriClient;
use kubelet_testing::memory_cri::Latency;
use kubelet_testing::{Containerd, MemoryCri};

use crate::by_hand::{Made, Noted, by_hand, calls_of_each, manager, remove_all, start};

const PODS_IN_MEMORY: usize = 1000;
const PODS_AT_ONCE: usize = 100;
const RUNS: usize = 8;

fn pod(number: usize) -> Arc<Pod> {
    let name = format!("pod-{number}");
    let pod = serde_json::json!({
        "metadata": { "name": name, "namespace": "default", "uid": name },
        "spec": {
            "hostNetwork": true,
            "containers": [{
                "name": "main",
                "image": Containerd::BUSYBOX,
                "imagePullPolicy": "IfNotPresent",
                "command": ["sleep", "1000"],
            }],
        },
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

async fn in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let cri = MemoryCri::builder(Clock::system())
        .latency(Latency::none())
        .build();
    cri.add_image(Containerd::BUSYBOX);
    let services = Noted::new(cri);
    let manager = manager(&services, dir.path()).await;
    let mut overheads = Vec::with_capacity(PODS_IN_MEMORY);
    for number in 0..PODS_IN_MEMORY {
        let pod = pod(number);
        let before = services.nanos.load(Ordering::Relaxed);
        let started = Instant::now();
        start(&manager, &pod).await;
        let took = started.elapsed();
        let calls = Duration::from_nanos(services.nanos.load(Ordering::Relaxed) - before);
        overheads.push(took.saturating_sub(calls));
    }
    overheads.sort_unstable();
    let at = |share: usize| overheads[(overheads.len() - 1) * share / 100];
    println!(
        "one pod, in memory: median {:?}, 90 % {:?}, 99 % {:?}, maximum {:?}, without its calls (limit: 2 ms)",
        at(50),
        at(90),
        at(99),
        at(100)
    );
}

/// Starts all pods at once, and returns how long it took.
async fn all_by_the_manager(client: &Arc<CriClient>) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let manager = Arc::new(manager(client, dir.path()).await);
    let pods: Vec<_> = (0..PODS_AT_ONCE).map(pod).collect();
    let started = Instant::now();
    let starts = pods.into_iter().map(|pod| {
        let manager = manager.clone();
        tokio::spawn(async move { start(&manager, &pod).await })
    });
    for started in join_all(starts).await {
        started.unwrap();
    }
    started.elapsed()
}

/// Makes the same calls for all pods at once, and returns how long it took.
async fn all_by_hand(client: &CriClient, calls: &[Vec<Made>]) -> Duration {
    let started = Instant::now();
    let starts = calls.iter().cloned().map(|calls| {
        let client = client.clone();
        tokio::spawn(async move { by_hand(&client, calls).await.unwrap() })
    });
    for started in join_all(starts).await {
        started.unwrap();
    }
    started.elapsed()
}

async fn on_containerd() {
    let Some(containerd) = Containerd::start().await.unwrap() else {
        return;
    };
    let client = Arc::new(CriClient::connect(containerd.endpoint()).await.unwrap());
    let dir = tempfile::tempdir().unwrap();
    let pods: Vec<_> = (0..PODS_AT_ONCE).map(pod).collect();
    let calls = calls_of_each(&client, dir.path(), &pods).await;
    remove_all(&client).await;
    let (mut managed, mut by_hand) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        // Alternate, and change which one is first: the speed of a machine varies.
        for managers_turn in [run % 2 == 0, run % 2 != 0] {
            if managers_turn {
                managed.push(all_by_the_manager(&client).await);
            } else {
                by_hand.push(all_by_hand(&client, &calls).await);
            }
            remove_all(&client).await;
        }
    }
    // The upper of the two middle values.
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let more = 100.0 * (median(&mut managed).as_secs_f64() / median(&mut by_hand).as_secs_f64() - 1.0);
    println!("100 pods at once, on containerd: {more:+.1} % (limit: +5 %), by the medians of");
    println!("  by the manager {managed:.2?}\n  by hand        {by_hand:.2?}");
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        in_memory().await;
        on_containerd().await;
    });
}
