//! Ten thousand pods in one process: the time of an update to its worker, the cost of a resync of all pods, and the
//! memory of an idle pod beside the `Pod` itself.
//!
//! `cargo bench -p benches --bench ten_thousand_pods`
//!
//! The memory is that of a whole agent (sources, merger, pod manager, workers, cache, PLEG, statuses) with pods of
//! two containers each. It does not include what the agent talks to. The `Pod`, and the entry in the runtime's list
//! that the PLEG and the runtime share, are counted separately.
#![allow(clippy::print_stdout, reason = "a bench prints what it found")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench ends where it cannot go on"
)]

use std::alloc::System;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use k8s_openapi::jiff::Timestamp;
use kubelet_config::PodConfig;
use kubelet_core::runtime::{
    Container, ContainerState, ContainerStatus, PodStatus, PodSyncResult, RuntimePod, RuntimeStatus, Sandbox,
    SandboxState, SandboxStatus,
};
use kubelet_core::{
    ContainerId, Disk, Jitter, Kubelet, PodCache, PodExt, PodSyncer, PodUid, PodWorkers, Result, Runtime,
    RuntimeReader, StatusSink, StreamSource, SyncOutcome, SyncPodType, UpdatePod,
};
use kubelet_pleg::GenericPleg;
use kubelet_status::StatusManager;
use parking_lot::Mutex;
use rustc_hash::{FxBuildHasher, FxHashMap};
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PODS: usize = 10_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("no tokio");
    runtime.block_on(dispatch());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("no tokio");
    runtime.block_on(weight());
}

/// As from an API server.
fn pod(index: usize) -> Pod {
    let container = |name: &str| {
        json!({"name": name, "image": "busybox:1.36", "command": ["sleep", "1000"], "imagePullPolicy": "IfNotPresent",
            "env": [{"name": "A", "value": "a"}, {"name": "B", "value": "b"}], "ports": [{"containerPort": 80}],
            "resources": {"limits": {"cpu": "100m"}, "requests": {"cpu": "100m"}},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"})
    };
    let pod = json!({
        "metadata": {"name": format!("pod-{index}"), "namespace": "bench", "labels": {"app": "bench", "tier": "back"},
            "uid": format!("8a3f0000-0000-4000-8000-{index:012}"), "resourceVersion": "7"},
        "spec": {"nodeName": "node-1", "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
            "terminationGracePeriodSeconds": 30, "containers": [container("a"), container("b")]},
    });
    serde_json::from_value(pod).expect("not a pod")
}

/// Sends a message when it is called.
struct Bell(mpsc::UnboundedSender<Instant>);

#[async_trait]
impl PodSyncer for Bell {
    async fn sync_pod(
        &self,
        _: SyncPodType,
        _: &Arc<Pod>,
        _: Option<&Arc<Pod>>,
        _: &Arc<PodStatus>,
    ) -> Result<SyncOutcome> {
        let _ = self.0.send(Instant::now());
        Ok(SyncOutcome::default())
    }

    async fn sync_terminating_pod(
        &self,
        _: &Arc<Pod>,
        _: &Arc<PodStatus>,
        _: Option<Duration>,
        _: Option<&kubelet_core::PodStatusFn>,
    ) -> Result<()> {
        Ok(())
    }

    async fn sync_terminating_runtime_pod(&self, _: &Arc<RuntimePod>) -> Result<()> {
        Ok(())
    }

    async fn sync_terminated_pod(&self, _: &Arc<Pod>, _: &Arc<PodStatus>) -> Result<()> {
        Ok(())
    }
}

/// The time from the update to the start of its sync: one pod after the other, then all at once.
async fn dispatch() {
    let (cache, (bell, mut rung)) = (PodCache::new(), mpsc::unbounded_channel());
    let workers = PodWorkers::new(
        Arc::new(Bell(bell)),
        cache.clone(),
        Default::default(),
        Jitter::from_seed(1),
    );
    let (handle, shutdown) = (workers.handle(), CancellationToken::new());
    let running = tokio::spawn(workers.run(shutdown.clone()));
    let pods: Vec<Arc<Pod>> = (0..PODS).map(|index| Arc::new(pod(index))).collect();
    let mut update_all = async |update: SyncPodType| {
        let start = Instant::now();
        // Every status is newer than the last sync.
        cache.update_time(tokio::time::Instant::now());
        for pod in &pods {
            handle.update_pod(UpdatePod::new(update, pod.clone()));
        }
        for _ in 0..PODS {
            next(&mut rung, &cache).await;
        }
        start.elapsed()
    };
    let first = update_all(SyncPodType::Create).await;
    // Process their ends, too.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let resync = update_all(SyncPodType::Sync).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut times = Vec::with_capacity(PODS);
    for pod in &pods {
        cache.update_time(tokio::time::Instant::now());
        let start = Instant::now();
        handle.update_pod(UpdatePod::new(SyncPodType::Update, pod.clone()));
        let began = next(&mut rung, &cache).await;
        times.push(began.duration_since(start));
        tokio::task::yield_now().await;
    }
    times.sort();
    println!(
        "{PODS} pods: all started {:>6.1} ms after they were added",
        millis(first)
    );
    println!("{PODS} pods: a resync of all takes {:>6.1} ms", millis(resync));
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    println!(
        "an update to its worker: p50 {:.1} µs, p99 {:.1} µs, at most {:.1} µs",
        micros(times[PODS / 2]),
        micros(times[PODS * 99 / 100]),
        micros(times[PODS - 1])
    );
    shutdown.cancel();
    running.await.expect("the workers panicked");
}

/// Waits for the start of the next sync. On a busy machine the end of the previous sync may be processed late, and
/// then the sync needs another status.
async fn next(rung: &mut mpsc::UnboundedReceiver<Instant>, cache: &PodCache) -> Instant {
    loop {
        match tokio::time::timeout(Duration::from_secs(1), rung.recv()).await {
            Ok(began) => return began.expect("the workers ended"),
            Err(_) => cache.update_time(tokio::time::Instant::now()),
        }
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Runs everything at once.
struct Ready {
    run: Mutex<FxHashMap<PodUid, Arc<RuntimePod>>>,
}

#[async_trait]
impl RuntimeReader for Ready {
    async fn pods(&self, _: bool) -> Result<Vec<Arc<RuntimePod>>> {
        Ok(self.run.lock().values().cloned().collect())
    }

    async fn pod(&self, uid: &PodUid) -> Result<Option<Arc<RuntimePod>>> {
        Ok(self.run.lock().get(uid).cloned())
    }

    async fn pod_status(&self, pod: &RuntimePod) -> Result<Arc<PodStatus>> {
        let mut status = PodStatus::empty(pod.uid.clone(), pod.key.clone(), tokio::time::Instant::now());
        status.ips = vec!["10.88.0.1".to_owned()];
        status.sandboxes = pod
            .sandboxes
            .iter()
            .map(|it| SandboxStatus::new(it.id.id(), it.state))
            .collect();
        status.containers = pod.containers.iter().map(container_status).collect();
        Ok(Arc::new(status))
    }
}

#[async_trait]
impl Runtime for Ready {
    fn runtime_type(&self) -> &str {
        "ready"
    }

    async fn status(&self) -> Result<RuntimeStatus> {
        Ok(RuntimeStatus::default())
    }

    async fn sync_pod(&self, pod: &Arc<Pod>, status: &PodStatus) -> PodSyncResult {
        if status.containers.is_empty() {
            let mut run = self.run.lock();
            let listed = run.get(pod.uid_str()).cloned();
            let listed = listed.unwrap_or_else(|| Arc::new(runtime_pod(pod)));
            run.insert(listed.uid.clone(), listed);
        }
        PodSyncResult::default()
    }

    async fn kill_pod(&self, _: Option<&Arc<Pod>>, _: &RuntimePod, _: Option<Duration>) -> Result<()> {
        Ok(())
    }
}

fn runtime_pod(pod: &Pod) -> RuntimePod {
    let id = |what: &str| ContainerId::new("ready", format!("{what}{:0>63}", pod.uid_str()));
    let mut running = RuntimePod::empty(pod.uid(), pod.key());
    running.sandboxes.push(Sandbox::new(id("0"), SandboxState::Ready));
    let names = ["a", "b"].into_iter();
    let containers = names.map(|name| {
        let mut container = Container::new(id(name), name, ContainerState::Running);
        container.image = "busybox:1.36".to_owned();
        container.image_id = IMAGE_ID.to_owned();
        container.image_ref = IMAGE_ID.to_owned();
        container.sandbox_id = running.sandboxes[0].id.id().to_owned();
        container.created_at = Some(Timestamp::UNIX_EPOCH);
        container
    });
    running.containers = containers.collect();
    running
}

const IMAGE_ID: &str = "sha256:3f57d9401f8d42f986df300f0c69192fc41da28ccc8d797829467780db3dd741";

/// The runtime's status of a container whose image exists.
fn container_status(listed: &Container) -> ContainerStatus {
    let mut status = ContainerStatus::new(listed.id.clone(), listed.name.clone(), listed.state);
    status.image.clone_from(&listed.image);
    status.image_id.clone_from(&listed.image_id);
    status.image_ref.clone_from(&listed.image_ref);
    status.sandbox_id.clone_from(&listed.sandbox_id);
    status.created_at = listed.created_at;
    status.started_at = listed.created_at;
    status
}

struct Nowhere;

#[async_trait]
impl StatusSink for Nowhere {
    async fn patch_status(
        &self,
        _: &Arc<Pod>,
        _: &ApiPodStatus,
        _: &ApiPodStatus,
    ) -> Result<Option<Arc<Pod>>> {
        Ok(None)
    }

    async fn delete(&self, _: &Arc<Pod>) -> Result<()> {
        Ok(())
    }
}

fn live() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// The memory of an agent with all pods running for minutes, and without pods.
async fn weight() {
    let folder = tempfile::tempdir().expect("no folder");
    let ready = Arc::new(Ready {
        run: Mutex::new(FxHashMap::with_capacity_and_hasher(PODS, FxBuildHasher)),
    });
    let cache = PodCache::new();
    // Sent once, and kept by nothing else.
    let snapshots = stream::once(async { (0..PODS).map(|index| Arc::new(pod(index))).collect() });
    let source = StreamSource::new("api", snapshots.chain(stream::pending()));
    let kubelet = Kubelet::builder()
        .pods(PodConfig::builder().source(source).build().expect("no sources"))
        .runtime(ready.clone())
        .pleg(GenericPleg::new(ready.clone(), cache.clone()), cache)
        .statuses(StatusManager::new(Nowhere))
        .root_dir(folder.path())
        .disk(Disk::inline())
        .jitter(Jitter::from_seed(1))
        .build()
        .expect("no agent");
    let (handle, shutdown) = (kubelet.handle(), CancellationToken::new());
    let before = live();
    let running = tokio::spawn(kubelet.run(shutdown.clone()));
    let settles = std::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(ready.run.lock().len(), PODS, "not all pods run");
    let (all, settled) = (live() - before, settles.elapsed());
    let one = handle.pods().pods().remove(0);
    let before_copy = live();
    let copy = Pod::clone(&one);
    let of_pod = live() - before_copy + std::mem::size_of::<Pod>();
    drop(copy);
    let before_copy = live();
    let copy = Arc::new(runtime_pod(&one));
    let of_list = live() - before_copy;
    drop(copy);
    let idles = std::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let minute = idles.elapsed() / 10;
    println!(
        "{PODS} pods begin and settle: {:.2} s of work in 5 min",
        settled.as_secs_f64()
    );
    println!("{PODS} idle pods: {:.0} ms of work each minute", millis(minute));
    println!(
        "an idle pod: {} B, of them the `Pod` {of_pod} B, and as its runtime lists it {of_list} B; beside both {} B",
        all / PODS,
        (all / PODS).saturating_sub(of_pod + of_list)
    );
    shutdown.cancel();
    running
        .await
        .expect("the agent panicked")
        .expect("the agent failed");
}
