//! The API server in memory with 10,000 pods on 50 nodes; each node watches its own pods. Measures the cost of a
//! status patch through a kube client in the process, and the cost of an hour of watching without changes.
//!
//! `cargo bench -p benches --bench api_server`
#![allow(missing_docs, reason = "criterion's macros make public items")]
#![allow(clippy::expect_used, reason = "a bench ends where it cannot go on")]

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube_client::Api;
use kube_client::api::{Patch, PatchParams, WatchParams};
use kubelet_core::Clock;
use kubelet_testing::ApiServer;
use serde_json::json;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

const NODES: usize = 50;
const PODS: usize = 10_000;

fn runtime(paused: bool) -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder
        .enable_time()
        .start_paused(paused)
        .build()
        .expect("no runtime")
}

fn filled(server: &ApiServer) {
    for n in 0..PODS {
        let pod = json!({
            "metadata": {"name": format!("pod-{n}")},
            "spec": {"nodeName": format!("node-{}", n % NODES), "containers": [{"name": "main", "image": "busybox:1.36"}]},
        });
        let pod: Pod = serde_json::from_value(pod).expect("no pod");
        server.create(&pod).expect("not created");
    }
}

/// A watch for each node, each read by its own task.
async fn watched(server: &ApiServer) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for node in 0..NODES {
        let pods: Api<Pod> = Api::all(server.client());
        let params = WatchParams::default().fields(&format!("spec.nodeName=node-{node}"));
        let version = server.resource_version().to_string();
        let watch = pods.watch(&params, &version).await.expect("no watch");
        let mut watch = watch.boxed();
        tasks.spawn(async move {
            // Each watch ends after five minutes, as kube's do.
            loop {
                while let Ok(Some(_)) = watch.try_next().await {}
                let again = pods.watch(&params, &version).await;
                watch = again.expect("no watch").boxed();
            }
        });
    }
    tasks
}

async fn patch(pods: &Api<Pod>, round: u64) {
    let name = format!("pod-{}", round as usize * 7 % PODS);
    let status = json!({"status": {"phase": "Running", "podIP": format!("10.{}.{}.1", round / 256 % 256, round % 256)}});
    let (params, patch) = (PatchParams::default(), Patch::Strategic(status));
    pods.patch_status(&name, &params, &patch)
        .await
        .expect("not patched");
}

fn writes(criterion: &mut Criterion) {
    let runtime = runtime(false);
    let server = ApiServer::new();
    filled(&server);
    let watches = runtime.block_on(watched(&server));
    let _guard = runtime.enter();
    let pods: Api<Pod> = Api::namespaced(server.client(), "default");
    let mut round = 0;
    let mut group = criterion.benchmark_group("api_server");
    group.throughput(Throughput::Elements(1)).sample_size(20);
    group.bench_function("status patch, 50 watches, 10,000 pods", |bencher| {
        bencher.iter_custom(|patches| {
            let begun = Instant::now();
            runtime.block_on(async {
                for _ in 0..patches {
                    round += 1;
                    patch(&pods, round).await;
                }
            });
            begun.elapsed()
        });
    });
    group.finish();
    drop(watches);
}

fn idle_hour(criterion: &mut Criterion) {
    criterion.bench_function("api_server, an idle hour of 50 watches", |bencher| {
        bencher.iter_custom(|hours| {
            let runtime = runtime(true);
            runtime.block_on(async {
                let server = ApiServer::builder()
                    .clock(Clock::starting_at(Timestamp::UNIX_EPOCH))
                    .build();
                let watches = watched(&server).await;
                let begun = Instant::now();
                tokio::time::sleep(Duration::from_secs(3600 * hours)).await;
                drop(watches);
                begun.elapsed()
            })
        });
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = writes, idle_hour
}
criterion_main!(benches);
