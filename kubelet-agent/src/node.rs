//! The node: what it is, its object in the cluster, and its heartbeat.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kubelet_config::{FeatureGates, KubeletConfiguration};
use kubelet_core::{FixedNode, NodeGetter, RuntimeState};
use kubelet_kuberuntime::{NodeIps, NodeSettings};
use kubelet_node::{
    LocalNode, LocalNodeBuilder, MachineInfo, NodeConfig, NodeHeartbeat, NodeHeartbeatConfig,
    NodeInformerHandle, NodeStatusHandle, Reservation, node_host_ips, parse_node_ip,
};
use kubelet_status::{NodeFacts, StatusManagerConfig, StatusManagerHandle};
use tokio_util::sync::CancellationToken;

use crate::builder::{Change, changed};
use crate::cluster::Cluster;
use crate::configured::{count, time};
use crate::context::Context;
use crate::error::{Problems, port};
use crate::eviction::EvictionRoom;
use crate::machine::HostMachine;
use crate::runtime::Connected;
use crate::shutdown::ShutdownRoom;
use crate::{Result, Settings};

/// The declared features that this agent supports. The scheduler places pods that need one only on nodes that
/// declare it.
const DECLARED_FEATURES: [&str; 4] = [
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
];

/// The node of this agent.
#[derive(Clone)]
pub(crate) struct NodeRoom {
    pub(crate) local: Arc<LocalNode>,
    /// The node as it was at the start.
    pub(crate) object: Arc<Node>,
    /// The node as the API server has it, in a cluster.
    pub(crate) watched: Option<NodeInformerHandle>,
    /// Sends the status of the node at once, in a cluster.
    #[allow(dead_code, reason = "each room uses what it needs, and rooms have features")]
    pub(crate) status: Option<NodeStatusHandle>,
}

pub(crate) fn check(settings: &Settings, problems: &mut Problems) {
    problems.note(port("port", settings.configuration.port));
    problems.note(parse_node_ip(&settings.node_ip, &settings.cloud_provider));
    problems.note(reservation(settings));
}

fn reservation(settings: &Settings) -> Result<Reservation> {
    let config = &settings.configuration;
    let eviction_hard = match settings.ignore_eviction_threshold {
        true => &BTreeMap::new(),
        false => &config.eviction_hard,
    };
    let reserved = Reservation::new(&config.system_reserved, &config.kube_reserved, eviction_hard)?;
    Ok(reserved.with_reserved_system_cpus(config.reserved_system_cpus_count()))
}

/// The settings of the node, on this machine or on the given one.
pub(crate) fn local(
    settings: &Settings,
    host: &HostMachine,
    machine: Option<MachineInfo>,
) -> Result<LocalNodeBuilder> {
    let Settings {
        configuration: config,
        feature_gates: gates,
        ..
    } = settings;
    let (node_ips, ignored) = parse_node_ip(&settings.node_ip, &settings.cloud_provider)?;
    for ignored in ignored {
        tracing::warn!(ignored, "--node-ip: not an IP address");
    }
    let mut node = NodeConfig::new(settings.hostname()?);
    node.node_ips = node_ips;
    node.external_cloud_provider = settings.cloud_provider == "external";
    node.node_labels.clone_from(&settings.node_labels);
    node.register_with_taints.clone_from(&config.register_with_taints);
    node.provider_id = Some(config.provider_id.clone()).filter(|id| !id.is_empty());
    node.enable_controller_attach_detach = config.enable_controller_attach_detach;
    node.max_pods = count(config.max_pods);
    node.pods_per_core = count(config.pods_per_core);
    node.reservation = reservation(settings)?;
    node.local_storage_capacity_isolation = config.local_storage_capacity_isolation;
    node.node_status_max_images = usize::try_from(config.node_status_max_images).ok();
    settings.version.clone_into(&mut node.kubelet_version);
    node.kubelet_port = port("port", config.port)?;
    node.declared_features = declared_features(gates).unwrap_or_default();
    #[cfg(feature = "resources")]
    {
        node.reset_extended_resources = !crate::resources::had_devices(&settings.root_dir);
    }
    let machine = match machine {
        Some(machine) => machine,
        None => {
            let machine = host.of_node(&settings.root_dir)?;
            machine.check_swap(config.fail_swap_on)?;
            machine
        }
    };
    node.reservation.check(&machine)?;
    Ok(LocalNode::builder(node, machine))
}

/// The parts of the agent that the node reports about.
pub(crate) struct Reports<'a> {
    pub(crate) runtime: &'a Connected,
    pub(crate) state: RuntimeState,
    pub(crate) eviction: &'a EvictionRoom,
    pub(crate) shutdown: &'a ShutdownRoom,
    #[cfg(feature = "resources")]
    pub(crate) resources: Option<&'a crate::resources::ResourceHandles>,
    #[cfg(feature = "volumes")]
    pub(crate) volumes: crate::volumes::LateVolumes,
}

impl NodeRoom {
    /// Builds the node, and its heartbeat in a cluster.
    pub(crate) async fn new(
        local: LocalNodeBuilder,
        context: &Context,
        cluster: Option<&Cluster>,
        reports: Reports<'_>,
        changes: Change<LocalNodeBuilder>,
    ) -> (Self, Option<NodeHeartbeat>) {
        let mut local = local
            .clock(context.clock)
            .ready_check(reports.state)
            .events(context.node_recorder.clone());
        if let Connected::Containers(services) = reports.runtime {
            local = local.runtime(services.of_node.clone());
        }
        if let Some(pressure) = reports.eviction.pressure() {
            local = local.pressure(pressure);
        }
        local = reports.shutdown.ready_check(local);
        #[cfg(feature = "resources")]
        if let Some(resources) = reports.resources {
            local = local.setter(resources.setter());
        }
        #[cfg(feature = "volumes")]
        {
            let late = reports.volumes.clone();
            local = local
                .volumes_in_use(Arc::new(reports.volumes))
                .ready_check(move || late.problems());
        }
        let local = Arc::new(changed(changes, local).build());
        local.birth_cry();
        let object = Arc::new(local.initial_node().await);
        let heartbeat = cluster.map(|cluster| {
            let config = heartbeat(&context.settings.configuration);
            let beats = cluster.heartbeats(config.timeout());
            NodeHeartbeat::new(cluster.client(), beats, local.clone(), config)
        });
        let watched = heartbeat.as_ref().map(NodeHeartbeat::informer);
        let status = heartbeat.as_ref().map(NodeHeartbeat::status);
        (
            Self {
                local,
                object,
                watched,
                status,
            },
            heartbeat,
        )
    }

    /// The node that pods must fit: as the API server has it, or without a cluster as it was at the start.
    pub(crate) fn getter(&self) -> Arc<dyn NodeGetter> {
        match &self.watched {
            Some(watched) => Arc::new(watched.clone()),
            None => Arc::new(FixedNode::new(self.object.clone())),
        }
    }

    /// Describes the node to its containers, and in a cluster to the statuses of its pods.
    pub(crate) fn describe(&self, settings: &mut NodeSettings, statuses: &mut StatusManagerConfig) {
        settings.node_ips = node_host_ips(&self.object).into();
        settings.set_allocatable(&self.object);
        if self.watched.is_some() {
            set_host_ips(&mut statuses.node, settings.node_ips.get());
        }
    }
}

/// The declared features; `None` if the feature gate is off.
pub(crate) fn declared_features(gates: &FeatureGates) -> Option<Vec<String>> {
    let declared = DECLARED_FEATURES.iter().filter(|feature| gates.enabled(feature));
    let declared = declared.map(|feature| (*feature).to_owned());
    gates.enabled("NodeDeclaredFeatures").then(|| declared.collect())
}

/// Updates the host IPs of pods when the node's addresses change (`getHostIPsAnyWay`).
pub(crate) async fn follow_addresses(
    node: NodeInformerHandle,
    ips: NodeIps,
    statuses: StatusManagerHandle,
    mut facts: NodeFacts,
    shutdown: CancellationToken,
) {
    let mut addresses = node.addresses();
    loop {
        addresses.borrow_and_update();
        let known = node.get().map(|node| node_host_ips(&node)).unwrap_or_default();
        if !known.is_empty() && known != facts.host_ips {
            tracing::info!(?known, "the node's addresses changed");
            ips.set(known.clone());
            set_host_ips(&mut facts, known);
            statuses.set_node_facts(facts.clone());
        }
        let Some(Ok(())) = shutdown.run_until_cancelled(addresses.changed()).await else {
            return;
        };
    }
}

/// Sets the host IPs that pod statuses report from now on.
fn set_host_ips(facts: &mut NodeFacts, ips: Vec<IpAddr>) {
    facts.ipv6_first = ips.first().is_some_and(IpAddr::is_ipv6);
    facts.host_ips = ips;
}

/// How often the node sends its status and renews its lease.
fn heartbeat(config: &KubeletConfiguration) -> NodeHeartbeatConfig {
    let mut heartbeat = NodeHeartbeatConfig::default();
    heartbeat.register_node = config.register_node;
    heartbeat.status.update_frequency = time(config.node_status_update_frequency);
    heartbeat.status.report_frequency = time(config.node_status_report_frequency);
    heartbeat.lease.duration_seconds = count(config.node_lease_duration_seconds);
    heartbeat
}
