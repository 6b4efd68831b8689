//! The story of a node: settings, machine, cluster, runtime, resources, volumes, statuses, pods, server.
//!
//! Each chapter builds rooms from those of the chapters before it. Nothing runs yet; what is to run is added to the tasks.

use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::admission::{AppArmorAdmitHandler, DeclaredFeatures, PodFeaturesAdmitHandler};
use kubelet_core::{
    EventType, HealthChecks, Kubelet, KubeletBuilder, NodeEventRecorder as _, PodAdmitHandler, PodCache,
    PodStatusManager as _, PodStatusReporter, PodWorkersConfig, ProbeResultCache, Prober, ResourceUpdates,
    RootDir,
};
use kubelet_kuberuntime::NodeProber;
use kubelet_pleg::EventedPleg;

use crate::agent::NodeAgent;
use crate::check;
use crate::configured::{self, time};
use crate::context::{Context, changed, with};
use crate::dynamic::{Adapt, Dynamic, Engines};
use crate::error::{Error, Result};
use crate::handle::AgentHandle;
use crate::parts::Parts;
use crate::rooms::cluster::ClusterRoom;
use crate::rooms::console::ConsoleRoom;
use crate::rooms::events::EventFeed;
use crate::rooms::eviction::{self, EvictionRoom};
use crate::rooms::machine::HostMachine;
use crate::rooms::node::{self, NodeRoom};
use crate::rooms::own_api::OwnApiRoom;
use crate::rooms::plugins::{self, PluginRoom};
use crate::rooms::resources::{AtStart, ResourceRoom};
use crate::rooms::runtime::{self, Connected, RuntimeRoom};
use crate::rooms::server::{self, StatusChanges};
use crate::rooms::shutdown::ShutdownRoom;
use crate::rooms::stats::{self, StatsRoom};
use crate::rooms::volumes::{self, LateVolumes, VolumeRoom};
use crate::rooms::{cgroups, container_logs, health, host, images, sources, statuses, streams};
use crate::tasks::Tasks;

/// How long the event about an agent that cannot be built may take.
const LAST_EVENT: Duration = Duration::from_secs(5);

/// Builds the agent of these parts. All problems of the settings, and of this machine for them, are reported before anything is
/// done. If a part cannot be built later, the node gets the event `KubeletSetupFailed`.
pub(crate) async fn compose(mut parts: Parts) -> Result<NodeAgent> {
    check::all(&parts).await.into_result()?;
    let mut tasks = Tasks::default();
    let ground = Ground::lay(&mut parts, &mut tasks).await?;
    let feed = ground.feed.clone();
    match assemble(ground, parts, &mut tasks).await {
        Ok(handle) => Ok(NodeAgent { handle, tasks }),
        Err(error) => {
            feed.record_node(EventType::Warning, "KubeletSetupFailed", error.to_string());
            // The recorder to the API server ends when nobody can record any more, and has sent what was recorded.
            drop(feed);
            tasks.run_only("events", LAST_EVENT).await;
            Err(error)
        }
    }
}

/// What all rooms stand on: the machine, the cluster, and who records events.
struct Ground {
    context: Context,
    feed: EventFeed,
    machine: HostMachine,
    own_api: OwnApiRoom,
    cluster: ClusterRoom,
    console: ConsoleRoom,
    adapt: Adapt,
    dynamic: Engines,
}

impl Ground {
    async fn lay(parts: &mut Parts, tasks: &mut Tasks) -> Result<Self> {
        // Settings.
        let adapt = parts.own_api.adapt();
        adapt(&mut parts.settings.configuration);
        let root_dir = std::path::absolute(&parts.settings.root_dir);
        parts.settings.root_dir = root_dir.map_err(|source| Error::Io {
            what: "the folder of the agent".to_owned(),
            source,
        })?;
        let settings = Arc::new(parts.settings.clone());
        let (clock, disk) = (parts.clock, parts.disk);
        let own_api = OwnApiRoom::open(&settings, &parts.own_api, (clock, disk), tasks).await?;
        let root_dir = RootDir::new(&settings.root_dir);
        let create = root_dir.clone();
        let created = disk.run(move || create.create()).await;
        created.map_err(|source| Error::Io {
            what: format!("cannot create {}", settings.root_dir.display()),
            source,
        })?;

        // Machine, and the access to the cluster.
        let machine = HostMachine::new(clock);
        let node_name: Arc<str> = settings.hostname()?.into();
        let mut of_cluster = take(&mut parts.cluster);
        of_cluster.client = own_api.client().or(of_cluster.client);
        let cluster = ClusterRoom::open(&settings, of_cluster, tasks).await?;
        tracing::info!(
            node = &*node_name,
            version = settings.version,
            standalone = !cluster.is_joined(),
            "Starting kubelet."
        );

        // Events.
        let (mut recorders, mut dynamic) = (parts.recorders.take(), Engines::default());
        if recorders.is_none() {
            dynamic.events = cluster.events(&settings, &node_name, clock, tasks);
            let recorder = dynamic.events.clone();
            recorders = recorder.map(|events| (Arc::new(events.clone()) as _, Arc::new(events) as _));
        }
        let console = ConsoleRoom::open(take(&mut parts.console), &mut recorders, clock);
        let feed = EventFeed::new(recorders);
        let context = Context {
            settings,
            root_dir,
            node_name,
            recorder: Arc::new(feed.clone()),
            node_recorder: Arc::new(feed.clone()),
            clock,
            disk,
            serves_kubectl: own_api.is_open(),
        };
        Ok(Self {
            context,
            feed,
            machine,
            own_api,
            cluster,
            console,
            adapt,
            dynamic,
        })
    }
}

/// The runtime, and the resources that its containers get.
struct Base {
    connected: Connected,
    plugins: PluginRoom,
    resources: ResourceRoom,
    /// The pods whose devices changed their health, if statuses show it.
    updates: Option<ResourceUpdates>,
}

impl Base {
    async fn lay(ground: &Ground, parts: &mut Parts, tasks: &mut Tasks) -> Result<Self> {
        // Runtime.
        let (context, choice) = (&ground.context, take(&mut parts.runtime.choice));
        if parts.volumes.manager.is_none() && choice.mounts() {
            volumes::share(context).await?;
        }
        host::start(context, tasks).await?;
        let serves = context.settings.configuration.enable_server || ground.own_api.is_open();
        let streams = match choice.needs_streams() && serves {
            true => streams::open(tasks).await?,
            false => None,
        };
        let adapter = take(&mut parts.runtime.adapter);
        let connected = runtime::connect(choice, adapter, context, streams).await?;

        // Resources.
        let shows_health = context.settings.feature_gates.enabled("ResourceHealthStatus");
        let updates = shows_health.then(ResourceUpdates::new);
        let services = connected.services();
        let at_start = services.and_then(|services| services.of_resources());
        let at_start = AtStart::read(context, at_start, parts.numa_nodes.take()).await?;
        let uses = plugins::Uses {
            cluster: &ground.cluster,
            has_containers: services.is_some(),
            devices: at_start.as_ref().map(|it| (&it.machine, it.running())),
            updates: updates.clone(),
        };
        let plugins = PluginRoom::open(context, uses).await?;
        let resources = ResourceRoom::open(context, at_start, plugins.allocator()).await?;
        Ok(Self {
            connected,
            plugins,
            resources,
            updates,
        })
    }
}

/// The pod lifecycle, and what it stands on.
struct House {
    context: Context,
    cluster: ClusterRoom,
    plugins: PluginRoom,
    resources: ResourceRoom,
    node: NodeRoom,
    eviction: EvictionRoom,
    shutdown: ShutdownRoom,
    volumes: VolumeRoom,
    runtime: RuntimeRoom,
    changes: StatusChanges,
    reporter: Arc<dyn PodStatusReporter>,
    kubelet: Kubelet,
}

impl House {
    async fn build(
        (mut context, mut cluster, machine): (Context, ClusterRoom, &HostMachine),
        base: Base,
        parts: &mut Parts,
        tasks: &mut Tasks,
    ) -> Result<Self> {
        let Base {
            connected,
            plugins,
            resources,
            updates,
        } = base;
        let settings = context.settings.clone();
        let (config, gates) = (&settings.configuration, &settings.feature_gates);
        let objects = cluster.objects(&context, parts.config_objects.take(), tasks)?;

        // The node, of what the rooms report.
        let (eviction, shutdown) = (EvictionRoom::open(&settings)?, ShutdownRoom::open(&settings));
        let (kubelet, late) = (Kubelet::builder(), LateVolumes::default());
        let local = node::local(&settings, machine, parts.node.machine.take())?;
        let local = connected.report(local.ready_check(kubelet.runtime_state()));
        let local = late.report(plugins.report(shutdown.report(eviction.report(local))));
        let node = NodeRoom::open(&context, local, take(&mut parts.node), &mut cluster, tasks).await;
        let mut of_node = configured::node(config, gates);
        // Where there is no cluster, no pod can miss its DNS.
        of_node.cluster_has_dns = cluster.is_joined() && !context.serves_kubectl;
        let mut of_statuses = statuses::config(&context);
        node.describe(&mut of_node, &mut of_statuses);

        // Volumes.
        let uses = volumes::Uses {
            certificates: cluster.pod_certificates(&context, node.getter.clone()),
            cluster: &cluster,
            plugins: &plugins,
            objects: &objects,
            node: node.getter.clone(),
        };
        let volumes = VolumeRoom::open(&context, take(&mut parts.volumes), uses, &late, tasks)?;

        // Statuses.
        let (changes, facts) = (StatusChanges::open(&context), of_statuses.node.clone());
        let statuses = statuses::manager(&cluster, take(&mut parts.sinks), changes.sink(), of_statuses);
        let reporter = statuses.reporter();
        node.start(of_node.node_ips.clone(), statuses.handle(), facts, tasks);

        // Pods: their runtime, their sources, and the engine.
        let probes = ProbeResultCache::new();
        let uses = runtime::Uses {
            node: of_node,
            objects,
            volumes: volumes.manager.clone(),
            statuses: reporter.clone(),
            probes: probes.clone(),
            resources: resources.of_containers(),
            exclusive_cpus: resources.exclusive_cpus(&settings),
            claims: plugins.claims(),
        };
        let runtime = RuntimeRoom::open(connected, &context, take(&mut parts.runtime), uses).await?;
        context.settings = runtime.settle(&settings);
        let pods = sources::open(take(&mut parts.sources), &context, &cluster)?;
        let cache = PodCache::new();
        let kubelet = lifecycle(cluster.mirrors(kubelet), &context)
            .pods(pods.build()?)
            .pleg(EventedPleg::new(runtime.reader(), cache.clone()), cache)
            .runtime(runtime.runtime.clone())
            .statuses(statuses)
            .volumes(volumes.manager.clone())
            .node(plugins.node(node.getter.clone()));
        let of_cgroups = runtime.cgroups.clone().map(|cgroups| cgroups as _);
        let kubelet = with(kubelet, of_cgroups, KubeletBuilder::pod_containers);
        let kubelet = with(kubelet, plugins.claims(), KubeletBuilder::dynamic_resources);
        let kubelet = with(kubelet, parts.jitter.take(), KubeletBuilder::jitter);
        let kubelet = probed(kubelet, parts.prober.take(), &runtime, probes);
        let kubelet = with(kubelet, updates, |kubelet, updates| {
            let health = plugins.health().into_iter();
            health
                .fold(kubelet, KubeletBuilder::resource_health)
                .resource_updates(updates)
        });
        let mut handlers = take(&mut parts.admission);
        handlers.extend([eviction.admission(), shutdown.admission()]);
        handlers.extend(of_host(&context, &runtime)?);
        handlers.push(Arc::new(pod_features(&context)));
        handlers.extend(resources.admission());
        let kubelet = handlers.into_iter().fold(kubelet, KubeletBuilder::admission);
        let kubelet = changed(take(&mut parts.kubelet), kubelet).build()?;
        Ok(Self {
            context,
            cluster,
            plugins,
            resources,
            node,
            eviction,
            shutdown,
            volumes,
            runtime,
            changes,
            reporter,
            kubelet,
        })
    }
}

/// The admission handlers for the kernel of this host, on which containers run.
fn of_host(context: &Context, runtime: &RuntimeRoom) -> Result<Vec<Arc<dyn PodAdmitHandler>>> {
    if runtime.manager.is_none() {
        return Ok(Vec::new());
    }
    let sysctls = check::sysctls(&context.settings)?;
    Ok(vec![
        Arc::new(sysctls),
        Arc::new(AppArmorAdmitHandler::linux_host()),
    ])
}

/// The admission handler for the features of pods that the gates switch off.
fn pod_features(context: &Context) -> PodFeaturesAdmitHandler {
    let mut features = PodFeaturesAdmitHandler::default();
    features.pod_level_resources = context.settings.feature_gates.enabled("PodLevelResources");
    features
}

/// How containers are probed: as the builder says, else through the runtime of containers.
fn probed(
    kubelet: KubeletBuilder,
    prober: Option<Box<dyn Prober>>,
    runtime: &RuntimeRoom,
    probes: ProbeResultCache,
) -> KubeletBuilder {
    match (prober, &runtime.services) {
        (Some(prober), _) => kubelet.prober(prober, probes),
        (None, Some(services)) => kubelet.prober(NodeProber::new(services.clone()), probes),
        (None, None) => kubelet,
    }
}

/// The settings of the pod lifecycle.
fn lifecycle(kubelet: KubeletBuilder, context: &Context) -> KubeletBuilder {
    let settings = &*context.settings;
    let (config, gates) = (&settings.configuration, &settings.feature_gates);
    let kubelet = kubelet
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
        .root_dir(context.root_dir.path());
    let declared = node::declared_features(gates).map(DeclaredFeatures::new);
    with(kubelet, declared, KubeletBuilder::declared_features)
}

/// Builds all, and adds what runs beside the pod lifecycle.
async fn assemble(ground: Ground, mut parts: Parts, tasks: &mut Tasks) -> Result<AgentHandle> {
    let base = Base::lay(&ground, &mut parts, tasks).await?;
    let Ground {
        context,
        feed,
        machine,
        mut own_api,
        cluster,
        console,
        adapt,
        mut dynamic,
    } = ground;
    // Files are compared with what files said.
    let as_configured = context.settings.clone();
    let house = House::build((context, cluster, &machine), base, &mut parts, tasks).await?;
    let House {
        context,
        mut cluster,
        mut plugins,
        resources,
        node,
        eviction,
        shutdown,
        volumes,
        runtime,
        changes,
        reporter,
        kubelet,
    } = house;
    let handle = kubelet.handle();
    plugins.start(&context, &handle, resources.handle(), tasks)?;
    resources.start(&handle, tasks);
    cluster.start(&handle, tasks);
    runtime::start(&context, &runtime, tasks);
    if let Some(cgroups) = &runtime.cgroups {
        let enforced = &context.settings.configuration.enforce_node_allocatable;
        cgroups::start(&context, cgroups, node.local.bound_of_all_pods(enforced), tasks);
    }

    // Usage, and what is done when too much is used.
    let uses = stats::Uses {
        machine,
        kubelet: &handle,
        runtime: &runtime,
        volumes: volumes.own.as_ref(),
    };
    let stats = StatsRoom::open(&context, parts.stats, uses);
    let images = images::start(&context, &runtime, &stats, tasks)?;
    if let Some(services) = &runtime.services {
        dynamic.logs = Some(container_logs::start(&context, services, tasks)?);
    }
    let uses = eviction::Uses {
        kubelet: &handle,
        runtime: &runtime,
        stats: &stats,
        images: images.clone(),
        status: node.status.clone(),
    };
    eviction.start(&context, uses, tasks)?;
    let trigger = shutdown.trigger();
    shutdown.start(&context, &handle, node.status.clone(), tasks);

    // The server, and whoever asks for health.
    changes.start(&context, handle.pods().clone(), reporter, tasks);
    let console = console.start(&context, &handle, runtime.logs.clone(), &mut parts.server, tasks)?;
    (dynamic.images, dynamic.verbosity) = (images, parts.server.set_verbosity());
    let uses = server::Uses {
        kubelet: &handle,
        runtime: &runtime,
        stats: &stats,
        plugins: &plugins,
        cluster: &cluster,
    };
    server::start(&context, parts.server, &uses, own_api.connections(), tasks).await?;
    let health = plugins.checks(HealthChecks::of(&handle));
    health::start(&context, &health, tasks)?;

    tasks.add_fallible(
        "kubelet",
        |shutdown| async move { Ok(kubelet.run(shutdown).await?) },
    );
    Ok(AgentHandle {
        kubelet: handle,
        logs: runtime.logs,
        streaming: runtime.streaming,
        events: feed,
        health,
        node_name: context.node_name,
        dynamic: Dynamic::new(&as_configured, adapt, dynamic),
        shutdown: trigger,
        joins_cluster: cluster.is_joined(),
        api_server: own_api.server(),
        console,
    })
}
