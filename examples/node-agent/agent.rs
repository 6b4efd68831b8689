//! The agent: what the crates are composed to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
use kubelet_config::flags::KubeletServer;
use kubelet_config::{ApiServerConfigObjects, ApiServerSource, ApiServerTokens, PodConfig};
use kubelet_core::admission::{AppArmorAdmitHandler, SysctlAllowlist};
use kubelet_core::{
    ConfigObjects, Disk, EventRecorder, EventType, Kubelet, KubeletHandle, LocalVolumes, LogEvents,
    NoConfigObjects, NoServiceAccountTokens, NodeEventRecorder, PodCache, PodStatusManager as _,
    PodWorkersConfig, ProbeResultCache, ServiceAccountTokens,
};
use kubelet_cri::logs::ContainerLogManager;
use kubelet_cri::{CriClient, CriRuntime, ImageGcManager, NodeProber, RuntimeImageFs};
use kubelet_pleg::EventedPleg;
use kubelet_status::{
    ApiServerEvents, ApiServerMirrorClient, ApiServerNode, ApiServerSink, EventBroadcaster, LogSink,
    StatusManager, StatusManagerConfig,
};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::healthz::{self, Health};
use crate::settings::{self, count, time};
use crate::{Error, systemd};

/// What was read of config maps so long ago is good enough for volumes.
const VOLUMES_MAX_AGE: Duration = Duration::from_secs(60);

/// Runs until `shutdown`, and leaves the containers running.
pub(crate) async fn run(
    server: &KubeletServer,
    version: &str,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let KubeletServer { flags, configuration: config, feature_gates: gates, .. } = server;
    let node_name = settings::node_name(flags)?;
    let root_dir = std::path::absolute(&flags.root_directory)?;
    let client = client(&flags.kube_config).await?;
    tracing::info!(node = node_name, version, standalone = client.is_none(), "Starting kubelet.");
    let mut tasks: JoinSet<Result<(), Error>> = JoinSet::new();

    // Who is told: the API server, or the log.
    let mut recorder: Arc<dyn EventRecorder> = Arc::new(LogEvents);
    let mut node_recorder: Arc<dyn NodeEventRecorder> = Arc::new(LogEvents);
    let mut objects: Arc<dyn ConfigObjects> = Arc::new(NoConfigObjects);
    let mut volume_objects = objects.clone();
    let mut tokens: Arc<dyn ServiceAccountTokens> = Arc::new(NoServiceAccountTokens);
    let mut status_config = StatusManagerConfig::default();
    (status_config.qps, status_config.burst) = (count(config.kube_api_qps), count(config.kube_api_burst));
    let (mut statuses, mut cache_of_objects) = (StatusManager::with_config(LogSink::new(), status_config.clone()), None);
    if let Some(client) = &client {
        let events = EventBroadcaster::new(ApiServerEvents::new(client.clone()), &node_name)
            .with_rate(count(config.event_record_qps), count(config.event_burst));
        recorder = Arc::new(events.handle());
        node_recorder = Arc::new(events.handle());
        let token = shutdown.clone();
        tasks.spawn(async move { Ok(events.run(token).await) });
        let read = ApiServerConfigObjects::new(client.clone());
        volume_objects = Arc::new(read.with_max_age(VOLUMES_MAX_AGE));
        objects = Arc::new(read.clone());
        cache_of_objects = Some(read);
        tokens = Arc::new(ApiServerTokens::new(client.clone()));
        statuses = StatusManager::with_config(ApiServerSink::new(client.clone()), status_config);
    }
    node_recorder.record_node(EventType::Normal, "Starting", "Starting kubelet.".to_owned());

    // What runs pods.
    let connect = |endpoint: &str| {
        CriClient::builder(endpoint).timeout(time(config.runtime_request_timeout)).connect_lazy()
    };
    let services = Arc::new(connect(&config.container_runtime_endpoint)?);
    let images = match config.image_service_endpoint.as_str() {
        "" => services.clone(),
        endpoint => Arc::new(connect(endpoint)?),
    };
    let volumes = LocalVolumes::new(&root_dir)
        .recorder(recorder.clone())
        .config_objects(volume_objects)
        .tokens(tokens);
    let volumes = Arc::new(volumes);
    let probes = ProbeResultCache::new();
    let (first, longest) = settings::crash_loop(config, gates);
    let mut builder = CriRuntime::builder(services.clone(), images.clone())
        .node(settings::node(config))
        .root_dir(&root_dir)
        .pod_logs_dir(&config.pod_logs_dir)
        .image_pulls(settings::image_pulls(config, gates))
        .crash_loop_back_off(first, longest)
        .events(recorder.clone())
        .probes(Arc::new(probes.clone()))
        .statuses(statuses.reporter())
        .volumes(volumes.clone())
        .config_objects(objects);
    for provider in settings::credential_providers(server)? {
        builder = builder.credential_provider(provider);
    }
    let Some(runtime) = shutdown.run_until_cancelled(builder.build()).await else { return Ok(()) };
    let runtime = Arc::new(runtime?);

    // Where pods come from.
    let mut pods = PodConfig::builder().recorder(recorder.clone());
    if let Some(files) = settings::files(config, &node_name) {
        pods = pods.source(files);
    }
    if let Some(url) = settings::url(config, &node_name)? {
        pods = pods.source(url);
    }
    if let Some(client) = &client {
        pods = pods.source(ApiServerSource::new(client.clone(), &node_name));
    }

    // The kubelet of them all.
    let cache = PodCache::new();
    let mut kubelet = Kubelet::builder()
        .pods(pods.build()?)
        .pleg(EventedPleg::new(runtime.clone(), cache.clone()), cache)
        .runtime(runtime.clone())
        .statuses(statuses)
        .recorder(recorder)
        .prober(NodeProber::new(services.clone()), probes)
        .volumes(volumes)
        .admission(Arc::new(SysctlAllowlist::new(&config.allowed_unsafe_sysctls)?))
        .admission(Arc::new(AppArmorAdmitHandler::linux_host()))
        .workers(PodWorkersConfig { resync_interval: time(config.sync_frequency), ..Default::default() })
        .gc_policy(settings::container_gc(flags))
        .root_dir(&root_dir);
    if let Some(client) = &client {
        kubelet = kubelet
            .node(Arc::new(ApiServerNode::new(client.clone(), &node_name)))
            .mirrors(Arc::new(ApiServerMirrorClient::new(client.clone())));
    }
    let kubelet = kubelet.build()?;

    // What goes on beside it.
    let handle = kubelet.handle();
    let logs = ContainerLogManager::new(services, settings::log_rotation(config)?)?;
    tasks.spawn(ok(logs.run(shutdown.clone())));
    let stats = Arc::new(RuntimeImageFs::new(images, Disk::default()));
    let image_gc = ImageGcManager::new(runtime, settings::image_gc(config), stats, node_recorder)?;
    tasks.spawn(ok(image_gc.run(shutdown.clone())));
    if let Some(objects) = cache_of_objects {
        tasks.spawn(ok(forget_objects(objects, handle.clone(), shutdown.clone())));
    }
    let health = Health(handle);
    if config.healthz_port > 0 {
        let address: SocketAddr =
            SocketAddr::new(config.healthz_bind_address.parse()?, config.healthz_port.try_into()?);
        tasks.spawn(healthz::serve(address, health.clone(), shutdown.clone()));
    }
    tasks.spawn(ok(systemd::run(health, shutdown.clone())));
    let token = shutdown.clone();
    tasks.spawn(async move { Ok(kubelet.run(token).await?) });
    join(tasks, shutdown).await
}

/// Whoever reaches the API server as `--kubeconfig` says; nobody without it.
async fn client(kubeconfig: &str) -> Result<Option<Client>, Error> {
    if kubeconfig.is_empty() {
        return Ok(None);
    }
    let config = Kubeconfig::read_from(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(Some(Client::try_from(config)?))
}

/// What config maps and secrets pods do not refer to any more are forgotten each minute.
async fn forget_objects(objects: ApiServerConfigObjects, kubelet: KubeletHandle, shutdown: CancellationToken) {
    let mut minute = tokio::time::interval(Duration::from_secs(60));
    while shutdown.run_until_cancelled(minute.tick()).await.is_some() {
        objects.retain(&kubelet.pods().pods());
    }
}

async fn ok(task: impl Future<Output = ()>) -> Result<(), Error> {
    task.await;
    Ok(())
}

/// Until all have ended; the first that fails takes the others with it.
async fn join(mut tasks: JoinSet<Result<(), Error>>, shutdown: CancellationToken) -> Result<(), Error> {
    let mut outcome = Ok(());
    while let Some(ended) = tasks.join_next().await {
        let ended = ended.map_err(Error::from).flatten();
        if let Err(error) = ended {
            tracing::error!(%error, "a part of the agent has failed");
            shutdown.cancel();
            outcome = outcome.and(Err(error));
        }
    }
    outcome
}
