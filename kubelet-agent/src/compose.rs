//! Builds an agent, room by room. The order is the one in which the rooms need each other.

use std::sync::Arc;
use std::time::Duration;

use kubelet_config::KubeletConfiguration;
#[cfg(feature = "resources")]
use kubelet_core::ResourceUpdates;
use kubelet_core::admission::AppArmorAdmitHandler;
use kubelet_core::{
    EventType, HealthChecks, Kubelet, KubeletBuilder, NodeEventRecorder as _, PodCache,
    PodStatusManager as _, PodWorkersConfig, ProbeResultCache, RootDir,
};
use kubelet_kuberuntime::NodeProber;
use kubelet_pleg::EventedPleg;
use kubelet_status::StatusManagerConfig;

use crate::agent::NodeAgent;
#[cfg(feature = "api")]
use crate::api;
use crate::builder::{Parts, changed};
#[cfg(feature = "dra")]
use crate::claims::ClaimRoom;
#[cfg(feature = "apiserver")]
use crate::cluster::Cluster;
use crate::configured::{self, count, time};
use crate::context::{Built, Context};
use crate::dynamic::{Adapt, Dynamic, Engines};
#[cfg(feature = "apiserver")]
use crate::events;
use crate::events::EventFeed;
use crate::eviction::EvictionRoom;
use crate::handle::AgentHandle;
use crate::machine::HostMachine;
#[cfg(feature = "apiserver")]
use crate::node::{self, NodeRoom, Reports};
use crate::objects::Objects;
#[cfg(feature = "resources")]
use crate::resources::{ResourceHandles, ResourceRoom};
use crate::runtime::{self, Connected, RuntimeRoom, Uses};
#[cfg(feature = "server")]
use crate::server;
use crate::shutdown::ShutdownRoom;
use crate::stats::{Measured, StatsRoom};
use crate::tasks::Tasks;
#[cfg(feature = "volumes")]
use crate::volumes::{self, LateVolumes, Storage};
use crate::{Error, Result, cgroups, check, engines, host, sources, statuses};

/// How long the event about an agent that cannot be built may take.
const LAST_EVENT: Duration = Duration::from_secs(5);

/// Builds the agent of these parts. All problems of the settings are reported before anything is done. If a part cannot be built
/// later, the node gets the event `KubeletSetupFailed`.
pub(crate) async fn compose(parts: Parts) -> Result<NodeAgent> {
    check::check(&parts)?;
    let (mut tasks, mut events) = (Tasks::default(), None);
    let built = assemble(parts, &mut tasks, &mut events).await;
    if let (Err(error), Some(feed)) = (&built, events) {
        feed.record_node(EventType::Warning, "KubeletSetupFailed", error.to_string());
        // The recorder to the API server ends when nobody can record any more, and has sent what was recorded.
        drop(feed);
        tasks.run_only("events", LAST_EVENT).await;
    }
    built
}

/// Builds the agent. `started` gets the events of the agent as soon as they can be recorded.
#[cfg_attr(
    not(all(feature = "apiserver", feature = "volumes")),
    allow(unused_mut, reason = "what features add to")
)]
async fn assemble(mut parts: Parts, tasks: &mut Tasks, started: &mut Option<EventFeed>) -> Result<NodeAgent> {
    #[cfg(feature = "api")]
    let adapt: Adapt = match parts.serve_kubectl {
        Some(_) => api::adapt,
        None => as_it_is,
    };
    #[cfg(not(feature = "api"))]
    let adapt: Adapt = as_it_is;
    adapt(&mut parts.settings.configuration);
    let mut dynamic = Engines::default();
    let root_dir = std::path::absolute(&parts.settings.root_dir);
    let root_dir = root_dir.map_err(|source| Error::Io {
        what: "the folder of the agent".to_owned(),
        source,
    })?;
    parts.settings.root_dir.clone_from(&root_dir);
    let settings = Arc::new(parts.settings);
    let (config, gates) = (&settings.configuration, &settings.feature_gates);
    let folders = RootDir::new(&root_dir);
    #[cfg(feature = "api")]
    if parts.serve_kubectl.is_some() {
        api::create_folder(&root_dir, parts.disk).await?;
    }
    let create = folders.clone();
    let created = parts.disk.run(move || create.create()).await;
    created.map_err(|source| Error::Io {
        what: format!("cannot create {}", root_dir.display()),
        source,
    })?;

    // The access to the cluster.
    let machine = HostMachine::new(parts.clock);
    #[cfg(feature = "apiserver")]
    let local = node::local(&settings, &machine, parts.machine)?;
    #[cfg(feature = "apiserver")]
    #[cfg_attr(not(feature = "api"), allow(unused_mut, reason = "what the feature changes"))]
    let mut cluster = Cluster::open(&settings, parts.client).await?;
    #[cfg(feature = "api")]
    let own_api = match parts.serve_kubectl {
        Some(address) => {
            let (served, connections) = api::open(address, &settings, parts.clock, parts.disk).await?;
            let own = served.own.clone();
            cluster = Some(Cluster::of_own(served));
            Some((own, connections))
        }
        None => None,
    };
    let node_name: Arc<str> = settings.hostname()?.into();
    #[cfg(feature = "apiserver")]
    let client = cluster.as_ref().map(Cluster::client);
    #[cfg(feature = "apiserver")]
    let standalone = client.is_none();
    #[cfg(not(feature = "apiserver"))]
    let standalone = true;
    tracing::info!(
        node = &*node_name,
        version = settings.version,
        standalone,
        "Starting kubelet."
    );
    #[cfg(feature = "apiserver")]
    if let (Some(client), None) = (&client, &parts.recorders) {
        let events = events::to_api_server(client, &node_name, config, parts.clock, tasks);
        dynamic.events = Some(events.clone());
        parts.recorders = Some((Arc::new(events.clone()), Arc::new(events)));
    }
    #[cfg(feature = "console")]
    let recent = parts.console.events(&mut parts.recorders, parts.clock);
    let feed = EventFeed::new(parts.recorders);
    *started = Some(feed.clone());
    let context = Context {
        settings: settings.clone(),
        root_dir: folders,
        node_name,
        recorder: Arc::new(feed.clone()),
        node_recorder: Arc::new(feed.clone()),
        clock: parts.clock,
        disk: parts.disk,
        #[cfg(all(feature = "server", not(feature = "api")))]
        serves_streams: config.enable_server,
        #[cfg(feature = "api")]
        serves_streams: config.enable_server || own_api.is_some(),
        #[cfg(feature = "apiserver")]
        client: client.clone(),
        #[cfg(feature = "api")]
        serves_kubectl: own_api.is_some(),
    };
    #[cfg(feature = "volumes")]
    if parts.volumes.is_none() && parts.runtime.mounts() {
        volumes::share(&context).await?;
    }
    let mut objects = Objects::new(&context, parts.config_objects, tasks)?;

    host::start(&context, tasks).await?;

    // The runtime, and the node that reports it.
    let connected = runtime::connect(parts.runtime, &context, tasks).await?;
    #[cfg(any(feature = "csi", feature = "resources"))]
    let registry = crate::plugins::PluginRoom::default();
    #[cfg(feature = "resources")]
    let updates = gates.enabled("ResourceHealthStatus").then(ResourceUpdates::new);
    #[cfg(feature = "resources")]
    let resources = match &connected {
        Connected::Containers(services) => match services.of_resources() {
            Some(runtime) => {
                let machine = parts.numa_nodes.take();
                Some(ResourceRoom::new(&context, runtime, machine, &registry, updates.clone()).await?)
            }
            None => None,
        },
        Connected::Pods(_) => None,
    };
    #[cfg(feature = "dra")]
    let claims = match &connected {
        Connected::Containers(_) => ClaimRoom::new(&context, &registry, updates.clone()).await?,
        Connected::Pods(_) => None,
    };
    #[cfg(feature = "dra")]
    let of_claims = claims.as_ref().map(ClaimRoom::handle);
    #[cfg(not(feature = "dra"))]
    let of_claims: Option<Arc<dyn kubelet_core::DynamicResources>> = None;
    #[cfg(feature = "resources")]
    if resources.is_none() {
        crate::resources::ignore(&settings);
    }
    #[cfg(feature = "resources")]
    let of_resources = resources.as_ref().map(ResourceRoom::handles);
    let mut kubelet = Kubelet::builder();
    let (eviction, shutdown) = (EvictionRoom::new(&settings)?, ShutdownRoom::new(&settings)?);
    #[cfg(feature = "volumes")]
    let late = LateVolumes::default();
    let mut node_settings = configured::node(config, gates);
    #[cfg(feature = "api")]
    {
        node_settings.cluster_has_dns = !context.serves_kubectl;
    }
    let mut status_config = StatusManagerConfig::default();
    status_config.clock = context.clock;
    status_config.node.stop_signals = gates.enabled("ContainerStopSignals");
    (status_config.qps, status_config.burst) = (count(config.kube_api_qps), count(config.kube_api_burst));
    let mut getter = parts.node;
    #[cfg(feature = "apiserver")]
    let (node, heartbeat) = {
        let reports = Reports {
            runtime: &connected,
            state: kubelet.runtime_state(),
            eviction: &eviction,
            shutdown: &shutdown,
            #[cfg(feature = "resources")]
            resources: of_resources.as_ref(),
            #[cfg(feature = "volumes")]
            volumes: late.clone(),
        };
        NodeRoom::new(local, &context, cluster.as_ref(), reports, parts.local_node).await
    };
    #[cfg(feature = "apiserver")]
    {
        node.describe(&mut node_settings, &mut status_config);
        getter.get_or_insert_with(|| node.getter());
    }

    // Where statuses go.
    #[cfg(feature = "apiserver")]
    let facts = status_config.node.clone();
    #[cfg(feature = "pods-api")]
    let changes = gates.enabled("PodsAPI").then(server::StatusChanges::default);
    #[cfg(feature = "pods-api")]
    let beside = changes.clone().map(|changes| Arc::new(changes) as _);
    #[cfg(not(feature = "pods-api"))]
    let beside = None;
    let statuses = statuses::manager(&context, parts.sinks, beside, status_config);

    // Volumes.
    let mut mounted = parts.volumes;
    #[cfg(feature = "pod-certificates")]
    let certificates = certificates(&context, &getter);
    #[cfg(feature = "volumes")]
    let node_volumes = match mounted {
        Some(_) => {
            late.is_initialized();
            None
        }
        None => {
            let storage = Storage {
                context: &context,
                node: getter.clone(),
                #[cfg(feature = "apiserver")]
                watched: node.watched.clone(),
                config_objects: objects.config_objects.clone(),
                tokens: objects.tokens.clone(),
                #[cfg(feature = "pod-certificates")]
                certificates: certificates
                    .as_ref()
                    .map(|manager| Arc::new(manager.handle()) as _),
                #[cfg(not(feature = "pod-certificates"))]
                certificates: None,
                plugins: parts.plugins,
                changes: parts.node_volumes,
                #[cfg(feature = "csi")]
                registry: registry.clone(),
            };
            let volumes = storage.build(&late, tasks)?;
            mounted = Some(volumes.clone());
            Some(volumes)
        }
    };

    // The runtime of pods.
    let (probes, reporter) = (ProbeResultCache::new(), statuses.reporter());
    #[cfg(feature = "apiserver")]
    let node_ips = node_settings.node_ips.clone();
    #[cfg(feature = "apiserver")]
    let manager = objects.manager.take();
    let mut runtime = match connected {
        Connected::Pods(runtime) => RuntimeRoom::of_pods(runtime),
        Connected::Containers(services) => {
            if services.has_user_namespaces() {
                node_settings.user_namespaces = configured::user_namespaces(config, context.disk).await?;
            }
            let uses = Uses {
                node: node_settings,
                objects,
                volumes: mounted.clone(),
                statuses: reporter.clone(),
                probes: probes.clone(),
                #[cfg(feature = "resources")]
                resources: of_resources.as_ref().map(ResourceHandles::of_containers),
                #[cfg(not(feature = "resources"))]
                resources: None,
                #[cfg(feature = "resources")]
                exclusive_cpus: of_resources
                    .as_ref()
                    .and_then(|handles| handles.exclusive_cpus(&settings)),
                #[cfg(not(feature = "resources"))]
                exclusive_cpus: None,
                claims: of_claims.clone(),
            };
            RuntimeRoom::of_containers(services, &context, uses, parts.cri_runtime).await?
        }
    };
    runtime.logs = parts.logs.or(runtime.logs);
    runtime.streaming = parts.streaming.or(runtime.streaming);

    // The sources of pods, and the engine.
    let mut pods = sources::static_pods(parts.sources, &context)?;
    #[cfg(feature = "apiserver")]
    if let (Some(heartbeat), Some(client)) = (heartbeat, &client) {
        let informer = heartbeat.informer();
        let source = kubelet_config::ApiServerSource::new(client.clone(), &*context.node_name);
        pods = pods.source(source.node_synced(informer.synced()));
        kubelet = kubelet.mirrors(Arc::new(kubelet_status::ApiServerMirrorClient::new(
            client.clone(),
        )));
        let handle = statuses.handle();
        tasks.add("addresses", |shutdown| {
            node::follow_addresses(informer, node_ips, handle, facts, shutdown)
        });
        tasks.add("heartbeat", |shutdown| heartbeat.run(shutdown));
    }
    if let Some(getter) = getter {
        #[cfg(feature = "resources")]
        let getter = match &of_resources {
            Some(resources) => resources.node(getter),
            None => getter,
        };
        kubelet = kubelet.node(getter);
    }
    #[cfg(feature = "apiserver")]
    if let Some(features) = node::declared_features(gates) {
        kubelet = kubelet.declared_features(kubelet_core::admission::DeclaredFeatures::new(features));
    }
    let cache = PodCache::new();
    kubelet = kubelet
        .pods(pods.build()?)
        .pleg(EventedPleg::new(runtime.reader(), cache.clone()), cache)
        .runtime(runtime.runtime.clone())
        .statuses(statuses)
        .recorder(context.recorder.clone())
        .node_recorder(context.node_recorder.clone())
        .workers(PodWorkersConfig {
            resync_interval: time(config.sync_frequency),
            ..Default::default()
        })
        .gc_policy(settings.gc_policy.clone())
        .in_place_resize(configured::in_place_resize(config, gates))
        .clock(context.clock)
        .disk(context.disk)
        .root_dir(&root_dir);
    if let Some(jitter) = parts.jitter {
        kubelet = kubelet.jitter(jitter);
    }
    kubelet = match (parts.prober, &runtime.services) {
        (Some(prober), _) => kubelet.prober(prober, probes),
        (None, Some(services)) => kubelet.prober(NodeProber::new(services.clone()), probes),
        (None, None) => kubelet,
    };
    if let Some(volumes) = mounted {
        kubelet = kubelet.volumes(volumes);
    }
    if let Some(cgroups) = &runtime.cgroups {
        kubelet = kubelet.pod_containers(cgroups.clone());
    }
    let of_rooms = parts
        .admission
        .into_iter()
        .chain(eviction.admission())
        .chain(shutdown.admission());
    kubelet = of_rooms.fold(kubelet, KubeletBuilder::admission);
    if runtime.manager.is_some() {
        kubelet = kubelet
            .admission(Arc::new(check::sysctls(&settings)?))
            .admission(Arc::new(AppArmorAdmitHandler::linux_host()));
    }
    #[cfg(feature = "resources")]
    if let Some(resources) = &of_resources {
        kubelet = kubelet.admission(resources.admission());
    }
    if let Some(claims) = of_claims {
        kubelet = kubelet.dynamic_resources(claims);
    }
    #[cfg(feature = "resources")]
    if let Some(updates) = updates {
        for health in of_resources.iter().map(ResourceHandles::health) {
            kubelet = kubelet.resource_health(health);
        }
        #[cfg(feature = "dra")]
        for health in claims.iter().map(ClaimRoom::health) {
            kubelet = kubelet.resource_health(health);
        }
        kubelet = kubelet.resource_updates(updates);
    }
    let kubelet = changed(parts.kubelet, kubelet).build()?;
    let handle = kubelet.handle();
    #[cfg(feature = "resources")]
    if let Some(resources) = resources {
        #[cfg(feature = "dra")]
        let listed = claims.as_ref().map(ClaimRoom::listed);
        #[cfg(not(feature = "dra"))]
        let listed = None;
        resources.start(&context, &handle, listed, tasks);
    }
    #[cfg(feature = "dra")]
    if let Some(claims) = claims {
        claims.start(&handle, tasks);
    }
    #[cfg(any(feature = "csi", feature = "resources"))]
    registry.start(&context, tasks)?;

    // What measures usage.
    let measured = Measured {
        machine,
        kubelet: &handle,
        runtime: &runtime,
        #[cfg(feature = "volumes")]
        volumes: &node_volumes,
    };
    let stats = StatsRoom::new(&context, measured, parts.stats);

    // The engines beside it.
    if let Some(cgroups) = &runtime.cgroups {
        cgroups::start(&context, cgroups, tasks);
    }
    let images = engines::of_containers(&context, &runtime, &stats, &mut dynamic, tasks)?;
    #[cfg(feature = "apiserver")]
    {
        engines::bound_of_all_pods(&context, &runtime, &node, tasks);
        if let Some(manager) = manager {
            let pods = handle.pods().clone();
            tasks.add("config objects", |shutdown| {
                manager.run(move || pods.pods(), shutdown)
            });
        }
    }
    #[cfg(feature = "pod-certificates")]
    if let Some(manager) = certificates {
        let pods = handle.pods().clone();
        tasks.add("pod certificates", |shutdown| {
            manager.run(move || pods.pods(), shutdown)
        });
    }
    #[cfg(feature = "pods-api")]
    if let Some(changes) = changes {
        changes.serve(&context, handle.pods().clone(), reporter, tasks);
    }
    let built = Built {
        kubelet: handle.clone(),
        runtime,
        #[cfg(feature = "volumes")]
        volumes: node_volumes,
        images,
        #[cfg(feature = "apiserver")]
        node,
        #[cfg(feature = "resources")]
        resources: of_resources,
    };
    eviction.start(&context, &built, &stats, tasks).await?;
    #[cfg(feature = "shutdown")]
    let trigger = shutdown.trigger();
    shutdown.start(&context, &built, tasks).await?;
    #[cfg(feature = "console")]
    let console = parts
        .console
        .start(&context, &built, recent, &mut parts.api, tasks)?;
    #[cfg(feature = "server")]
    dynamic.verbosity.clone_from(&parts.api.verbosity);
    #[cfg(feature = "api")]
    let api_server = match own_api {
        Some((own, connections)) => {
            let node_api = std::mem::take(&mut parts.api);
            server::start_in_process(&context, &built, &stats, node_api, connections, tasks)?;
            Some(own)
        }
        None => None,
    };
    #[cfg(feature = "server")]
    if config.enable_server {
        server::start(&context, &built, &stats, parts.api, tasks).await?;
    }
    let health = built.with_plugins(HealthChecks::of(&handle));
    engines::health(config, &health, tasks)?;
    tasks.add_fallible(
        "kubelet",
        |shutdown| async move { Ok(kubelet.run(shutdown).await?) },
    );
    Ok(NodeAgent {
        handle: AgentHandle {
            kubelet: handle,
            logs: built.runtime.logs,
            streaming: built.runtime.streaming,
            events: feed,
            health,
            node_name: context.node_name,
            dynamic: Dynamic::new(&settings, adapt, dynamic),
            #[cfg(feature = "shutdown")]
            shutdown: trigger,
            #[cfg(feature = "api")]
            api_server,
            #[cfg(feature = "console")]
            console,
        },
        tasks: std::mem::take(tasks),
        #[cfg(feature = "apiserver")]
        cluster,
    })
}

/// The agent decides no field of the configuration itself.
fn as_it_is(_: &mut KubeletConfiguration) {}

/// The manager of the certificates of pods, in a cluster with the feature gate on.
#[cfg(feature = "pod-certificates")]
fn certificates(
    context: &Context,
    node: &Option<Arc<dyn kubelet_core::NodeGetter>>,
) -> Option<kubelet_config::PodCertificateManager> {
    let is_on = context.settings.feature_gates.enabled("PodCertificateRequest");
    let (client, node) = (context.client.as_ref().filter(|_| is_on)?, node.clone()?);
    let manager = kubelet_config::PodCertificateManager::builder(client.clone(), &*context.node_name, node);
    Some(manager.recorder(context.recorder.clone()).build())
}
