//! The node: what it is to be, how it reaches its cluster, and what keeps it from that.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::IpAddr;
use std::process::ExitCode;

use kubelet_config::flags::KubeletServer;
use kubelet_config::{FeatureGates, KubeletConfiguration};
use kubelet_kuberuntime::NodeIps;
use kubelet_node::certificate::{ApiServerAccess, ApiServerAccessBuilder};
use kubelet_node::{
    LocalNode, LocalNodeBuilder, MachineInfo, NodeConfig, NodeHeartbeatConfig, NodeInformerHandle,
    Reservation, hostname, node_host_ips, parse_node_ip,
};
use kubelet_status::{NodeFacts, StatusManagerHandle};
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::settings::{count, time};

/// What only pods get that are sent to a node which declares it, as far as it is offered here.
const DECLARED_FEATURES: [&str; 3] = [
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
];

/// What a kubelet's flags and configuration say of its node, on this machine.
pub(crate) fn local(server: &KubeletServer, version: &str) -> Result<LocalNodeBuilder, Error> {
    let KubeletServer { flags, configuration: config, feature_gates: gates, .. } = server;
    let (node_ips, ignored) = parse_node_ip(&flags.node_ip, &flags.cloud_provider)?;
    for ignored in ignored {
        tracing::warn!(ignored, "--node-ip: not an IP address");
    }
    let mut node = NodeConfig::new(hostname(&flags.hostname_override)?);
    node.node_ips = node_ips;
    node.external_cloud_provider = flags.cloud_provider == "external";
    node.node_labels.clone_from(&flags.node_labels);
    node.register_with_taints.clone_from(&config.register_with_taints);
    node.provider_id = Some(config.provider_id.clone()).filter(|id| !id.is_empty());
    node.enable_controller_attach_detach = config.enable_controller_attach_detach;
    node.max_pods = count(config.max_pods);
    node.pods_per_core = count(config.pods_per_core);
    let eviction_hard = match flags.experimental_node_allocatable_ignore_eviction_threshold {
        true => &BTreeMap::new(),
        false => &config.eviction_hard,
    };
    node.reservation = Reservation::new(&config.system_reserved, &config.kube_reserved, eviction_hard)?
        .with_reserved_system_cpus(config.reserved_system_cpus_count());
    node.local_storage_capacity_isolation = config.local_storage_capacity_isolation;
    node.node_status_max_images = usize::try_from(config.node_status_max_images).ok();
    node.kubelet_version = version.to_owned();
    node.kubelet_port = config.port.try_into()?;
    node.declared_features = declared_features(gates).unwrap_or_default();
    let machine = MachineInfo::read(&flags.root_directory)?;
    machine.check_swap(config.fail_swap_on)?;
    node.reservation.check(&machine)?;
    Ok(LocalNode::builder(node, machine))
}

/// The features that the node declares; `None`: there is no such thing.
pub(crate) fn declared_features(gates: &FeatureGates) -> Option<Vec<String>> {
    let declared = DECLARED_FEATURES.iter().filter(|feature| gates.enabled(feature));
    let declared = declared.map(|feature| (*feature).to_owned());
    gates.enabled("NodeDeclaredFeatures").then(|| declared.collect())
}

/// How the API server is reached, as `--kubeconfig`, `--bootstrap-kubeconfig` and `--cert-dir` say; nobody without the
/// first.
pub(crate) fn access(server: &KubeletServer) -> Result<Option<ApiServerAccessBuilder>, Error> {
    let flags = &server.flags;
    if flags.kube_config.is_empty() {
        return Ok(None);
    }
    let node_name = hostname(&flags.hostname_override)?;
    let mut access = ApiServerAccess::builder(node_name, &flags.kube_config, &flags.cert_directory)
        .rotate_certificates(server.configuration.rotate_certificates);
    if !flags.bootstrap_kubeconfig.is_empty() {
        access = access.bootstrap_kubeconfig(&flags.bootstrap_kubeconfig);
    }
    Ok(Some(access))
}

/// Has pods told of the node's addresses as they change (`getHostIPsAnyWay`).
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
            tracing::info!(?known, "the node's addresses");
            ips.set(known.clone());
            set_host_ips(&mut facts, known);
            statuses.set_node_facts(facts.clone());
        }
        let Some(Ok(())) = shutdown.run_until_cancelled(addresses.changed()).await else { return };
    }
}

/// The IPs of the node that statuses tell from now on.
pub(crate) fn set_host_ips(facts: &mut NodeFacts, ips: Vec<IpAddr>) {
    facts.ipv6_first = ips.first().is_some_and(IpAddr::is_ipv6);
    facts.host_ips = ips;
}

/// How often the node tells of itself.
pub(crate) fn heartbeat(config: &KubeletConfiguration) -> NodeHeartbeatConfig {
    let mut heartbeat = NodeHeartbeatConfig::default();
    heartbeat.register_node = config.register_node;
    heartbeat.status.update_frequency = time(config.node_status_update_frequency);
    heartbeat.status.report_frequency = time(config.node_status_report_frequency);
    heartbeat.lease.duration_seconds = count(config.node_lease_duration_seconds);
    heartbeat
}

/// Prints what keeps the node from its cluster, and what to do about it.
pub(crate) async fn preflight(server: &KubeletServer, version: &str) -> Result<ExitCode, Error> {
    let local = local(server, version)?.build();
    let access = access(server)?.ok_or("preflight: without --kubeconfig there is no cluster to join")?;
    // Without a server of its own no serving certificate is asked for, so none can be missing.
    let findings = access.preflight(&local, false).await?;
    let mut out = std::io::stdout();
    for finding in &findings {
        writeln!(out, "{finding}\n    {}", finding.advice())?;
    }
    if findings.is_empty() {
        writeln!(out, "nothing keeps node {} from its cluster", local.name())?;
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}
