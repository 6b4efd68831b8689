//! Generates the API status of a pod from its runtime status (`generateAPIPodStatus`).

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{HostIP, Pod, PodCondition, PodIP, PodStatus as ApiPodStatus};
use k8s_openapi::jiff::Timestamp;
use kubelet_core::runtime::PodStatus;
use kubelet_core::{PodExt, PodStatusInput, qos_class};

use crate::conditions;
use crate::container_statuses::{ContainerStatuses, Kind, ephemeral_containers};
use crate::phase;
use crate::pod_ips::{host_network_ips, sort_pod_ips};

use crate::readiness::Readiness;
use crate::resources::{allocated_resources, pod_resources};
use crate::restart_rules::{all_containers_could_restart, should_all_containers_restart};
use crate::status_ext::{self, chain, find_condition, is_terminal};

/// Facts about the node that pod statuses contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeFacts {
    /// The node's IPs, one or two, the primary first: `status.hostIPs`, and the IPs of pods on the host's network.
    /// Empty while they are unknown, and without an API server.
    pub host_ips: Vec<IpAddr>,
    /// Whether a pod's IPv6 address is its primary one, as set by the kubelet's first `--node-ip`.
    pub ipv6_first: bool,
    /// Whether container statuses contain the stop signal, as with the feature gate `ContainerStopSignals`. An API
    /// server without that gate drops the field.
    pub stop_signals: bool,
}

/// Generates the API status from the runtime status and from `previous`, the status reported last (or the API server's,
/// if none was reported).
///
/// A pure function without side effects. `agent_started_at` is when this agent started: a container that was running
/// before stays ready until a probe has a result. Times are in whole seconds. `startTime`, the transition times of
/// conditions and the status's `observedGeneration` are not set; the [`StatusManager`](crate::StatusManager) sets them.
///
/// Answers to the kubelet's `generateAPIPodStatus`.
pub fn generate_api_pod_status(
    input: &PodStatusInput<'_>,
    previous: &ApiPodStatus,
    node: &NodeFacts,
    agent_started_at: Timestamp,
) -> ApiPodStatus {
    let pod: &Pod = input.pod;
    let mut status = from_runtime(input, previous, node);

    set_phase(&mut status, input, previous);

    let readiness = Readiness {
        pod,
        probes: input.probes,
        started_at: agent_started_at,
    };
    readiness.apply_to_regular(status.container_statuses.as_deref_mut().unwrap_or_default());
    readiness.apply_to_init(status.init_container_statuses.as_deref_mut().unwrap_or_default());

    status.conditions = Some(pod_conditions(input, previous, &status));
    set_host_ips(&mut status, pod, node);
    status
}

/// The part that depends only on the runtime (`convertStatusToAPIStatus`).
fn from_runtime(input: &PodStatusInput<'_>, previous: &ApiPodStatus, node: &NodeFacts) -> ApiPodStatus {
    let pod: &Pod = input.pod;
    let mut status = ApiPodStatus {
        qos_class: Some(qos_class(pod).as_str().to_owned()),
        resources: Some(pod_resources(pod, input.resources, previous)),
        allocated_resources: allocated_resources(pod),
        ..ApiPodStatus::default()
    };
    set_pod_ips(&mut status, &sort_pod_ips(&input.runtime.ips, node.ipv6_first));

    let containers = ContainerStatuses {
        pod,
        runtime: input.runtime,
        start_failures: input.start_failures,
        ended: terminal_phase(previous).is_some(),
        restarting: should_all_containers_restart(pod, input.runtime, previous),
        recursive_read_only: input.recursive_read_only,
        stop_signals: node.stop_signals,
    };
    let generate = |kind, specs: &[_], previous: &Option<Vec<_>>| {
        let statuses = containers.generate(kind, specs, previous.as_deref().unwrap_or_default());
        (!statuses.is_empty()).then_some(statuses)
    };
    if let Some(spec) = &pod.spec {
        status.container_statuses = generate(Kind::Regular, &spec.containers, &previous.container_statuses);
        status.init_container_statuses = generate(
            Kind::Init,
            spec.init_containers.as_deref().unwrap_or_default(),
            &previous.init_container_statuses,
        );
        status.ephemeral_container_statuses = generate(
            Kind::Ephemeral,
            &ephemeral_containers(pod),
            &previous.ephemeral_container_statuses,
        );
    }
    status
}

/// The phase, and the reason and message that belong to it. A terminal phase never changes, whether this agent or the
/// API server has it.
fn set_phase(status: &mut ApiPodStatus, input: &PodStatusInput<'_>, previous: &ApiPodStatus) {
    let pod: &Pod = input.pod;
    let no_status = ApiPodStatus::default();
    let api = pod.status.as_ref().unwrap_or(&no_status);

    let all = chain(&status.container_statuses, &status.init_container_statuses);
    let initialized = any_active_regular_container(pod, input.runtime);
    let mut phase = phase::phase(pod, &all, input.terminal, initialized);
    if !is_terminal(phase) {
        phase = terminal_phase(previous).or(terminal_phase(api)).unwrap_or(phase);
    }

    if phase == status_ext::phase(previous) {
        let kept = |ours: &Option<String>, theirs: &Option<String>| {
            ours.clone()
                .filter(|text| !text.is_empty())
                .or_else(|| theirs.clone().filter(|text| !text.is_empty()))
        };
        status.reason = kept(&previous.reason, &api.reason);
        status.message = kept(&previous.message, &api.message);
    }
    if let Some(eviction) = input.eviction {
        phase = "Failed";
        status.reason = Some(eviction.reason.clone());
        status.message = Some(eviction.message.clone());
    }
    // The API server shows what was reported of a static pod. The kubelet lets a static pod leave a terminal phase for the other.
    let shown = if pod.is_static() { previous } else { api };
    if let Some(terminal) = terminal_phase(shown).filter(|terminal| *terminal != phase) {
        tracing::error!(
            pod = %pod.key(), uid = pod.uid_str(), from = terminal, to = phase,
            "pod attempted to leave a terminal phase"
        );
        phase = terminal;
    }
    status.phase = Some(phase.to_owned());
}

fn terminal_phase(status: &ApiPodStatus) -> Option<&'static str> {
    match status_ext::phase(status) {
        "Succeeded" => Some("Succeeded"),
        "Failed" => Some("Failed"),
        _ => None,
    }
}

/// `HasAnyActiveRegularContainerStarted`
fn any_active_regular_container(pod: &Pod, runtime: &PodStatus) -> bool {
    let containers = pod.spec.as_ref().map_or(&[][..], |spec| &spec.containers);
    runtime
        .active_containers()
        .any(|status| containers.iter().any(|container| container.name == status.name))
}

/// The conditions of other owners, then those that keep their first value, then the kubelet's.
fn pod_conditions(
    input: &PodStatusInput<'_>,
    previous: &ApiPodStatus,
    status: &ApiPodStatus,
) -> Vec<PodCondition> {
    let (pod, runtime): (&Pod, _) = (input.pod, input.runtime);
    let phase = status_ext::phase(status);
    let statuses = chain(&status.init_container_statuses, &status.container_statuses);

    let mut all: Vec<PodCondition> = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .filter(|condition| !conditions::is_owned(&condition.type_))
        .cloned()
        .collect();
    all.extend_from_slice(input.resize_conditions);
    if let Some(disruption) = find_condition(previous, conditions::DISRUPTION_TARGET) {
        conditions::replace_or_append(&mut all, disruption.clone());
    }
    all.push(conditions::ready_to_start_containers(pod, runtime));
    all.push(conditions::initialized(pod, previous, &statuses, phase));
    all.push(conditions::ready(pod, &all, &statuses, phase));
    all.push(conditions::containers_ready(pod, &statuses, phase));
    all.push(conditions::pod_scheduled(pod));
    if pod.spec.as_ref().is_some_and(all_containers_could_restart) {
        all.push(conditions::all_containers_restarting(
            pod, runtime, previous, phase,
        ));
    }
    all
}

fn set_host_ips(status: &mut ApiPodStatus, pod: &Pod, node: &NodeFacts) {
    let host_ips = &node.host_ips[..node.host_ips.len().min(2)];
    if host_ips.is_empty() {
        return;
    }
    status.host_ip = Some(host_ips[0].to_string());
    status.host_ips = Some(host_ips.iter().map(|ip| HostIP { ip: ip.to_string() }).collect());
    if pod.host_network() {
        let ips: Vec<IpAddr> = status
            .pod_ips
            .iter()
            .flatten()
            .filter_map(|ip| ip.ip.parse().ok())
            .collect();
        set_pod_ips(status, &host_network_ips(ips, host_ips));
    }
}

fn set_pod_ips(status: &mut ApiPodStatus, ips: &[IpAddr]) {
    status.pod_ip = ips.first().map(IpAddr::to_string);
    status.pod_ips = (!ips.is_empty()).then(|| ips.iter().map(|ip| PodIP { ip: ip.to_string() }).collect());
}
