//! The room of the node: what it is, its object in the cluster, and its heartbeat.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kubelet_config::FeatureGates;
use kubelet_config::kubelet_configuration::validation::Host;
use kubelet_core::{FixedNode, NodeGetter};
use kubelet_kuberuntime::{NodeIps, NodeSettings};
use kubelet_node::{
    LocalNode, LocalNodeBuilder, MachineInfo, NodeConfig, NodeInformerHandle, NodeStatusHandle, Reservation,
    node_host_ips, parse_node_ip,
};
use kubelet_status::{NodeFacts, StatusManagerConfig, StatusManagerHandle};
use tokio_util::sync::CancellationToken;

use super::cluster::ClusterRoom;
use super::machine::HostMachine;
use super::plugins;
use crate::configured::{count, reservation};
use crate::context::{Change, Context, changed};
use crate::error::{Result, port};
use crate::inspection::Inspection;
use crate::problem::Problems;
use crate::settings::Settings;
use crate::tasks::Tasks;

/// The declared features that this agent supports. The scheduler places pods that need one only on nodes that
/// declare it.
const DECLARED_FEATURES: [&str; 4] = [
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
];

/// What the builder gathers for the node.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) machine: Option<MachineInfo>,
    pub(crate) changes: Change<LocalNodeBuilder>,
    /// The node that pods must fit.
    pub(crate) getter: Option<Arc<dyn NodeGetter>>,
}

/// The node of this agent.
pub(crate) struct NodeRoom {
    pub(crate) local: Arc<LocalNode>,
    /// The node that pods must fit.
    pub(crate) getter: Arc<dyn NodeGetter>,
    /// Sends the status of the node at once, in a cluster.
    pub(crate) status: Option<NodeStatusHandle>,
    /// The node as it was at the start.
    object: Arc<Node>,
    /// The node as the API server has it, in a cluster.
    watched: Option<NodeInformerHandle>,
}

pub(crate) fn check(settings: &Settings, problems: &mut Problems) {
    let config = &settings.configuration;
    problems.note("port", port("port", config.port));
    problems.note(
        "--node-ip",
        parse_node_ip(&settings.node_ip, &settings.cloud_provider),
    );
    // Thresholds are the affair of the room of eviction.
    let of_pods = Reservation::problems(&config.system_reserved, &config.kube_reserved, &BTreeMap::new());
    for problem in of_pods {
        problems.note_named(&problem);
    }
}

/// Notes what this machine has, and should not have, and what is reserved and not there.
pub(crate) async fn inspect(inspection: &Inspection<'_>, problems: &mut Problems) {
    let (settings, config) = (inspection.settings, &inspection.settings.configuration);
    let machine = match inspection.machine {
        Some(machine) => machine.clone(),
        None => {
            let (root_dir, clock) = (settings.root_dir.clone(), inspection.clock);
            let read = inspection.look(move || Ok(HostMachine::new(clock).of_node(&root_dir)));
            let machine = match read.await {
                Ok(Ok(machine)) => machine,
                Ok(Err(error)) => return problems.add("", error.to_string()),
                Err(error) => return problems.add("", error.to_string()),
            };
            problems.note("failSwapOn", machine.check_swap(config.fail_swap_on));
            machine
        }
    };
    let limited_swap = config.memory_swap.swap_behavior == "LimitedSwap";
    if inspection.makes_cgroups && limited_swap && Host::detect().cgroup_v1 {
        problems.add(
            "memorySwap.swapBehavior",
            "LimitedSwap needs cgroup v2, and this host has v1",
        );
    }
    let reserved_cpus = machine.check_reserved_cpus(&config.reserved_system_cpus);
    problems.note("reservedSystemCPUs", reserved_cpus);
    let lists = [
        ("kubeReserved", &config.kube_reserved),
        ("systemReserved", &config.system_reserved),
    ];
    let given = lists.iter().find(|(_, list)| !list.is_empty());
    let field = given.map_or("evictionHard", |(field, _)| field);
    problems.note(field, reservation(settings).check(&machine));
}

/// The settings of the node, on this machine or on the given one. `inspect` has looked at what does not suit it.
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
    node.reservation = reservation(settings);
    node.local_storage_capacity_isolation = config.local_storage_capacity_isolation;
    node.node_status_max_images = usize::try_from(config.node_status_max_images).ok();
    settings.version.clone_into(&mut node.kubelet_version);
    node.kubelet_port = port("port", config.port)?;
    node.declared_features = declared_features(gates).unwrap_or_default();
    node.reset_extended_resources = !plugins::had_devices(&settings.root_dir);
    let machine = match machine {
        Some(machine) => machine,
        None => host.of_node(&settings.root_dir)?,
    };
    Ok(LocalNode::builder(node, machine))
}

impl NodeRoom {
    /// Builds the node of what the rooms report, and joins the cluster.
    pub(crate) async fn open(
        context: &Context,
        local: LocalNodeBuilder,
        parts: Parts,
        cluster: &mut ClusterRoom,
        tasks: &mut Tasks,
    ) -> Self {
        let local = local.clock(context.clock).events(context.node_recorder.clone());
        let local = Arc::new(changed(parts.changes, local).build());
        local.birth_cry();
        let object = Arc::new(local.initial_node().await);
        let status = cluster.join(context, &local, tasks);
        let watched = cluster.node().cloned();
        // As the API server has it, or without a cluster as it was at the start.
        let getter = || match &watched {
            Some(watched) => Arc::new(watched.clone()) as Arc<dyn NodeGetter>,
            None => Arc::new(FixedNode::new(object.clone())),
        };
        Self {
            getter: parts.getter.unwrap_or_else(getter),
            local,
            status,
            object,
            watched,
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

    /// Follows the addresses of the node, in a cluster. `facts` are those that the statuses have.
    pub(crate) fn start(
        &self,
        ips: NodeIps,
        statuses: StatusManagerHandle,
        facts: NodeFacts,
        tasks: &mut Tasks,
    ) {
        if let Some(node) = self.watched.clone() {
            tasks.add("addresses", |shutdown| {
                follow_addresses(node, ips, statuses, facts, shutdown)
            });
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
async fn follow_addresses(
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
