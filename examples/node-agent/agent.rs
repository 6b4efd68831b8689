//! Builds the agent from the crates, and runs it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use kubelet_config::flags::KubeletServer;
use kubelet_config::{ApiServerSource, ApiServerTokens, ConfigObjectManager, Informer, PodConfig};
use kubelet_core::admission::{AppArmorAdmitHandler, DeclaredFeatures, SysctlAllowlist};
use kubelet_core::{
    ConfigObjects, Disk, EventRecorder, FixedNode, Kubelet, LogEvents, NoConfigObjects,
    NoServiceAccountTokens, NoServices, NodeEventRecorder, NodeRuntime as _, PodCache, PodStatusManager as _,
    PodWorkersConfig, ProbeResultCache, RootDir, RuntimeClasses, ServiceAccountTokens, Services, StatusSink,
};
use kubelet_cri::CriClient;
use kubelet_kuberuntime::logs::ContainerLogManager;
use kubelet_kuberuntime::{CriNodeRuntime, CriRuntime, ImageGcManager, NodeProber, PodCgroups};
use kubelet_node::certificate::ApiServerAccess;
use kubelet_node::{HealthChecks, HealthzServer, NodeHeartbeat, SystemdNotifier};
use kubelet_pleg::EventedPleg;
use kubelet_status::{
    ApiServerEvents, ApiServerMirrorClient, ApiServerSink, EventBroadcaster, FanOut, LogSink, StatusManager,
    StatusManagerConfig,
};
use kubelet_volume::HostMounter;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api::{self, Process};
use crate::pods_api::{self, StatusChanges};
use crate::settings::{self, count, time};
use crate::shutdown::{self, HostShutdown};
use crate::volumes::{LateVolumes, Storage};
use crate::{Error, node, oom};

/// Runs until `shutdown`. The containers stay running.
pub(crate) async fn run(
    server: &KubeletServer,
    version: &str,
    process: &Process,
    host: HostShutdown,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let KubeletServer { flags, configuration: config, feature_gates: gates, .. } = server;
    let root_dir = std::path::absolute(&flags.root_directory)?;
    let folders = RootDir::new(&root_dir);
    Disk::default().run(move || folders.create()).await?;
    match HostMounter::new().share(&root_dir).await {
        // Pods without mounts still run.
        Err(error @ kubelet_volume::Error::NotPermitted { .. }) => tracing::warn!(%error),
        shared => shared?,
    }
    let local = node::local(server, version)?;
    let node_name = local.node_name().to_owned();
    let access = match node::access(server)? {
        Some(access) => Some(access.open().await?),
        None => None,
    };
    let client = access.as_ref().map(ApiServerAccess::client);
    tracing::info!(node = node_name, version, standalone = client.is_none(), "Starting kubelet.");
    let mut tasks: JoinSet<Result<(), Error>> = JoinSet::new();

    // The clients of the API server, and their replacements without one.
    let mut recorder: Arc<dyn EventRecorder> = Arc::new(LogEvents);
    let mut node_recorder: Arc<dyn NodeEventRecorder> = Arc::new(LogEvents);
    let mut objects: Arc<dyn ConfigObjects> = Arc::new(NoConfigObjects);
    let mut tokens: Arc<dyn ServiceAccountTokens> = Arc::new(NoServiceAccountTokens);
    let mut cluster_services: Arc<dyn Services> = Arc::new(NoServices);
    let mut classes: Arc<dyn RuntimeClasses> = Arc::new(BTreeMap::new());
    let mut object_manager = None;
    if let Some(client) = &client {
        let events = EventBroadcaster::new(ApiServerEvents::new(client.clone()), &node_name)
            .with_rate(count(config.event_record_qps), count(config.event_burst));
        recorder = Arc::new(events.handle());
        node_recorder = Arc::new(events.handle());
        tasks.spawn(ok(events.run(shutdown.clone())));
        let manager = ConfigObjectManager::new(client.clone(), config)?;
        objects = manager.handle();
        object_manager = Some(manager);
        tokens = Arc::new(ApiServerTokens::new(client.clone()));
        let informer = Informer::services(client.clone());
        cluster_services = Arc::new(informer.handle());
        tasks.spawn(ok(informer.run(shutdown.clone())));
        let informer = Informer::runtime_classes(client.clone());
        classes = Arc::new(informer.handle());
        tasks.spawn(ok(informer.run(shutdown.clone())));
    }

    // The node and its runtime.
    let connect = |endpoint: &str| {
        CriClient::builder(endpoint).timeout(time(config.runtime_request_timeout)).connect_lazy()
    };
    let services = Arc::new(connect(&config.container_runtime_endpoint)?);
    let images = match config.image_service_endpoint.as_str() {
        "" => services.clone(),
        endpoint => Arc::new(connect(endpoint)?),
    };
    let Some(named) = shutdown.run_until_cancelled(services.wait_ready()).await else { return Ok(()) };
    let node_runtime = Arc::new(CriNodeRuntime::new(services.clone(), &named?.runtime_name));
    if !config.pod_cidr.is_empty()
        && let Err(error) = node_runtime.update_pod_cidr(&config.pod_cidr).await
    {
        tracing::error!(%error, "Pod CIDR update failed");
    }
    let mut kubelet = Kubelet::builder();
    let local = local.runtime(node_runtime.clone()).ready_check(kubelet.runtime_state());
    let late = LateVolumes::default();
    let local = local.events(node_recorder.clone()).volumes_in_use(Arc::new(late.clone()));
    let volumes = late.clone();
    let local = local.ready_check(move || volumes.problems()).ready_check(host.state.clone());
    let local = Arc::new(local.build());
    local.birth_cry();
    let node = Arc::new(local.initial_node().await);
    let mut node_settings = settings::node(config, &node);
    let node_ips = node_settings.node_ips.clone();
    node_settings.user_namespaces = settings::user_namespaces(config).await?;
    let mut status_config = StatusManagerConfig::default();
    (status_config.qps, status_config.burst) = (count(config.kube_api_qps), count(config.kube_api_burst));
    if client.is_some() {
        node::set_host_ips(&mut status_config.node, node_ips.get());
    }
    let facts = status_config.node.clone();
    let sink: Arc<dyn StatusSink> = match &client {
        Some(client) => Arc::new(ApiServerSink::new(client.clone())),
        None => Arc::new(LogSink::new()),
    };
    let changes = gates.enabled("PodsAPI").then(StatusChanges::default);
    let statuses = match &changes {
        Some(changes) => {
            let both: Vec<Arc<dyn StatusSink>> = vec![sink, Arc::new(changes.clone())];
            StatusManager::with_config(FanOut::new(both), status_config)
        }
        None => StatusManager::with_config(sink, status_config),
    };
    let heartbeat = access.as_ref().zip(client.clone()).map(|(access, client)| {
        let heartbeat = node::heartbeat(config);
        let beats = access.connections().heartbeats(heartbeat.timeout());
        NodeHeartbeat::new(client, beats, local.clone(), heartbeat)
    });
    let watched = heartbeat.as_ref().map(NodeHeartbeat::informer);
    let node_status = heartbeat.as_ref().map(NodeHeartbeat::status);
    let storage = Storage {
        server,
        root_dir: &root_dir,
        node_name: &node_name,
        client: client.as_ref(),
        node: match &watched {
            Some(watched) => Arc::new(watched.clone()),
            None => Arc::new(FixedNode::new(node.clone())),
        },
        watched,
        recorder: recorder.clone(),
        config_objects: objects.clone(),
        tokens,
    };
    let certificate_manager = storage.pod_certificates();
    let certificates = certificate_manager.as_ref().map(|manager| Arc::new(manager.handle()) as _);
    let volumes = storage.volumes(certificates, &late, &mut tasks, &shutdown)?;
    let (probes, reporter) = (ProbeResultCache::new(), statuses.reporter());
    let (first_wait, longest_wait) = config.restart_back_off(gates);
    let mut runtime = CriRuntime::builder(services.clone(), images)
        .node(node_settings)
        .root_dir(&root_dir)
        .pod_logs_dir(&config.pod_logs_dir)
        .image_pulls(settings::image_pulls(config, gates))
        .crash_loop_back_off(first_wait, longest_wait)
        .events(recorder.clone())
        .probes(Arc::new(probes.clone()))
        .statuses(statuses.reporter())
        .volumes(volumes.clone())
        .config_objects(objects)
        .services(cluster_services)
        .runtime_classes(classes);
    for provider in server.credential_providers()? {
        runtime = runtime.credential_provider(settings::credential_provider(provider));
    }
    let Some(runtime) = shutdown.run_until_cancelled(runtime.build()).await else { return Ok(()) };
    let runtime = runtime?;
    let cgroups = Arc::new(PodCgroups::of_this_host(runtime.node_settings()).await?);
    let runtime = Arc::new(runtime.with_pod_cgroups(cgroups.clone()));
    let bound = local.bound_of_all_pods(&config.enforce_node_allocatable);
    let (bounds, events, ends) = (cgroups.clone(), node_recorder.clone(), shutdown.clone());
    tasks.spawn(ok(async move {
        let bounds = bounds.enforce_node_allocatable(&bound, &*events);
        ends.run_until_cancelled(bounds).await;
    }));

    // The sources of pods.
    let mut addresses = None;
    let mut pods = PodConfig::builder().recorder(recorder.clone()).static_pods(config, &node_name)?;
    match (heartbeat, &client) {
        (Some(heartbeat), Some(client)) => {
            let node = heartbeat.informer();
            addresses = Some(node.addresses());
            let (watched, statuses, ends) = (node.clone(), statuses.handle(), shutdown.clone());
            tasks.spawn(ok(node::follow_addresses(watched, node_ips, statuses, facts, ends)));
            pods = pods.source(ApiServerSource::new(client.clone(), &node_name).node_synced(node.synced()));
            kubelet =
                kubelet.node(Arc::new(node)).mirrors(Arc::new(ApiServerMirrorClient::new(client.clone())));
            tasks.spawn(ok(heartbeat.run(shutdown.clone())));
        }
        _ => kubelet = kubelet.node(Arc::new(FixedNode::new(node))),
    }

    if let Some(features) = node::declared_features(gates) {
        kubelet = kubelet.declared_features(DeclaredFeatures::new(features));
    }

    // The kubelet, built from these parts.
    let cache = PodCache::new();
    let kubelet = kubelet
        .pods(pods.build()?)
        .pleg(EventedPleg::new(runtime.clone(), cache.clone()), cache)
        .runtime(runtime.clone())
        .statuses(statuses)
        .recorder(recorder.clone())
        .prober(NodeProber::new(services.clone()), probes)
        .volumes(volumes)
        .pod_containers(cgroups)
        .admission(Arc::new(SysctlAllowlist::linux_host(&config.allowed_unsafe_sysctls)?))
        .admission(Arc::new(AppArmorAdmitHandler::linux_host()))
        .admission(Arc::new(host.state.clone()))
        .workers(PodWorkersConfig { resync_interval: time(config.sync_frequency), ..Default::default() })
        .gc_policy(flags.container_gc_policy())
        .in_place_resize(settings::in_place_resize(config, gates))
        .root_dir(&root_dir)
        .build()?;

    // The engines beside the kubelet.
    let (handle, health) = (kubelet.handle(), HealthChecks::of(&kubelet.handle()));
    tasks.spawn(ok(oom::watch(node_recorder.clone(), shutdown.clone())));
    let parts = shutdown::Parts {
        kubelet: kubelet.handle(),
        recorder,
        node_recorder: node_recorder.clone(),
        status: node_status,
        root_dir: root_dir.clone(),
    };
    tasks.spawn(ok(host.run(parts, shutdown.clone())));
    let logs = ContainerLogManager::new(services, settings::log_rotation(config)?)?;
    tasks.spawn(ok(logs.run(shutdown.clone())));
    let image_gc =
        ImageGcManager::new(runtime.clone(), settings::image_gc(config), runtime.clone(), node_recorder)?;
    node_runtime.set_images(image_gc.clone());
    tasks.spawn(ok(image_gc.run(shutdown.clone())));
    if let Some(manager) = certificate_manager {
        let pods = kubelet.handle().pods().clone();
        tasks.spawn(ok(manager.run(move || pods.pods(), shutdown.clone())));
    }
    if let Some(manager) = object_manager {
        tasks.spawn(ok(manager.run(move || handle.pods().pods(), shutdown.clone())));
    }
    if let Some(changes) = changes {
        let (pods, statuses) = (kubelet.handle().pods().clone(), reporter);
        let (root_dir, shutdown) = (root_dir.clone(), shutdown.clone());
        tasks.spawn(async move { pods_api::serve(&root_dir, pods, statuses, changes, shutdown).await });
    }
    if config.enable_server {
        let kubelet = kubelet.handle();
        let parts = api::Parts {
            client,
            health: HealthChecks::of(&kubelet).check("log", || Ok(())),
            kubelet,
            runtime,
            node_name,
            addresses,
            root_dir,
        };
        api::start(server, process, parts, &mut tasks, &shutdown).await?;
    }
    if config.healthz_port > 0 {
        let address = SocketAddr::new(config.healthz_bind_address.parse()?, config.healthz_port.try_into()?);
        tasks.spawn(ok(HealthzServer::serve(address, health.clone(), shutdown.clone())));
    }
    tasks.spawn(ok(SystemdNotifier::from_env()?.run(health, shutdown.clone())));
    let token = shutdown.clone();
    tasks.spawn(async move { Ok(kubelet.run(token).await?) });
    // Clients work only while `access` runs. So it ends last, after the other parts have sent their last
    // requests.
    let (access_ends, failed) = (CancellationToken::new(), shutdown.clone());
    let ends = access_ends.clone();
    let rotating = async move {
        let Some(access) = access else { return Ok(()) };
        access.run(ends).await.inspect_err(|_| failed.cancel()).map_err(Error::from)
    };
    let working = async {
        let outcome = join(tasks, shutdown).await;
        access_ends.cancel();
        outcome
    };
    let (outcome, rotated) = tokio::join!(working, rotating);
    outcome.and(rotated)
}

async fn ok(task: impl Future<Output = ()>) -> Result<(), Error> {
    task.await;
    Ok(())
}

/// Waits until all tasks have ended. If one fails, the others are stopped.
async fn join(mut tasks: JoinSet<Result<(), Error>>, shutdown: CancellationToken) -> Result<(), Error> {
    let mut outcome = Ok(());
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended.map_err(Error::from).flatten() {
            tracing::error!(%error, "a part of the agent has failed");
            shutdown.cancel();
            outcome = outcome.and(Err(error));
        }
    }
    outcome
}
