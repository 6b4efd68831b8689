//! The node: a kubelet with the API server of this process.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kubelet_config::{
    ApiServerSource, ApiServerTokens, ConfigObjectManager, FileSource, Informer, KubeletConfiguration,
    PodConfig,
};
use kubelet_core::{
    Clock, ClusterTrustBundles, EventRecorder, HealthChecks, Kubelet, KubeletHandle, NoClusterTrustBundles,
    NodeEventRecorder, PodCache, PodStatusManager as _, ProbeResultCache, RootDir,
};
use kubelet_kuberuntime::logs::{ContainerLogManager, LogRotatePolicy};
use kubelet_kuberuntime::{CriNodeRuntime, CriRuntime, NodeProber};
use kubelet_node::{
    HeartbeatClient, LocalNode, MachineInfo, NodeConfig, NodeHeartbeat, NodeHeartbeatConfig, node_host_ips,
};
use kubelet_pleg::{EventedPleg, GenericPleg};
use kubelet_server::authorization::AlwaysAllow;
use kubelet_server::console::{Console, ConsoleBuilder, RecentEvents};
use kubelet_server::prometheus::Metrics;
use kubelet_server::streaming::{StreamServer, StreamServerOptions};
use kubelet_server::{Authentication, Authorization, NodeApi, Server};
use kubelet_status::{
    ApiServerEvents, ApiServerMirrorClient, ApiServerSink, EventBroadcaster, StatusManager,
    StatusManagerConfig,
};
use kubelet_volume::{ApiServerVolumeObjects, InTreePlugins, NodeVolumes};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use crate::agent::{self, Error};
use crate::args::{Args, Pleg};

/// How long a lease of the node lasts. Nobody watches the leases of a cluster of one node, and each renewal is a write to the disk.
const LEASE: Duration = Duration::from_secs(3600);

/// The running parts of the node.
pub(crate) struct Node {
    tasks: JoinSet<Result<(), Error>>,
    /// What the kubelet needs until it has ended.
    under: JoinSet<()>,
    stop_under: CancellationToken,
}

impl Node {
    /// Waits until a part fails.
    pub(crate) async fn failed(&mut self) -> Result<(), Error> {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(Ok(()))) => {}
                Some(Ok(Err(error))) => return Err(error),
                Some(Err(error)) => return Err(error.into()),
                None => std::future::pending().await,
            }
        }
    }

    /// Waits until all parts have ended.
    pub(crate) async fn join(mut self) -> Result<(), Error> {
        let mut outcome = Ok(());
        while let Some(ended) = self.tasks.join_next().await {
            outcome = outcome.and(ended.map_err(Error::from).flatten());
        }
        self.stop_under.cancel();
        while self.under.join_next().await.is_some() {}
        outcome
    }
}

/// Starts the node.
pub(crate) async fn start(
    args: &Args,
    root_dir: &Path,
    node_name: &str,
    cluster: &Cluster,
    stopping: CancellationToken,
) -> Result<Node, Error> {
    let (client, config) = (cluster.node_client(), KubeletConfiguration::default());
    RootDir::new(root_dir).create()?;
    let (mut tasks, mut under, stop_under) = (JoinSet::new(), JoinSet::new(), CancellationToken::new());

    // What pods refer to on the API server.
    let events = EventBroadcaster::new(ApiServerEvents::new(client.clone()), node_name);
    let (to_pods, to_node) = (Arc::new(events.handle()), Arc::new(events.handle()));
    let recent = RecentEvents::new(Clock::system()).pods_to(to_pods).node_to(to_node);
    let recorder: Arc<dyn EventRecorder> = Arc::new(recent.clone());
    let node_recorder: Arc<dyn NodeEventRecorder> = Arc::new(recent.clone());
    under.spawn(events.run(stop_under.clone()));
    let objects = ConfigObjectManager::new(client.clone(), &config)?;
    let tokens = Arc::new(ApiServerTokens::new(client.clone()));
    let services = Informer::services(client.clone());
    let classes = Informer::runtime_classes(client.clone());

    // The runtime.
    let streams = StreamServer::bind(StreamServerOptions::default()).await?;
    let streaming = Arc::new(streams.handle());
    under.spawn(streams.run(stop_under.clone()));
    let ((runtime, images), _) =
        agent::services(args, root_dir, |adapter| adapter.streaming(streaming)).await?;
    let logs = ContainerLogManager::new(runtime.clone(), LogRotatePolicy::default())?;
    under.spawn(logs.run(stop_under.clone()));
    let named = runtime.version(Default::default()).await?;
    let node_runtime = Arc::new(CriNodeRuntime::new(runtime.clone(), &named.runtime_name));

    // The node.
    let mut kubelet = Kubelet::builder();
    let machine = MachineInfo::read(root_dir)?;
    let local = LocalNode::builder(NodeConfig::new(node_name), machine)
        .runtime(node_runtime)
        .ready_check(kubelet.runtime_state())
        .events(node_recorder);
    let local = Arc::new(local.build());
    let addresses = node_host_ips(&local.initial_node().await);
    let mut heartbeat = NodeHeartbeatConfig::default();
    heartbeat.lease.duration_seconds = LEASE.as_secs() as u32;
    let heartbeat =
        NodeHeartbeat::new(client.clone(), HeartbeatClient::new(client.clone()), local, heartbeat);
    let node = heartbeat.informer();
    tasks.spawn(ok(heartbeat.run(stopping.clone())));

    // The kubelet.
    let mut status_config = StatusManagerConfig::default();
    status_config.node.host_ips.clone_from(&addresses);
    let statuses = StatusManager::with_config(ApiServerSink::new(client.clone()), status_config);
    let getter: Arc<dyn kubelet_core::NodeGetter> = Arc::new(node.clone());
    let bundles: Arc<dyn ClusterTrustBundles> = Arc::new(NoClusterTrustBundles);
    let plugins = InTreePlugins::new(root_dir)
        .recorder(recorder.clone())
        .node(getter.clone())
        .config_objects(objects.handle())
        .tokens(tokens)
        .trust_bundles(bundles);
    let volumes = NodeVolumes::builder(root_dir)
        .plugins(plugins.build())
        .recorder(recorder.clone())
        .node(getter)
        .node_name(node_name)
        .config_objects(objects.handle())
        .objects(Arc::new(ApiServerVolumeObjects::new(client.clone(), node_name)))
        .controller_attach_detach(false)
        .build()?;
    let mounted = Arc::new(volumes.handle());
    under.spawn(volumes.run(stop_under.clone()));
    let probes = ProbeResultCache::new();
    let builder = CriRuntime::builder(runtime.clone(), images)
        .events(recorder.clone())
        .volumes(mounted.clone())
        .probes(Arc::new(probes.clone()))
        .statuses(statuses.reporter())
        .config_objects(objects.handle())
        .services(Arc::new(services.handle()))
        .runtime_classes(Arc::new(classes.handle()));
    under.spawn(services.run(stop_under.clone()));
    under.spawn(classes.run(stop_under.clone()));
    let cri = agent::cri_runtime(args, builder, root_dir, addresses).await?;
    let source = ApiServerSource::new(client.clone(), node_name).node_synced(node.synced());
    let mut pods = PodConfig::builder().recorder(recorder.clone()).source(source);
    if let Some(manifests) = &args.manifests {
        pods = pods.source(FileSource::new(std::path::absolute(manifests)?, node_name));
    }
    let cache = PodCache::new();
    kubelet = match args.pleg {
        Pleg::Generic => kubelet.pleg(GenericPleg::new(cri.clone(), cache.clone()), cache),
        Pleg::Evented => kubelet.pleg(EventedPleg::new(cri.clone(), cache.clone()), cache),
    };
    let kubelet = kubelet
        .pods(pods.build()?)
        .runtime(cri.clone())
        .statuses(statuses)
        .recorder(recorder)
        .prober(NodeProber::new(runtime), probes)
        .volumes(mounted)
        .node(Arc::new(node))
        .mirrors(Arc::new(ApiServerMirrorClient::new(client)))
        .root_dir(root_dir)
        .build()?;
    let handle = kubelet.handle();

    // Its API. Only the API server of this process can connect to it, and that has authorized its clients.
    let access = (Authentication::anonymous(), Authorization::new(node_name, Arc::new(AlwaysAllow)));
    let api = NodeApi::builder(Arc::new(handle.clone()), access.0, access.1)
        .health(HealthChecks::of(&handle))
        .logs(cri.clone())
        .runtime(cri.clone())
        .running_pods(cri.clone())
        .build();
    if let Some(connections) = cluster.connections().await {
        under.spawn(api.serve_connections(connections, stop_under.clone()));
    }
    if let Some(address) = args.console {
        let console = Console::builder(node_name, Arc::new(handle.clone()))
            .explain(Arc::new(handle.clone()))
            .events(recent)
            .logs(cri)
            .loopback_names_only();
        serve_console(address, console, &handle, node_name, &mut under, &stop_under)?;
    }
    let known = handle.pods().clone();
    under.spawn(objects.run(move || known.pods(), stop_under.clone()));
    tasks.spawn(async move { Ok(kubelet.run(stopping).await?) });
    Ok(Node { tasks, under, stop_under })
}

/// Serves the console, and nothing else, to everybody on this machine.
fn serve_console(
    address: SocketAddr,
    console: ConsoleBuilder,
    kubelet: &KubeletHandle,
    node_name: &str,
    under: &mut JoinSet<()>,
    stop: &CancellationToken,
) -> Result<(), Error> {
    if !address.ip().is_loopback() {
        return Err(format!("--console {address}: must be an address of the loopback").into());
    }
    let metrics = Metrics::new();
    metrics::set_global_recorder(metrics.recorder())?;
    let console = console.durations(Arc::new(metrics)).build();
    let access = (Authentication::anonymous(), Authorization::new(node_name, Arc::new(AlwaysAllow)));
    let api = NodeApi::builder(Arc::new(kubelet.clone()), access.0, access.1).route("/", console.clone());
    let server = Server::bind_insecure(address, api.build())?;
    let _ = writeln!(std::io::stdout(), "The console is on http://{}/\n", server.local_addr());
    under.spawn(server.run(stop.clone()));
    let stop = stop.clone();
    under.spawn(async move { console.run(stop).await });
    Ok(())
}

async fn ok(task: impl Future<Output = ()>) -> Result<(), Error> {
    task.await;
    Ok(())
}
