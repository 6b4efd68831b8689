//! The status manager with 1,000 pods: the cost of an unchanged status, the time to send 1,000 changed statuses at
//! once, and the size of a readiness change in bytes.
//!
//! `cargo bench -p benches --bench status`
//!
//! Time is virtual; the sink, if there is one, answers after 10 ms of it. "of that, making the statuses" is the
//! caller's share: the caller passes ownership of a status, so it must make a new one each time. "generated again"
//! generates the statuses from the runtime's, as a pod's worker does.
#![allow(missing_docs, reason = "criterion's macros make public items")]
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "a bench ends where it cannot go on"
)]
#![allow(
    clippy::print_stdout,
    reason = "requests, bytes and allocations are no measure of criterion's"
)]

use std::alloc::System;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use criterion::{Criterion, criterion_group, criterion_main};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_core::runtime::{
    ContainerState, ContainerStatus, PodStatus as RuntimeStatus, SandboxState, SandboxStatus,
};
use kubelet_core::{ContainerId, PodExt, PodStatusInput, PodStatusReporter, Result, SinkPod, StatusSink};
use kubelet_status::{ApiServerSink, StatusManager, StatusManagerConfig, StatusManagerHandle};
use kubelet_testing::{ApiServer, User};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PODS: usize = 1_000;
/// How long the sink takes for a request.
const LATENCY: Duration = Duration::from_millis(10);

/// Pretends to store pods, and counts.
#[derive(Default)]
struct Server {
    requests: AtomicUsize,
    at_a_time: AtomicUsize,
    most_at_a_time: AtomicUsize,
    changed: Notify,
}

impl Server {
    async fn request(&self) {
        let at_a_time = self.at_a_time.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_at_a_time.fetch_max(at_a_time, Ordering::Relaxed);
        tokio::time::sleep(LATENCY).await;
        self.at_a_time.fetch_sub(1, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.changed.notify_one();
    }

    async fn requested(&self, times: usize) {
        while self.requests.load(Ordering::Relaxed) < times {
            self.changed.notified().await;
        }
    }
}

#[async_trait]
impl StatusSink for Server {
    async fn get(&self, pod: &Arc<Pod>) -> Result<SinkPod> {
        self.request().await;
        Ok(SinkPod::Stored(pod.clone()))
    }

    async fn patch_status(&self, pod: &Arc<Pod>, _: &PodStatus, new: &PodStatus) -> Result<Option<Arc<Pod>>> {
        self.request().await;
        let mut patched = Pod::clone(pod);
        let version: u64 = patched.metadata.resource_version.take().unwrap().parse().unwrap();
        patched.metadata.resource_version = Some((version + 1).to_string());
        patched.status = Some(new.clone());
        Ok(Some(Arc::new(patched)))
    }
}

fn pod(index: usize) -> Arc<Pod> {
    let pod = json!({
        "metadata": {"namespace": "default", "name": format!("pod-{index}"), "generation": 1, "resourceVersion": "1",
            "uid": format!("8f6f3a52-7c1d-4b0e-9a55-{index:012}")},
        "spec": {"nodeName": "one", "containers": [{"name": "a", "image": "busybox:1.36"}, {"name": "b", "image": "busybox:1.36"}]},
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// A pod with two containers, with everything that a kubelet reports.
fn status(ready: bool) -> PodStatus {
    let word = if ready { "True" } else { "False" };
    let condition =
        |kind: &str, status: &str| json!({"type": kind, "status": status, "observedGeneration": 1});
    let container = |name: &str| {
        let id = format!("containerd://{name:0>64}");
        json!({"name": name, "image": "docker.io/library/busybox:1.36", "imageID": format!("sha256:{:064}", 7),
            "containerID": id, "ready": ready, "started": true, "restartCount": 0, "lastState": {},
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "resources": {"requests": {"cpu": "100m"}},
            "volumeMounts": [{"name": "kube-api-access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                "readOnly": true, "recursiveReadOnly": "Disabled"}]})
    };
    let conditions: Vec<Value> = [
        ("PodReadyToStartContainers", "True"),
        ("Initialized", "True"),
        ("Ready", word),
        ("ContainersReady", word),
        ("PodScheduled", "True"),
    ]
    .into_iter()
    .map(|(kind, status)| condition(kind, status))
    .collect();
    let status = json!({"phase": "Running", "conditions": conditions, "hostIP": "10.99.0.1", "podIP": "10.88.0.7",
        "hostIPs": [{"ip": "10.99.0.1"}], "podIPs": [{"ip": "10.88.0.7"}], "qosClass": "BestEffort",
        "containerStatuses": [container("a"), container("b")]});
    serde_json::from_value(status).unwrap()
}

struct Node {
    handle: StatusManagerHandle,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Node {
    fn start(sink: impl StatusSink) -> Self {
        let mut config = StatusManagerConfig::default();
        config.qps = 0;
        let manager = StatusManager::with_config(sink, config);
        let shutdown = CancellationToken::new();
        Node {
            handle: manager.handle(),
            task: tokio::spawn(manager.run(shutdown.clone())),
            shutdown,
        }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }
}

fn virtual_time() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
}

fn unchanged(criterion: &mut Criterion) {
    let tokio = virtual_time();
    let pods: Vec<_> = (0..PODS).map(pod).collect();
    let (server, ready) = (Arc::new(Server::default()), status(true));
    let node = tokio.block_on(async {
        let node = Node::start(server.clone());
        pods.iter()
            .for_each(|pod| node.handle.set_pod_status(pod, ready.clone()));
        server.requested(PODS).await;
        node
    });
    let set_all = || {
        pods.iter()
            .for_each(|pod| node.handle.set_pod_status(pod, black_box(&ready).clone()))
    };
    let make_all = || {
        pods.iter()
            .for_each(|_| drop(black_box(black_box(&ready).clone())))
    };
    let allocations = |work: &dyn Fn()| {
        let before = ALLOCATOR.stats().allocations;
        work();
        ALLOCATOR.stats().allocations - before
    };
    println!(
        "status, {PODS} unchanged: {} allocations a pod, {} of them to make the status",
        allocations(&set_all) / PODS,
        allocations(&make_all) / PODS
    );
    let (set, make) = (shortest(set_all), shortest(make_all));
    println!(
        "status, {PODS} unchanged: {:?} a pod, {:?} of it to make the status",
        set / PODS as u32,
        make / PODS as u32
    );
    criterion.bench_function(&format!("{PODS} statuses unchanged"), |bencher| {
        bencher.iter(set_all)
    });
    criterion.bench_function("of that, making the statuses", |bencher| bencher.iter(make_all));
    tokio.block_on(async {
        // All statuses are compared, many times.
        tokio::time::sleep(Duration::from_secs(600)).await;
        node.stop().await;
    });
    let requests = server.requests.load(Ordering::Relaxed) - PODS;
    println!("status, {PODS} unchanged: {requests} requests");
    assert_eq!(requests, 0);
}

/// The shortest of many times, since other work on the machine only adds time.
fn shortest(mut work: impl FnMut()) -> Duration {
    let times = (0..200).map(|_| {
        let start = std::time::Instant::now();
        work();
        start.elapsed()
    });
    times.min().unwrap()
}

/// The runtime's status of a pod whose two containers run.
fn runtime(pod: &Pod) -> RuntimeStatus {
    let mut status = RuntimeStatus::empty(pod.uid(), pod.key(), tokio::time::Instant::now());
    status.ips = vec!["10.88.0.7".to_owned()];
    status.sandboxes = vec![SandboxStatus {
        id: "s".to_owned(),
        state: SandboxState::Ready,
        attempt: 0,
        created_at: None,
        ips: status.ips.clone(),
        network_reported: true,
        host_network: false,
        runtime_handler: String::new(),
    }];
    for name in ["a", "b"] {
        let id = format!("containerd://{name:0>64}").parse().unwrap();
        let mut container = ContainerStatus::new(id, name, ContainerState::Running);
        container.started_at = Some("2026-01-01T00:00:00Z".parse().unwrap());
        container.image = "docker.io/library/busybox:1.36".to_owned();
        container.image_ref = format!("sha256:{:064}", 7);
        status.containers.push(container);
    }
    status
}

fn generated(criterion: &mut Criterion) {
    let tokio = virtual_time();
    let server = Arc::new(Server::default());
    let set_all = |node: &Node, pods: &[(Arc<Pod>, RuntimeStatus)]| {
        for (pod, runtime) in pods {
            let status = node.handle.generate(&PodStatusInput::new(pod, runtime));
            node.handle.set_pod_status(pod, status);
        }
    };
    let (node, pods) = tokio.block_on(async {
        let pods: Vec<_> = (0..PODS)
            .map(pod)
            .map(|pod| (pod.clone(), runtime(&pod)))
            .collect();
        let node = Node::start(server.clone());
        set_all(&node, &pods);
        server.requested(PODS).await;
        (node, pods)
    });
    let each = shortest(|| set_all(&node, &pods)) / PODS as u32;
    println!("status, {PODS} generated again and unchanged: {each:?} a pod");
    criterion.bench_function(
        &format!("{PODS} statuses generated again, unchanged"),
        |bencher| bencher.iter(|| set_all(&node, &pods)),
    );
    tokio.block_on(node.stop());
    assert_eq!(server.requests.load(Ordering::Relaxed), PODS);
}

fn changed(criterion: &mut Criterion) {
    let tokio = virtual_time();
    let pods: Vec<_> = (0..PODS).map(pod).collect();
    let server = Arc::new(Server::default());
    let node = tokio.block_on(async { Node::start(server.clone()) });
    let (mut turn, mut took) = (0, Duration::ZERO);
    criterion.bench_function(
        &format!("{PODS} statuses changed at once, until all are sent"),
        |bencher| {
            bencher.iter(|| {
                tokio.block_on(async {
                    turn += 1;
                    let start = tokio::time::Instant::now();
                    pods.iter()
                        .for_each(|pod| node.handle.set_pod_status(pod, status(turn % 2 == 0)));
                    server.requested(turn * PODS).await;
                    took = start.elapsed();
                });
            });
        },
    );
    tokio.block_on(node.stop());
    let requests = server.requests.load(Ordering::Relaxed);
    println!(
        "status, {PODS} changed: {} requests a pod and change, {} at a time, {took:?} of virtual time at {LATENCY:?} each",
        requests as f64 / (turn * PODS) as f64,
        server.most_at_a_time.load(Ordering::Relaxed),
    );
    assert_eq!(requests, turn * PODS);
}

/// Counts the requests to the API server and their bytes.
fn flip(_: &mut Criterion) {
    let bytes = Arc::new(AtomicUsize::new(0));
    virtual_time().block_on(async {
        let server = ApiServer::new();
        let mut pod = Pod::clone(&pod(0));
        (pod.metadata.uid, pod.metadata.resource_version) = (None, None);
        let pod = Arc::new(server.create(&pod).unwrap());
        let (service, counted) = (server.service_as(User::node("one")), bytes.clone());
        let service = tower::service_fn(move |request: http::Request<kube_client::client::Body>| {
            let (service, counted) = (service.clone(), counted.clone());
            async move {
                use http_body_util::BodyExt;
                let (head, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                counted.store(body.len(), Ordering::Relaxed);
                tower::ServiceExt::oneshot(
                    service,
                    http::Request::from_parts(head, http_body_util::Full::new(body)),
                )
                .await
            }
        });
        let node = Node::start(ApiServerSink::new(kube_client::Client::new(service, "default")));
        let written = async |version| {
            kubelet_testing::eventually!(server.resource_version(), |now| *now > version);
        };
        let version = server.resource_version();
        node.handle.set_pod_status(&pod, status(true));
        written(version).await;
        let whole = bytes.load(Ordering::Relaxed);
        let container: ContainerId = format!("containerd://{:0>64}", "a").parse().unwrap();
        let version = server.resource_version();
        node.handle.set_container_readiness(&pod.uid(), &container, false);
        written(version).await;
        println!(
            "status, first patch: {whole} bytes; a flip of readiness: {} bytes",
            bytes.load(Ordering::Relaxed)
        );
        node.stop().await;
    });
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(30);
    targets = unchanged, generated, changed, flip
}
criterion_main!(benches);
