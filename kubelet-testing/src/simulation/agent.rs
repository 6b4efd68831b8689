//! The agent of a simulated node.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube_client::Client;
use kubelet_config::{ApiServerSource, ConfigObjectWatches, PodConfig, StreamSource};
use kubelet_core::{
    Clock, Disk, Event, EventRecorder, EventType, Jitter, Kubelet, KubeletHandle, LogEvents,
    NodeEventRecorder, PodCache, PodExt, PodStatusManager as _, PodWorkersConfig, ProbeOutcome,
    ProbeResultCache, ProbeTarget, Prober, annotations,
};
use kubelet_kuberuntime::{CriRuntime, NodeProber, NodeSettings};
use kubelet_pleg::{EventedPleg, GenericPleg};
use kubelet_resources::DEFAULT_RECONCILE_PERIOD;
use kubelet_status::{
    ApiServerMirrorClient, ApiServerNode, ApiServerSink, StatusManager, StatusManagerConfig,
};
use kubelet_volume::{NodeVolumes, NodeVolumesHandle};
use parking_lot::Mutex;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::csi;
use super::history::Journal;
use super::prepared_lists::PreparedLists;
use super::pressure::{Managers, SimulatedHost};
use super::resources::{self, SimulatedMachine};
use super::static_pods::StaticPods;
use super::storage;
use crate::MemoryMounter;
use crate::csi_driver::MemoryCsi;
use crate::memory_cri::{MemoryCri, hash};

/// How often an agent tries to start, and the pause between attempts.
const START_TRIES: u32 = 600;
const START_PAUSE: Duration = Duration::from_secs(1);

/// The error of an agent.
pub type AgentError = Box<dyn std::error::Error + Send + Sync>;

/// The node for an agent of a [`Simulation`](super::Simulation): everything that the agent needs. It can also be a
/// hollow node: an agent with a runtime of your choice that only pretends to run containers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SimulatedNode {
    /// The node's name. Its object exists.
    pub name: String,
    /// A client of the API server, with the rights of this node's kubelet.
    pub client: SimulatedClient,
    /// The container runtime.
    pub runtime: MemoryCri,
    /// What is mounted on it.
    pub mounter: MemoryMounter,
    /// The driver of its CSI volumes.
    pub csi: MemoryCsi,
    /// Its static pods, instead of a folder of manifests.
    pub static_pods: StaticPods,
    /// The clock, shared by all nodes.
    pub clock: Clock,
    /// The agent's folder, which outlives restarts of the agent.
    pub root_dir: PathBuf,
    /// The seed of its jitter. It differs at each start of the agent.
    pub seed: u64,
    /// The recorder that writes its events to the history.
    pub recorder: HistoryRecorder,
    pub(super) shown: Shown,
    pub(super) checkpoints: bool,
    pub(super) pace: Pace,
    /// Its CPUs, memory and devices, if the agent manages them.
    pub(super) machine: Option<SimulatedMachine>,
    /// What the node runs short of, and its shutdown; `None` if it never does.
    pub(super) host: Option<SimulatedHost>,
}

/// How often an agent does its periodic work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// It gets no events from its runtime, and lists it every second.
    Generic,
    /// The kubelet's default periods, except for the PLEG.
    Evented,
    /// The longest periods: it depends on events.
    Restful,
}

impl Pace {
    /// One agent in eight has the first, three in eight the second. With more quiet time than busy time it is a
    /// quarter of that: periodic work is always the same while nothing changes, and most of the cost of a simulated
    /// day.
    pub(super) fn drawn(seed: u64, is_by_turns: bool) -> Self {
        match seed % if is_by_turns { 32 } else { 8 } {
            0 => Self::Generic,
            1..=3 => Self::Evented,
            _ => Self::Restful,
        }
    }

    /// How often running containers get the CPUs that they should have.
    fn reconcile(self) -> Duration {
        match self {
            Self::Generic | Self::Evented => DEFAULT_RECONCILE_PERIOD,
            Self::Restful => RECONCILE,
        }
    }
}

/// The periods of an agent with long periods: updates of the CPUs of containers, resync of pods, status of the runtime, and lists of the
/// runtime before its first event.
const RECONCILE: Duration = Duration::from_secs(120);
const RESYNC: Duration = Duration::from_secs(600);
const RUNTIME_STATUS: Duration = Duration::from_secs(120);
const RELIST: Duration = Duration::from_secs(30);

/// What an agent shows of its state.
pub(super) type Shown = Arc<Mutex<Option<KubeletHandle>>>;

impl SimulatedNode {
    /// A hollow node on this API server, where you must create the node's object first. `root_dir` must be absolute.
    pub fn new(name: impl Into<String>, client: Client, clock: Clock, root_dir: impl Into<PathBuf>) -> Self {
        let name = name.into();
        let mounter = MemoryMounter::new(hash(1, &name));
        Self {
            client: SimulatedClient(client),
            runtime: MemoryCri::new(clock),
            csi: MemoryCsi::with_memory_mounts("csi.sim", mounter.clone()),
            mounter,
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
            machine: None,
            host: None,
            name,
        }
    }

    /// The state that the agent shows; `None` until it shows it.
    pub fn kubelet(&self) -> Option<KubeletHandle> {
        self.shown.lock().clone()
    }

    /// Shows the simulation what this agent keeps in memory. The simulation checks that nothing stays of deleted
    /// pods.
    pub fn show(&self, kubelet: KubeletHandle) {
        *self.shown.lock() = Some(kubelet);
    }

    /// Runs this project's agent until `shutdown`, assembled from its parts.
    ///
    /// In a simulation the seed draws how the agent works. One agent in eight gets no events from its runtime and
    /// lists it every second. Three in eight have the kubelet's default periods. If there is quiet time, by
    /// [`by_turns`](crate::Simulation::by_turns), these are one and three in 32. The other agents have long periods:
    /// they resync pods every ten minutes, ask their runtime for its status every two minutes, and list it every 30
    /// seconds until the first event.
    ///
    /// # Errors
    ///
    /// The agent cannot be assembled, or it fails.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future kills the agent.
    pub async fn run_kubelet(self, shutdown: CancellationToken) -> Result<(), AgentError> {
        // Boxed, because it is no longer needed while the agent runs.
        let assembled = Box::pin(self.assemble());
        match shutdown.run_until_cancelled(assembled).await {
            Some(assembled) => assembled?.run(shutdown).await,
            None => Ok(()),
        }
    }

    /// Assembles the agent, once its runtime answers.
    async fn assemble(self) -> Result<Assembled, AgentError> {
        let Self {
            name,
            client,
            runtime,
            mounter,
            csi,
            static_pods,
            clock,
            root_dir,
            seed,
            recorder,
            shown,
            checkpoints,
            pace,
            machine,
            host,
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
        let (node, recorder) = (Arc::new(node), Arc::new(recorder));
        let (engine, objects) = storage::volumes(storage::Parts {
            name: &name,
            root_dir: &root_dir,
            client: client.get(),
            mounter,
            csi,
            clock,
            jitter: jitter.clone(),
            recorder: recorder.clone(),
            node: node.clone(),
        })?;
        let runtime = Arc::new(runtime);
        let resources = match machine {
            Some(machine) => {
                let (client, jitter) = (client.get(), jitter.clone());
                let reconcile = pace.reconcile();
                Some(resources::Managers::start(machine, &runtime, client, &name, jitter, reconcile).await?)
            }
            None => None,
        };
        let volumes = Arc::new(engine.handle());
        let reporter = Reporter {
            client: client.get(),
            name,
            volumes: engine.handle(),
        };
        let (results, prober) = (
            ProbeResultCache::new(),
            NodeProber::new(runtime.clone()).network(Reachable),
        );
        let mut config = StatusManagerConfig::default();
        config.clock = clock;
        let statuses = StatusManager::with_config(ApiServerSink::new(client.get()), config);
        let memory = runtime.clone();
        let mut settings = NodeSettings::default();
        // The runtime mounts nothing, and gets the paths in the volumes.
        settings.mount_sub_paths = false;
        let start = || {
            let builder = CriRuntime::builder(runtime.clone(), runtime.clone());
            let builder = match &resources {
                Some(resources) => resources.runtime(builder),
                None => builder,
            };
            builder
                .node(settings.clone())
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
        // A service manager would restart it while the runtime is away.
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
        let managers = host.map(Managers::new).transpose()?;
        let kubelet = match &managers {
            Some(managers) => managers.admission(kubelet),
            None => kubelet,
        };
        let kubelet = match &resources {
            Some(resources) => resources.admission(kubelet),
            None => kubelet,
        };
        let last_shutdown = root_dir.clone();
        let kubelet = kubelet
            .pods(pods.build()?)
            .runtime(runtime)
            .statuses(statuses)
            .recorder(recorder.clone())
            .prober(prober, results)
            .clock(clock)
            .volumes(volumes)
            .node(node)
            .mirrors(Arc::new(ApiServerMirrorClient::new(client.get())))
            .root_dir(root_dir)
            .checkpoints(checkpoints)
            .disk(disk)
            .jitter(jitter)
            .build()?;
        *shown.lock() = Some(kubelet.handle());
        Ok(Assembled {
            kubelet,
            volumes: engine,
            objects,
            managers,
            resources,
            recorder,
            clock,
            root_dir: last_shutdown,
            reporter,
        })
    }
}

/// The parts of an agent that run.
struct Assembled {
    kubelet: Kubelet,
    volumes: NodeVolumes,
    objects: ConfigObjectWatches,
    managers: Option<Managers>,
    resources: Option<resources::Managers>,
    recorder: Arc<HistoryRecorder>,
    clock: Clock,
    root_dir: PathBuf,
    reporter: Reporter,
}

/// Reports which volumes the node uses.
struct Reporter {
    client: Client,
    name: String,
    volumes: NodeVolumesHandle,
}

impl Reporter {
    async fn run(self, shutdown: CancellationToken) {
        let report = csi::report_in_use(self.client, &self.name, &self.volumes);
        shutdown.run_until_cancelled(report).await;
    }
}

impl Assembled {
    async fn run(self, shutdown: CancellationToken) -> Result<(), AgentError> {
        let pods = self.kubelet.handle();
        // The volumes stay until the last pod has been synced.
        let last = CancellationToken::new();
        let (volumes, objects) = (self.volumes.run(last.clone()), last.clone());
        let objects = self.objects.run(move || pods.pods().pods(), objects);
        let (handle, ends) = (self.kubelet.handle(), shutdown.clone());
        let managers = async {
            if let Some(managers) = self.managers {
                managers
                    .run(handle, self.recorder, self.clock, &self.root_dir, ends)
                    .await;
            }
        };
        let reporter = self.reporter.run(last.clone());
        let (handle, ends) = (self.kubelet.handle(), last.clone());
        let resources = async {
            if let Some(resources) = self.resources {
                resources.run(handle, ends).await;
            }
        };
        let kubelet = async {
            let ended = self.kubelet.run(shutdown).await;
            last.cancel();
            ended
        };
        let (ended, (), (), (), (), ()) =
            tokio::join!(kubelet, volumes, objects, managers, reporter, resources);
        Ok(ended?)
    }
}

/// The node object to register.
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

/// A [`Client`] that implements `Debug`.
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

/// Starts an agent. Called again after the agent was killed.
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

/// All network probes succeed, because there is no network.
struct Reachable;

#[async_trait]
impl Prober for Reachable {
    async fn probe(&self, _: &ProbeTarget) -> ProbeOutcome {
        ProbeOutcome::Success
    }
}

/// Writes events to the history; outside of a simulation, to the log.
#[derive(Clone, Debug)]
pub struct HistoryRecorder {
    pub(super) node: String,
    /// `None` outside of a simulation.
    pub(super) journal: Option<Journal>,
}

impl HistoryRecorder {
    /// Writes a step of the node.
    pub(super) fn note(&self, what: String) {
        if let Some(journal) = &self.journal {
            journal.note(format!("{} {what}", self.node));
        }
    }
}

impl NodeEventRecorder for HistoryRecorder {
    fn record_node(&self, event_type: EventType, reason: &str, message: String) {
        match &self.journal {
            Some(_) => self.note(format!("event {reason}: {message}")),
            None => LogEvents.record_node(event_type, reason, message),
        }
    }
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
