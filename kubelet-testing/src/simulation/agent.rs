//! The agent of a simulated node.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube_client::Client;
use kubelet_config::{ApiServerSource, PodConfig, StreamSource};
use kubelet_core::{
    Clock, Disk, Event, EventRecorder, Jitter, Kubelet, KubeletHandle, LogEvents, PodCache, PodExt,
    PodStatusManager as _, PodUid, PodWorkersConfig, ProbeOutcome, ProbeResultCache, ProbeTarget, Prober,
    RootDir, VolumeManager, annotations,
};
use kubelet_kuberuntime::{CriRuntime, NodeProber, NodeSettings};
use kubelet_pleg::{EventedPleg, GenericPleg};
use kubelet_status::{
    ApiServerMirrorClient, ApiServerNode, ApiServerSink, StatusManager, StatusManagerConfig,
};
use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::history::Journal;
use super::prepared_lists::PreparedLists;
use super::static_pods::StaticPods;
use crate::memory_cri::{MemoryCri, hash};

/// How often an agent tries to begin, and how long it pauses between.
const START_TRIES: u32 = 600;
const START_PAUSE: Duration = Duration::from_secs(1);

/// Why an agent ended.
pub type AgentError = Box<dyn std::error::Error + Send + Sync>;

/// What an agent of a [`Simulation`](super::Simulation) is given to work with: its node. Or a hollow node of one's own, in a
/// runtime of one's own: an agent whose containers are pretended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SimulatedNode {
    /// The node's name. Its object exists.
    pub name: String,
    /// Where the API server is, as this node's kubelet.
    pub client: SimulatedClient,
    /// The container runtime.
    pub runtime: MemoryCri,
    /// Its static pods, in place of a folder of manifests.
    pub static_pods: StaticPods,
    /// The time of day, the same for all.
    pub clock: Clock,
    /// A folder of its own that outlives the agent's restarts.
    pub root_dir: PathBuf,
    /// What its jitter is to follow from; another at each start of the agent.
    pub seed: u64,
    /// Where its events go: into the history.
    pub recorder: HistoryRecorder,
    pub(super) shown: Shown,
    pub(super) checkpoints: bool,
    pub(super) pace: Pace,
}

/// How often an agent looks at what nobody told it had changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// It hears no events of its runtime, and lists it each second.
    Generic,
    /// As a kubelet by default, but for its PLEG.
    Evented,
    /// As rarely as may be: it must hear of all that happens.
    Restful,
}

impl Pace {
    /// One in eight of the first, three of the second; a quarter as many where there is more rest than work: what they do while
    /// nothing changes is always the same, and most of what a day costs.
    pub(super) fn drawn(seed: u64, is_by_turns: bool) -> Self {
        match seed % if is_by_turns { 32 } else { 8 } {
            0 => Self::Generic,
            1..=3 => Self::Evented,
            _ => Self::Restful,
        }
    }
}

/// The periods of an agent that rests: in which pods are synced again, its runtime is asked how it is, and is listed while its
/// events have told of nothing yet.
const RESYNC: Duration = Duration::from_secs(600);
const RUNTIME_STATUS: Duration = Duration::from_secs(120);
const RELIST: Duration = Duration::from_secs(30);

/// What an agent shows of itself.
pub(super) type Shown = Arc<Mutex<Option<KubeletHandle>>>;

impl SimulatedNode {
    /// A hollow node on this API server, where its object is to be made beforehand. `root_dir` must be absolute.
    pub fn new(name: impl Into<String>, client: Client, clock: Clock, root_dir: impl Into<PathBuf>) -> Self {
        let name = name.into();
        Self {
            client: SimulatedClient(client),
            runtime: MemoryCri::new(clock),
            static_pods: StaticPods::default(),
            clock,
            root_dir: root_dir.into(),
            seed: hash(0, &name),
            recorder: HistoryRecorder {
                node: name.clone(),
                journal: None,
            },
            shown: Shown::default(),
            checkpoints: false,
            pace: Pace::Evented,
            name,
        }
    }

    /// What the agent shows of itself, once it does.
    pub fn kubelet(&self) -> Option<KubeletHandle> {
        self.shown.lock().clone()
    }

    /// Shows the simulation what this agent keeps in memory: nothing may stay of a pod that is gone.
    pub fn show(&self, kubelet: KubeletHandle) {
        *self.shown.lock() = Some(kubelet);
    }

    /// Runs this project's agent, from its pieces, until `shutdown`. In a simulation one in eight, by the seed, hears no events
    /// of its runtime and lists it each second, and three in eight do all else as often as a kubelet does by default; where it
    /// is busy [by turns](crate::Simulation::by_turns), of 32. The others rest as long as may be: they sync pods every ten minutes, ask their runtime how it is every two, and list it each half
    /// minute until its events have told of something.
    ///
    /// # Errors
    ///
    /// When the agent cannot be made, or cannot go on.
    ///
    /// # Cancel safety
    ///
    /// Dropping it is as killing the agent.
    pub async fn run_kubelet(self, shutdown: CancellationToken) -> Result<(), AgentError> {
        // Boxed, since it is over when the agent runs.
        let assembled = Box::pin(self.assemble());
        match shutdown.run_until_cancelled(assembled).await {
            Some(kubelet) => Ok(kubelet?.run(shutdown).await?),
            None => Ok(()),
        }
    }

    /// Puts the agent together, once its runtime answers.
    async fn assemble(self) -> Result<Kubelet, AgentError> {
        let Self {
            name,
            client,
            runtime,
            static_pods,
            clock,
            root_dir,
            seed,
            recorder,
            shown,
            checkpoints,
            pace,
        } = self;
        let (jitter, disk) = (Jitter::from_seed(seed), Disk::inline());
        let pods = PodConfig::builder()
            .source(StreamSource::new(
                annotations::FILE_SOURCE,
                static_pods.snapshots(),
            ))
            .source(ApiServerSource::new(client.get(), &name).jitter(jitter.clone()))
            .clock(clock);
        let initial_node = Arc::new(node_object(&name));
        let node = ApiServerNode::new(client.get(), &name).with_initial_node(initial_node);
        let volumes = Arc::new(EmptyVolumes {
            root_dir: RootDir::new(&root_dir),
            pods: Mutex::default(),
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
        let memory = runtime.clone();
        let start = || {
            CriRuntime::builder(runtime.clone(), runtime.clone())
                .node(NodeSettings::default())
                .root_dir(&root_dir)
                .pod_logs_dir(root_dir.join("logs"))
                .disk(disk)
                .clock(clock)
                .volumes(volumes.clone())
                .events(recorder.clone())
                .probes(Arc::new(results.clone()))
                .statuses(statuses.reporter())
                .build()
        };
        // A service manager would start it again while the runtime is away.
        let starting = async {
            for _ in 1..START_TRIES {
                if let Ok(runtime) = start().await {
                    return Ok(runtime);
                }
                sleep(START_PAUSE).await;
            }
            start().await
        };
        let (runtime, cache) = (Arc::new(starting.await?), PodCache::new());
        let lists = Arc::new(PreparedLists::new(runtime.clone(), memory));
        let mut kubelet = Kubelet::builder();
        if pace == Pace::Restful {
            let workers = PodWorkersConfig {
                resync_interval: RESYNC,
                ..PodWorkersConfig::default()
            };
            kubelet = kubelet.workers(workers).runtime_status_period(RUNTIME_STATUS);
        }
        let kubelet = match pace {
            Pace::Generic => kubelet.pleg(GenericPleg::new(lists, cache.clone()).with_clock(clock), cache),
            Pace::Evented | Pace::Restful => {
                let mut pleg = EventedPleg::new(lists, cache.clone()).with_clock(clock);
                if pace == Pace::Restful {
                    pleg = pleg.with_relist_period(RELIST);
                }
                kubelet.pleg(pleg.with_jitter(jitter.clone()), cache)
            }
        };
        let kubelet = kubelet
            .pods(pods.build()?)
            .runtime(runtime)
            .statuses(statuses)
            .recorder(recorder)
            .prober(prober, results)
            .clock(clock)
            .volumes(volumes)
            .node(Arc::new(node))
            .mirrors(Arc::new(ApiServerMirrorClient::new(client.get())))
            .root_dir(root_dir)
            .checkpoints(checkpoints)
            .disk(disk)
            .jitter(jitter)
            .build()?;
        *shown.lock() = Some(kubelet.handle());
        Ok(kubelet)
    }
}

/// The node as it is registered.
pub(super) fn node_object(name: &str) -> Node {
    let quantity = |of: &str, amount: &str| (of.to_owned(), Quantity(amount.to_owned()));
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    node.metadata.labels = Some(BTreeMap::from([(
        "kubernetes.io/hostname".to_owned(),
        name.to_owned(),
    )]));
    let amounts = [("cpu", "4"), ("memory", "8Gi"), ("pods", "110")];
    let amounts: BTreeMap<_, _> = amounts
        .into_iter()
        .map(|(of, amount)| quantity(of, amount))
        .collect();
    let status = node.status.get_or_insert_default();
    status.capacity = Some(amounts.clone());
    status.allocatable = Some(amounts);
    node
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

/// Whatever is probed over the network answers: there is none here.
struct Reachable;

#[async_trait]
impl Prober for Reachable {
    async fn probe(&self, _: &ProbeTarget) -> ProbeOutcome {
        ProbeOutcome::Success
    }
}

/// Notes events in the history; outside of a simulation, in the log.
#[derive(Clone, Debug)]
pub struct HistoryRecorder {
    pub(super) node: String,
    /// None outside of a simulation.
    pub(super) journal: Option<Journal>,
}

impl EventRecorder for HistoryRecorder {
    fn record(&self, event: Event<'_>) {
        let Some(journal) = &self.journal else {
            return LogEvents.record(event);
        };
        let key = event.pod.key();
        journal.note(format!(
            "{} event {} {key}: {}",
            self.node, event.reason, event.message
        ));
    }
}

/// Every volume is an empty folder. What is in volumes is nothing that a simulated container looks at.
#[derive(Debug)]
struct EmptyVolumes {
    root_dir: RootDir,
    /// The names of what is mounted.
    pods: Mutex<BTreeMap<PodUid, Box<[Box<str>]>>>,
}

impl EmptyVolumes {
    fn dir(&self, uid: &PodUid) -> PathBuf {
        self.root_dir.pod_dir(uid).join("empty")
    }
}

#[async_trait]
impl VolumeManager for EmptyVolumes {
    async fn wait_for_attach_and_mount(&self, pod: &Arc<Pod>) -> kubelet_core::Result<()> {
        let dir = self.dir(&pod.uid());
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let mounted: Box<[Box<str>]> = volumes.map(|volume| volume.name.as_str().into()).collect();
        for name in &mounted {
            let path = dir.join(&**name);
            std::fs::create_dir_all(&path)
                .map_err(|error| kubelet_core::Error::io(&path, Some(&pod.uid()), error))?;
        }
        self.pods.lock().insert(pod.uid(), mounted);
        Ok(())
    }

    fn mounted_volumes(&self, uid: &PodUid) -> BTreeMap<String, PathBuf> {
        let (dir, pods) = (self.dir(uid), self.pods.lock());
        let mounted = pods.get(uid).into_iter().flatten();
        mounted
            .map(|name| (name.to_string(), dir.join(&**name)))
            .collect()
    }

    async fn wait_for_unmount(&self, pod: &Arc<Pod>) -> kubelet_core::Result<()> {
        self.pods.lock().remove(&pod.uid());
        Ok(())
    }
}
