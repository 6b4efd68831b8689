//! The settings of the node, its access to the cluster, and the preflight.

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

/// The declared features that this agent supports. The scheduler places pods that need one only on nodes that
/// declare it.
const DECLARED_FEATURES: [&str; 4] = [
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
];

/// The settings of the node, from a kubelet's flags and configuration, on this machine.
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

/// The declared features; `None` if the feature gate is off.
pub(crate) fn declared_features(gates: &FeatureGates) -> Option<Vec<String>> {
    let declared = DECLARED_FEATURES.iter().filter(|feature| gates.enabled(feature));
    let declared = declared.map(|feature| (*feature).to_owned());
    gates.enabled("NodeDeclaredFeatures").then(|| declared.collect())
}

/// The access to the API server, from `--kubeconfig`, `--bootstrap-kubeconfig` and `--cert-dir`; `None` without
/// `--kubeconfig`.
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
        let Some(Ok(())) = shutdown.run_until_cancelled(addresses.changed()).await else { return };
    }
}

/// Sets the host IPs that pod statuses report from now on.
pub(crate) fn set_host_ips(facts: &mut NodeFacts, ips: Vec<IpAddr>) {
    facts.ipv6_first = ips.first().is_some_and(IpAddr::is_ipv6);
    facts.host_ips = ips;
}

/// How often the node sends its status and renews its lease.
pub(crate) fn heartbeat(config: &KubeletConfiguration) -> NodeHeartbeatConfig {
    let mut heartbeat = NodeHeartbeatConfig::default();
    heartbeat.register_node = config.register_node;
    heartbeat.status.update_frequency = time(config.node_status_update_frequency);
    heartbeat.status.report_frequency = time(config.node_status_report_frequency);
    heartbeat.lease.duration_seconds = count(config.node_lease_duration_seconds);
    heartbeat
}

/// Runs the preflight and prints its findings.
pub(crate) async fn preflight(server: &KubeletServer, version: &str) -> Result<ExitCode, Error> {
    let local = local(server, version)?.build();
    let access = access(server)?.ok_or("preflight needs --kubeconfig")?;
    let findings = access.preflight(&local, server.configuration.server_tls_bootstrap).await?;
    let mut out = std::io::stdout();
    for finding in &findings {
        writeln!(out, "{finding}\n    {}", finding.advice())?;
    }
    if findings.is_empty() {
        writeln!(out, "no problem found for node {}", local.name())?;
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}
