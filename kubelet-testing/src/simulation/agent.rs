//! The agent of a simulated node.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube_client::Client;
use kubelet_config::{ApiServerSource, PodConfig};
use kubelet_core::{
    Clock, Disk, Event, EventRecorder, Jitter, Kubelet, PodCache, PodExt, PodStatusManager as _, PodUid,
    ProbeOutcome, ProbeResultCache, ProbeTarget, Prober, RootDir, VolumeManager,
};
use kubelet_cri::{CriRuntime, NodeProber, NodeSettings};
use kubelet_pleg::EventedPleg;
use kubelet_status::{ApiServerSink, StatusManager, StatusManagerConfig};
use tokio_util::sync::CancellationToken;

use super::history::Journal;
use crate::memory_cri::MemoryCri;

/// Why an agent ended.
pub type AgentError = Box<dyn std::error::Error + Send + Sync>;

/// What an agent of a [`Simulation`](super::Simulation) is given to work with: its node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SimulatedNode {
    /// The node's name. Its object exists.
    pub name: String,
    /// Where the API server is, as this node's kubelet.
    pub client: SimulatedClient,
    /// The container runtime.
    pub runtime: MemoryCri,
    /// The time of day, the same for all.
    pub clock: Clock,
    /// A folder of its own that outlives the agent's restarts.
    pub root_dir: PathBuf,
    /// What its jitter is to follow from; another at each start of the agent.
    pub seed: u64,
    /// Where its events go: into the history.
    pub recorder: HistoryRecorder,
}

/// A [`Client`] that can be shown.
#[derive(Clone)]
pub struct SimulatedClient(pub(super) Client);

impl SimulatedClient {
    /// The client. Clones share its connection.
    pub fn get(&self) -> Client {
        self.0.clone()
    }
}

impl std::fmt::Debug for SimulatedClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SimulatedClient")
    }
}

/// Starts an agent: called again when it was killed.
pub(super) type StartAgent =
    Arc<dyn Fn(SimulatedNode, CancellationToken) -> BoxFuture<'static, Result<(), AgentError>> + Send + Sync>;

pub(super) fn start_with<F>(
    start: impl Fn(SimulatedNode, CancellationToken) -> F + Send + Sync + 'static,
) -> StartAgent
where
    F: Future<Output = Result<(), AgentError>> + Send + 'static,
{
    Arc::new(move |node, shutdown| start(node, shutdown).boxed())
}

/// This project's agent, from its pieces.
pub(super) async fn run_kubelet(node: SimulatedNode, shutdown: CancellationToken) -> Result<(), AgentError> {
    let SimulatedNode {
        name,
        client,
        runtime,
        clock,
        root_dir,
        seed,
        recorder,
    } = node;
    let (jitter, disk) = (Jitter::from_seed(seed), Disk::inline());
    let source = ApiServerSource::new(client.get(), name).jitter(jitter.clone());
    let volumes = Arc::new(EmptyVolumes {
        root_dir: RootDir::new(&root_dir),
        pods: parking_lot::Mutex::default(),
    });
    let recorder = Arc::new(recorder);
    let runtime = Arc::new(runtime);
    let (results, prober) = (
        ProbeResultCache::new(),
        NodeProber::new(runtime.clone()).network(Reachable),
    );
    let mut config = StatusManagerConfig::default();
    config.clock = clock;
    let statuses = StatusManager::with_config(ApiServerSink::new(client.get()), config);
    let starting = CriRuntime::builder(runtime.clone(), runtime)
        .node(NodeSettings::default())
        .root_dir(&root_dir)
        .pod_logs_dir(root_dir.join("logs"))
        .disk(disk)
        .clock(clock)
        .volumes(volumes.clone())
        .events(recorder.clone())
        .probes(Arc::new(results.clone()))
        .statuses(statuses.reporter())
        .build();
    let Some(runtime) = shutdown.run_until_cancelled(starting).await else {
        return Ok(());
    };
    let (runtime, cache) = (Arc::new(runtime?), PodCache::new());
    let pleg = EventedPleg::new(runtime.clone(), cache.clone())
        .with_clock(clock)
        .with_jitter(jitter.clone());
    let kubelet = Kubelet::builder()
        .pods(PodConfig::builder().source(source).clock(clock).build()?)
        .runtime(runtime)
        .pleg(pleg, cache)
        .statuses(statuses)
        .recorder(recorder)
        .prober(prober, results)
        .clock(clock)
        .volumes(volumes)
        .root_dir(root_dir)
        .disk(disk)
        .jitter(jitter)
        .build()?;
    Ok(kubelet.run(shutdown).await?)
}

/// Whatever is probed over the network answers: there is none here.
struct Reachable;

#[async_trait]
impl Prober for Reachable {
    async fn probe(&self, _: &ProbeTarget) -> ProbeOutcome {
        ProbeOutcome::Success
    }
}

/// Notes events in the history.
#[derive(Clone, Debug)]
pub struct HistoryRecorder {
    pub(super) node: String,
    pub(super) journal: Journal,
}

impl EventRecorder for HistoryRecorder {
    fn record(&self, event: Event<'_>) {
        let key = event.pod.key();
        self.journal.note(format!(
            "{} event {} {key}: {}",
            self.node, event.reason, event.message
        ));
    }
}

/// Every volume is an empty folder. What is in volumes is nothing that a simulated container looks at.
#[derive(Debug)]
struct EmptyVolumes {
    root_dir: RootDir,
    pods: parking_lot::Mutex<BTreeMap<PodUid, BTreeMap<String, PathBuf>>>,
}

#[async_trait]
impl VolumeManager for EmptyVolumes {
    async fn wait_for_attach_and_mount(&self, pod: &Arc<Pod>) -> kubelet_core::Result<()> {
        let dir = self.root_dir.pod_dir(&pod.uid()).join("empty");
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let mounted: BTreeMap<_, _> = volumes
            .map(|volume| (volume.name.clone(), dir.join(&volume.name)))
            .collect();
        for path in mounted.values() {
            std::fs::create_dir_all(path)
                .map_err(|error| kubelet_core::Error::io(path, Some(&pod.uid()), error))?;
        }
        self.pods.lock().insert(pod.uid(), mounted);
        Ok(())
    }

    fn mounted_volumes(&self, uid: &PodUid) -> BTreeMap<String, PathBuf> {
        self.pods.lock().get(uid).cloned().unwrap_or_default()
    }

    async fn wait_for_unmount(&self, pod: &Arc<Pod>) -> kubelet_core::Result<()> {
        self.pods.lock().remove(&pod.uid());
        Ok(())
    }
}
