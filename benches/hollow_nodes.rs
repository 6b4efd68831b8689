//! A thousand nodes with ten pods each in one process: whole agents with runtimes in memory, on an API server in
//! memory.
//!
//! `cargo bench -p benches --bench hollow_nodes`; fewer nodes with `-- 100`.
//!
//! The memory of a node is what is freed when its agent is dropped: the agent and both ends of its connections. The
//! memory of its runtime, which is dropped later, is printed separately; the API server is not counted. The clock is
//! virtual, so the printed times are CPU work. Most of the work at the start is the API server's.
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

const PODS: usize = 10;
const MINUTE: Duration = Duration::from_secs(60);
/// The time until all pods run and temporary memory is freed.
const BEGINNING: u32 = 2;
const SETTLING: u32 = 3;
const STEADY: u32 = 3;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("no tokio");
    let nodes = std::env::args().find_map(|argument| argument.parse().ok());
    runtime.block_on(run(nodes.unwrap_or(1_000)));
}

fn live() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

async fn run(nodes: usize) {
    let folder = tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("no folder");
    let clock = Clock::system();
    let server = ApiServer::builder().clock(clock).seed(1).build();
    let (mut agents, mut runtimes) = (Vec::new(), Vec::new());
    let shutdown = CancellationToken::new();
    for number in 0..nodes {
        let name = format!("node-{number}");
        register(&server, &name).await;
        let client = server.client_as(User::node(&name));
        let node = SimulatedNode::new(&name, client, clock, folder.path().join(&name));
        runtimes.push(node.runtime.clone());
        agents.push(tokio::spawn(node.run_kubelet(shutdown.clone())));
    }
    let start = Instant::now();
    sleep(BEGINNING * MINUTE).await;
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
    assert_eq!(running, nodes * PODS, "not all pods run");
    drop(pods);
    sleep(SETTLING * MINUTE).await;
    let start = Instant::now();
    sleep(STEADY * MINUTE).await;
    let minute = start.elapsed() / STEADY;

    let with_nodes = live();
    shutdown.cancel();
    for agent in agents {
        agent.await.expect("an agent panicked").expect("an agent failed");
    }
    let without_agents = live();
    drop(runtimes);
    let without_nodes = live();
    println!(
        "{nodes} nodes of {PODS} pods begin: {:.1} s of work in {BEGINNING} min",
        started.as_secs_f64()
    );
    println!(
        "steady: {:.2} s of work each minute, {:.1} % of a core; {:.2} ms for a node",
        minute.as_secs_f64(),
        minute.as_secs_f64() / 60.0 * 100.0,
        minute.as_secs_f64() * 1e3 / nodes as f64
    );
    let kib = |before: usize, after: usize| before.saturating_sub(after) as f64 / nodes as f64 / 1024.0;
    println!(
        "memory: {:.1} KiB for a node's agent, {:.1} KiB for its runtime",
        kib(with_nodes, without_agents),
        kib(without_agents, without_nodes)
    );
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
