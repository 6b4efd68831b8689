//! The builder of an agent: which part is replaced by one of your own.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

#[cfg(feature = "apiserver")]
use kube_client::Client;
use kubelet_core::runtime::streaming::StreamingRuntime;
use kubelet_core::runtime::{ContainerLogs, Runtime};
use kubelet_core::{
    Clock, ConfigObjects, Disk, EventRecorder, Jitter, KubeletBuilder, NodeEventRecorder, NodeGetter,
    PodAdmitHandler, PodSource, Prober, StatsProvider, StatusSink, SummaryProvider, VolumeManager,
};
use kubelet_cri::verbs::{ContainerRuntime, CriAdapterBuilder};
use kubelet_cri::{ImageService, RuntimeService};
use kubelet_kuberuntime::CriRuntimeBuilder;
use kubelet_node::LocalNodeBuilder;
#[cfg(feature = "server")]
use kubelet_server::{LogVerbosity, MetricsSource, NodeApiBuilder, Profiler};
use kubelet_volume::{NodeVolumesBuilder, VolumePlugin};

use crate::agent::NodeAgent;
use crate::check;
use crate::compose;
use crate::error::Result;
use crate::parts::Parts;
use crate::problem::{Problem, Problems};
use crate::rooms::runtime::RuntimeChoice;
use crate::settings::Settings;

/// The builder has no runtime yet, and no `build`. Call [`cri`](NodeAgentBuilder::cri),
/// [`services`](NodeAgentBuilder::services), [`containers`](NodeAgentBuilder::containers) or [`pods`](NodeAgentBuilder::pods).
#[derive(Debug)]
pub enum NoRuntime {}

/// The builder has a runtime of containers: CRI, or five verbs. Pods, probes, hooks, images and restarts are built on it.
#[derive(Debug)]
pub enum OfContainers {}

/// The builder has a runtime that handles whole pods. What happens to containers is its own affair.
#[derive(Debug)]
pub enum OfPods {}

/// Builds a [`NodeAgent`]. Each part has a default, and a method for one of your own. The type parameter is the height of
/// the runtime: a method that does not fit a runtime does not exist.
///
/// ```compile_fail
/// # async fn example() {
/// // No runtime: there is no `build`.
/// kubelet_agent::NodeAgent::builder(kubelet_agent::Settings::new("/tmp/agent")).build().await;
/// # }
/// ```
///
/// ```compile_fail
/// # fn example(runtime: std::sync::Arc<dyn kubelet_core::Runtime>) {
/// // A runtime of whole pods has no containers to configure.
/// let builder = kubelet_agent::NodeAgent::builder(kubelet_agent::Settings::new("/tmp/agent")).pods(runtime);
/// builder.configure_containers(|containers| containers);
/// # }
/// ```
#[must_use]
pub struct NodeAgentBuilder<Height = NoRuntime> {
    parts: Parts,
    height: PhantomData<fn() -> Height>,
}

impl NodeAgent {
    /// A builder with these settings.
    pub fn builder(settings: Settings) -> NodeAgentBuilder {
        NodeAgentBuilder {
            parts: Parts::new(settings),
            height: PhantomData,
        }
    }
}

impl NodeAgentBuilder<NoRuntime> {
    /// The CRI runtime at `containerRuntimeEndpoint` and `imageServiceEndpoint` of the configuration.
    /// [`build`](NodeAgentBuilder::build) waits until it answers.
    #[cfg(feature = "cri")]
    pub fn cri(self) -> NodeAgentBuilder<OfContainers> {
        self.with(RuntimeChoice::Endpoint)
    }

    /// A CRI runtime of your own: all calls of CRI.
    pub fn services(
        self,
        runtime: Arc<dyn RuntimeService>,
        images: Arc<dyn ImageService>,
    ) -> NodeAgentBuilder<OfContainers> {
        self.with(RuntimeChoice::Services(runtime, images))
    }

    /// A runtime of your own with the five verbs: list, inspect, start, stop, remove. An adapter makes pods of its containers.
    /// With the feature `server`, its streams are served to `kubectl exec`, `attach` and `port-forward`.
    pub fn containers(self, runtime: Arc<dyn ContainerRuntime>) -> NodeAgentBuilder<OfContainers> {
        self.with(RuntimeChoice::Verbs(runtime))
    }

    /// A runtime of your own that handles whole pods.
    pub fn pods(self, runtime: Arc<dyn Runtime>) -> NodeAgentBuilder<OfPods> {
        self.with(RuntimeChoice::Pods(runtime))
    }

    fn with<Height>(mut self, runtime: RuntimeChoice) -> NodeAgentBuilder<Height> {
        self.parts.runtime.choice = runtime;
        NodeAgentBuilder {
            parts: self.parts,
            height: PhantomData,
        }
    }
}

impl NodeAgentBuilder<OfContainers> {
    /// Changes the manager of containers before it is built, e.g. the name of its runtime.
    ///
    /// ```no_run
    /// # fn example(builder: kubelet_agent::NodeAgentBuilder<kubelet_agent::OfContainers>) {
    /// builder.configure_containers(|manager| manager.runtime_type("my-runtime"));
    /// # }
    /// ```
    pub fn configure_containers(
        mut self,
        change: impl FnOnce(CriRuntimeBuilder) -> CriRuntimeBuilder + Send + 'static,
    ) -> Self {
        self.parts.runtime.changes.push(Box::new(change));
        self
    }

    /// Changes the adapter that makes pods of the containers of a [runtime of verbs](Self::containers) before it is built, e.g. the
    /// reported IP of its pods. Other runtimes have none.
    ///
    /// ```no_run
    /// # fn example(builder: kubelet_agent::NodeAgentBuilder<kubelet_agent::OfContainers>, ip: std::net::IpAddr) {
    /// builder.configure_adapter(move |adapter| adapter.pod_ip(ip));
    /// # }
    /// ```
    pub fn configure_adapter(
        mut self,
        change: impl FnOnce(CriAdapterBuilder) -> CriAdapterBuilder + Send + 'static,
    ) -> Self {
        self.parts.runtime.adapter.push(Box::new(change));
        self
    }

    /// Config maps and secrets, for environment variables and volumes. By default they come from the API server.
    pub fn config_objects(mut self, objects: Arc<dyn ConfigObjects>) -> Self {
        self.parts.config_objects = Some(objects);
        self
    }

    /// The NUMA nodes whose CPUs and memory containers get. By default they are those of this machine.
    pub fn numa_nodes(mut self, machine: kubelet_resources::Machine) -> Self {
        self.parts.numa_nodes = Some(machine);
        self
    }

    /// Builds the agent. Nothing runs yet. Waits until the runtime answers, because an agent may start before its runtime.
    ///
    /// # Errors
    ///
    /// [`Error::Misconfigured`](crate::Error::Misconfigured) with all problems of the settings, before anything else is done;
    /// then the error of the part that cannot be built.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time. Folders that it created stay.
    pub async fn build(self) -> Result<NodeAgent> {
        // On the heap, which is free again when the agent runs.
        Box::pin(compose::compose(self.parts)).await
    }
}

impl NodeAgentBuilder<OfPods> {
    /// How the logs of containers are read. By default, `kubectl logs` fails.
    pub fn logs(mut self, logs: Arc<dyn ContainerLogs>) -> Self {
        self.parts.runtime.logs = Some(logs);
        self
    }

    /// How commands run in containers. By default, `kubectl exec` fails.
    pub fn streaming(mut self, streaming: Arc<dyn StreamingRuntime>) -> Self {
        self.parts.runtime.streaming = Some(streaming);
        self
    }

    /// Builds the agent, as a builder of containers does.
    ///
    /// # Errors
    ///
    /// [`Error::Misconfigured`](crate::Error::Misconfigured) with all problems of the settings, before anything else is done;
    /// then the error of the part that cannot be built.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time. Folders that it created stay.
    pub async fn build(self) -> Result<NodeAgent> {
        // On the heap, which is free again when the agent runs.
        Box::pin(compose::compose(self.parts)).await
    }
}

/// Parts that fit every runtime.
impl<Height> NodeAgentBuilder<Height> {
    /// All for which `build` would refuse the settings, on whatever machine. Does nothing. `build` asks the same.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = Problems::default();
        check::settings(&self.parts, &mut problems);
        problems.into_found()
    }

    /// All for which `build` would refuse the settings on this machine: as [`problems`](Self::problems), and what the machine lacks,
    /// such as files, folders, CPUs and cgroups. It asks neither the runtime nor the API server, and leaves nothing behind: to see
    /// whether a folder can be written, it creates a folder there and removes it. `build` asks the same.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn problems_on_this_machine(&self) -> Vec<Problem> {
        check::all(&self.parts).await.into_found()
    }

    /// Adds a source of pods, beside the files, the URL and the API server of the settings.
    pub fn source(mut self, source: impl PodSource) -> Self {
        self.parts.sources = self.parts.sources.source(source);
        self
    }

    /// Adds a sink of statuses. Without sinks and without a cluster, statuses are logged.
    pub fn sink(mut self, sink: Arc<dyn StatusSink>) -> Self {
        self.parts.sinks.push(sink);
        self
    }

    /// Adds an admission handler, called before those of the agent.
    pub fn admission(mut self, handler: Arc<dyn PodAdmitHandler>) -> Self {
        self.parts.admission.push(handler);
        self
    }

    /// Probes containers. By default, a runtime of containers is probed as by a kubelet, and a runtime of pods is not.
    pub fn prober(mut self, prober: impl Prober) -> Self {
        self.parts.prober = Some(Box::new(prober));
        self
    }

    /// Records the events about pods and the node. By default they go to the API server, or to the log without a cluster.
    pub fn events<R: EventRecorder + NodeEventRecorder + 'static>(mut self, recorder: Arc<R>) -> Self {
        self.parts.recorders = Some((recorder.clone(), recorder));
        self
    }

    /// Mounts volumes, instead of the volume manager of `kubelet-volume`.
    pub fn volumes(mut self, volumes: Arc<dyn VolumeManager>) -> Self {
        self.parts.volumes.manager = Some(volumes);
        self
    }

    /// The node that pods must fit, for an agent without a cluster.
    pub fn node(mut self, node: Arc<dyn NodeGetter>) -> Self {
        self.parts.node.getter = Some(node);
        self
    }

    /// Changes the pod lifecycle engine before it is built, e.g. its periods.
    pub fn configure_kubelet(
        mut self,
        change: impl FnOnce(KubeletBuilder) -> KubeletBuilder + Send + 'static,
    ) -> Self {
        self.parts.kubelet.push(Box::new(change));
        self
    }

    /// The wall clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.parts.clock = clock;
        self
    }

    /// Which thread does file work.
    pub fn disk(mut self, disk: Disk) -> Self {
        self.parts.disk = disk;
        self
    }

    /// The source of randomness.
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.parts.jitter = Some(jitter);
        self
    }

    /// Joins the cluster with this client, instead of the settings' kubeconfig.
    #[cfg(feature = "apiserver")]
    pub fn client(mut self, client: Client) -> Self {
        self.parts.cluster.client = Some(client);
        self
    }

    /// Makes the node a cluster of its own, with an API server in the process of the agent: `kubectl` connects to `address`, over
    /// HTTPS, and there is no control plane and no etcd. `api.redb` in the folder of the agent keeps the objects; what was
    /// acknowledged is there after a `kill -9`. `kubeconfig` beside it is the administrator's. The certificates are the server's own.
    ///
    /// Pods are bound to this node when they are created; there is no other scheduler. They run on when the agent ends, and the next
    /// agent takes them over. `kubectl top` works, too.
    ///
    /// When [`run`](NodeAgent::run) has returned, the file is closed, and the next agent on the folder may be in the same process.
    /// Handles and clients of the ended agent may be kept.
    ///
    /// The API server reaches the node inside the process, so `enableServer` has to be off. It authorizes its clients. The folder of
    /// the agent must belong to this user alone (mode 0700). [`build`](NodeAgentBuilder::build) opens the file and the port, writes
    /// the kubeconfig, and sets `nodeLeaseDurationSeconds` to 3600 and `enableControllerAttachDetach` to false.
    /// [`AgentHandle::api_server`](crate::AgentHandle::api_server) has the address.
    ///
    /// ```
    /// # async fn example() -> kubelet_agent::Result<()> {
    /// use kubelet_agent::{NodeAgent, Settings};
    ///
    /// let mut settings = Settings::new("/var/lib/my-node");
    /// settings.configuration.container_runtime_endpoint = "unix:///run/containerd/containerd.sock".to_owned();
    /// # #[cfg(feature = "cri")]
    /// let agent = NodeAgent::builder(settings).cri().serve_kubectl(([127, 0, 0, 1], 6443).into()).build().await?;
    /// // export KUBECONFIG=/var/lib/my-node/kubeconfig
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "api")]
    pub fn serve_kubectl(mut self, address: std::net::SocketAddr) -> Self {
        self.parts.own_api.address = Some(address);
        self
    }

    /// Serves pages to look at the node and its pods: [`kubelet_server::console`].
    #[cfg(feature = "server")]
    pub fn console(mut self, at: crate::ConsoleAt) -> Self {
        self.parts.console.at = Some(at);
        self
    }

    /// The metrics from which the console plots how long relists and syncs take. By default it plots nothing.
    #[cfg(feature = "server")]
    pub fn console_durations(mut self, durations: Arc<dyn kubelet_server::console::Durations>) -> Self {
        self.parts.console.durations = Some(durations);
        self
    }

    /// What answers `/stats/summary`, `/metrics/cadvisor` and `/metrics/resource`. By default, this host and its cgroups are
    /// measured.
    pub fn stats(mut self, stats: Arc<dyn StatsProvider>) -> Self {
        self.parts.stats.provider = Some(stats);
        self
    }

    /// What measures the usage by which pods are evicted. By default, as for [`stats`](Self::stats).
    pub fn summaries(mut self, summaries: Arc<dyn SummaryProvider>) -> Self {
        self.parts.stats.summaries = Some(summaries);
        self
    }

    /// Changes the node before it is built: setters of its status, checks that it is ready, its network.
    pub fn configure_node(
        mut self,
        change: impl FnOnce(LocalNodeBuilder) -> LocalNodeBuilder + Send + 'static,
    ) -> Self {
        self.parts.node.changes.push(Box::new(change));
        self
    }

    /// The machine that the node reports. By default it is this one.
    pub fn machine(mut self, machine: kubelet_node::MachineInfo) -> Self {
        self.parts.node.machine = Some(machine);
        self
    }

    /// Adds a plugin for a kind of volume.
    pub fn volume_plugin(mut self, plugin: Arc<dyn VolumePlugin>) -> Self {
        self.parts.volumes.plugins.push(plugin);
        self
    }

    /// Changes the volume manager before it is built.
    pub fn configure_volumes(
        mut self,
        change: impl FnOnce(NodeVolumesBuilder) -> NodeVolumesBuilder + Send + 'static,
    ) -> Self {
        self.parts.volumes.changes.push(Box::new(change));
        self
    }

    /// Changes the node's API before it is built, e.g. adds routes of your own.
    #[cfg(feature = "server")]
    pub fn configure_server(
        mut self,
        change: impl FnOnce(NodeApiBuilder) -> NodeApiBuilder + Send + 'static,
    ) -> Self {
        self.parts.server.changes.push(Box::new(change));
        self
    }

    /// The metrics that the server reports. By default, there are none.
    #[cfg(feature = "server")]
    pub fn metrics(mut self, metrics: Arc<dyn MetricsSource>) -> Self {
        self.parts.server.metrics = Some(metrics);
        self
    }

    /// Sets how much is logged (`/debug/flags/v`).
    #[cfg(feature = "server")]
    pub fn verbosity(mut self, verbosity: Arc<dyn LogVerbosity>) -> Self {
        self.parts.server.verbosity = Some(verbosity);
        self
    }

    /// Makes profiles of the process (`/debug/pprof/`).
    #[cfg(feature = "server")]
    pub fn profiler(mut self, profiler: Arc<dyn Profiler>) -> Self {
        self.parts.server.profiler = Some(profiler);
        self
    }
}

impl<Height> fmt::Debug for NodeAgentBuilder<Height> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeAgentBuilder")
            .field("settings", &self.parts.settings)
            .finish_non_exhaustive()
    }
}
