//! A thousand nodes of ten pods each in one process: whole agents over runtimes in memory, on an API server in memory.
//!
//! `cargo bench -p benches --bench hollow_nodes`
//!
//! What a node weighs is what is freed when the nodes are gone: its agent, its runtime and their connections, and nothing of
//! the API server. Time is virtual: what is told is the work in it.
#![allow(clippy::print_stdout, reason = "a bench prints what it found")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench ends where it cannot go on"
)]

use std::alloc::System;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube_client::Api;
use kube_client::api::{ListParams, PostParams};
use kubelet_core::Clock;
use kubelet_testing::simulation::SimulatedNode;
use kubelet_testing::{ApiServer, User};
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const NODES: usize = 1_000;
const PODS: usize = 10;
const MINUTE: Duration = Duration::from_secs(60);

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("no tokio");
    runtime.block_on(nodes());
}

fn live() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

async fn nodes() {
    let folder = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("no folder");
    let clock = Clock::system();
    let server = ApiServer::builder().clock(clock).seed(1).build();
    let mut agents = Vec::new();
    let shutdown = CancellationToken::new();
    for number in 0..NODES {
        let name = format!("node-{number}");
        register(&server, &name).await;
        let client = server.client_as(User::node(&name));
        let node = SimulatedNode::new(&name, client, clock, folder.path().join(&name));
        agents.push(tokio::spawn(node.run_kubelet(shutdown.clone())));
    }
    let start = Instant::now();
    sleep(5 * MINUTE).await;
    let started = start.elapsed();
    let pods = Api::<Pod>::all(server.client())
        .list(&ListParams::default())
        .await
        .expect("no pods");
    let runs = |pod: &&Pod| {
        pod.status
            .as_ref()
            .is_some_and(|status| status.phase.as_deref() == Some("Running"))
    };
    let running = pods.items.iter().filter(runs).count();
    assert_eq!(running, NODES * PODS, "not all pods run");
    drop(pods);
    // Whatever is kept only for a while is gone by then.
    sleep(20 * MINUTE).await;
    let start = Instant::now();
    sleep(10 * MINUTE).await;
    let minute = start.elapsed() / 10;

    let with_nodes = live();
    shutdown.cancel();
    for agent in agents {
        agent.await.expect("an agent panicked").expect("an agent failed");
    }
    let freed = with_nodes.saturating_sub(live());
    println!(
        "{NODES} nodes of {PODS} pods begin: {:.1} s of work in 5 min",
        started.as_secs_f64()
    );
    println!(
        "steady: {:.2} s of work each minute, {:.1} % of a core; {:.2} ms for a node",
        minute.as_secs_f64(),
        minute.as_secs_f64() / 60.0 * 100.0,
        minute.as_secs_f64() * 1e3 / NODES as f64
    );
    println!("memory: {} KiB for a node", freed / NODES / 1024);
}

async fn register(server: &ApiServer, name: &str) {
    let node = json!({"metadata": {"name": name}, "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}}});
    let node: Node = serde_json::from_value(node).expect("not a node");
    Api::all(server.client())
        .create(&PostParams::default(), &node)
        .await
        .expect("no node");
    for number in 0..PODS {
        let pod = json!({
            "metadata": {"name": format!("{name}-{number}"), "namespace": "default"},
            "spec": {"nodeName": name, "containers": [{"name": "main", "image": "busybox:1.36"}]},
        });
        let pod: Pod = serde_json::from_value(pod).expect("not a pod");
        let pods = Api::namespaced(server.client(), "default");
        pods.create(&PostParams::default(), &pod).await.expect("no pod");
    }
}
