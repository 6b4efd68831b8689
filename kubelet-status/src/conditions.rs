//! The pod conditions that the kubelet writes, and their ownership (`status/generate.go`, `types/pod_status.go`).

use k8s_openapi::api::core::v1::PodStatus as ApiPodStatus;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};
use kubelet_core::PodExt;
use kubelet_core::restart_rules::is_restartable_init_container;
use kubelet_core::runtime::{PodStatus, SandboxState};

use crate::restart_rules::{all_containers_removed, should_all_containers_restart};
use crate::status_ext::{find_condition, find_status, is_running, terminated};

pub(crate) const POD_SCHEDULED: &str = "PodScheduled";
pub(crate) const READY: &str = "Ready";
pub(crate) const INITIALIZED: &str = "Initialized";
pub(crate) const CONTAINERS_READY: &str = "ContainersReady";
pub(crate) const READY_TO_START_CONTAINERS: &str = "PodReadyToStartContainers";
pub(crate) const ALL_CONTAINERS_RESTARTING: &str = "AllContainersRestarting";
pub(crate) const DISRUPTION_TARGET: &str = "DisruptionTarget";
pub(crate) const RESIZE_IN_PROGRESS: &str = "PodResizeInProgress";
pub(crate) const RESIZE_PENDING: &str = "PodResizePending";

const POD_COMPLETED: &str = "PodCompleted";
const POD_FAILED: &str = "PodFailed";

/// Whether only the kubelet writes this condition (`PodConditionByKubelet`).
pub(crate) fn is_owned(type_: &str) -> bool {
    matches!(
        type_,
        POD_SCHEDULED
            | READY
            | INITIALIZED
            | CONTAINERS_READY
            | RESIZE_IN_PROGRESS
            | RESIZE_PENDING
            | READY_TO_START_CONTAINERS
            | ALL_CONTAINERS_RESTARTING
    )
}

/// Whether the kubelet and others write this condition (`PodConditionSharedByKubelet`).
pub(crate) fn is_shared(type_: &str) -> bool {
    type_ == DISRUPTION_TARGET
}

/// Replaces the condition of the same type, or appends it.
pub(crate) fn replace_or_append(conditions: &mut Vec<PodCondition>, condition: PodCondition) {
    match conditions.iter_mut().find(|other| other.type_ == condition.type_) {
        Some(other) => *other = condition,
        None => conditions.push(condition),
    }
}

/// `PodScheduled`: true, since the pod is on this node.
pub(crate) fn pod_scheduled(pod: &Pod) -> PodCondition {
    condition(pod, POD_SCHEDULED, Verdict::yes())
}

/// `PodReadyToStartContainers`: the pod has a sandbox with a network.
pub(crate) fn ready_to_start_containers(pod: &Pod, runtime: &PodStatus) -> PodCondition {
    let verdict = match sandbox_is_usable(pod, runtime) {
        true => Verdict::yes(),
        false => Verdict::no("", ""),
    };
    condition(pod, READY_TO_START_CONTAINERS, verdict)
}

/// `PodReadyToStartContainers`, as soon as the sandbox is ready.
pub(crate) fn sandbox_is_ready(pod: &Pod) -> PodCondition {
    condition(pod, READY_TO_START_CONTAINERS, Verdict::yes())
}

/// `Initialized`: all init containers have completed, and all sidecars have started.
pub(crate) fn initialized(
    pod: &Pod,
    previous: &ApiPodStatus,
    statuses: &[&ContainerStatus],
    phase: &str,
) -> PodCondition {
    condition(
        pod,
        INITIALIZED,
        initialized_verdict(pod, previous, statuses, phase),
    )
}

/// `ContainersReady`: all regular containers and sidecars are ready.
pub(crate) fn containers_ready(pod: &Pod, statuses: &[&ContainerStatus], phase: &str) -> PodCondition {
    condition(
        pod,
        CONTAINERS_READY,
        containers_ready_verdict(pod, statuses, phase),
    )
}

/// `Ready`: all containers are ready, and the conditions of the pod's readiness gates are true.
pub(crate) fn ready(
    pod: &Pod,
    conditions: &[PodCondition],
    statuses: &[&ContainerStatus],
    phase: &str,
) -> PodCondition {
    let containers = containers_ready_verdict(pod, statuses, phase);
    if !containers.holds {
        return condition(pod, READY, containers);
    }
    let gates = pod
        .spec
        .iter()
        .flat_map(|spec| spec.readiness_gates.iter().flatten());
    let missing: Vec<String> = gates
        .filter_map(|gate| {
            let type_ = &gate.condition_type;
            match conditions.iter().find(|condition| condition.type_ == *type_) {
                None => Some(format!(
                    "corresponding condition of pod readiness gate {type_:?} does not exist."
                )),
                Some(condition) if condition.status != "True" => Some(format!(
                    "the status of pod readiness gate {type_:?} is not \"True\", but {}",
                    condition.status
                )),
                Some(_) => None,
            }
        })
        .collect();
    let verdict = match missing.is_empty() {
        true => Verdict::yes(),
        false => Verdict::no("ReadinessGatesNotReady", &missing.join(", ")),
    };
    condition(pod, READY, verdict)
}

/// `Ready` or `ContainersReady` of a pod that has ended: false.
pub(crate) fn not_ready_any_more(pod: &Pod, type_: &str, phase: &str) -> PodCondition {
    condition(pod, type_, Verdict::no(end_reason(phase).unwrap_or_default(), ""))
}

/// `AllContainersRestarting`: the exit of one container restarts all of them in place.
pub(crate) fn all_containers_restarting(
    pod: &Pod,
    runtime: &PodStatus,
    previous: &ApiPodStatus,
    phase: &str,
) -> PodCondition {
    let verdict = match end_reason(phase) {
        Some(reason) => Verdict::no(reason, ""),
        None if !should_all_containers_restart(pod, runtime, previous)
            || all_containers_removed(pod, runtime) =>
        {
            Verdict::no("", "")
        }
        None => Verdict {
            holds: true,
            reason: "RestartAllContainersStarted".to_owned(),
            message: "container exited with restart policy rule".to_owned(),
        },
    };
    PodCondition {
        observed_generation: None,
        ..condition(pod, ALL_CONTAINERS_RESTARTING, verdict)
    }
}

/// The status of a condition, and its reason.
struct Verdict {
    holds: bool,
    reason: String,
    message: String,
}

impl Verdict {
    fn yes() -> Self {
        Self {
            holds: true,
            reason: String::new(),
            message: String::new(),
        }
    }

    fn no(reason: &str, message: &str) -> Self {
        Self {
            holds: false,
            reason: reason.to_owned(),
            message: message.to_owned(),
        }
    }
}

fn condition(pod: &Pod, type_: &str, verdict: Verdict) -> PodCondition {
    PodCondition {
        type_: type_.to_owned(),
        status: if verdict.holds { "True" } else { "False" }.to_owned(),
        reason: Some(verdict.reason).filter(|reason| !reason.is_empty()),
        message: Some(verdict.message).filter(|message| !message.is_empty()),
        observed_generation: observed_generation(pod),
        ..PodCondition::default()
    }
}

/// The generation of the spec that a status is based on; none for a static pod.
pub(crate) fn observed_generation(pod: &Pod) -> Option<i64> {
    pod.metadata.generation.filter(|generation| *generation != 0)
}

fn end_reason(phase: &str) -> Option<&'static str> {
    match phase {
        "Succeeded" => Some(POD_COMPLETED),
        "Failed" => Some(POD_FAILED),
        _ => None,
    }
}

fn containers_ready_verdict(pod: &Pod, statuses: &[&ContainerStatus], phase: &str) -> Verdict {
    let Some(spec) = &pod.spec else {
        return Verdict::no("UnknownContainerStatuses", "");
    };
    if statuses.is_empty() {
        return Verdict::no("UnknownContainerStatuses", "");
    }
    let sidecars = spec
        .init_containers
        .iter()
        .flatten()
        .filter(|c| is_restartable_init_container(c));
    let (mut unknown, mut unready) = (Vec::new(), Vec::new());
    for container in sidecars.chain(&spec.containers) {
        match find_status(statuses, &container.name) {
            None => unknown.push(container.name.as_str()),
            Some(status) if !status.ready => unready.push(container.name.as_str()),
            Some(_) => {}
        }
    }
    match end_reason(phase) {
        Some(POD_COMPLETED) if unknown.is_empty() => return Verdict::no(POD_COMPLETED, ""),
        Some(POD_FAILED) => return Verdict::no(POD_FAILED, ""),
        _ => {}
    }
    match list_containers(&[("unknown", unknown), ("unready", unready)]) {
        Some(message) => Verdict::no("ContainersNotReady", &message),
        None => Verdict::yes(),
    }
}

fn initialized_verdict(
    pod: &Pod,
    previous: &ApiPodStatus,
    statuses: &[&ContainerStatus],
    phase: &str,
) -> Verdict {
    let Some(spec) = &pod.spec else {
        return Verdict::yes();
    };
    let init_containers = spec.init_containers.as_deref().unwrap_or_default();
    if statuses.is_empty() && !init_containers.is_empty() {
        return Verdict::no("UnknownContainerStatuses", "");
    }
    let (mut unknown, mut incomplete) = (Vec::new(), Vec::new());
    for container in init_containers {
        let Some(status) = find_status(statuses, &container.name) else {
            unknown.push(container.name.as_str());
            continue;
        };
        let done = match is_restartable_init_container(container) {
            true => status.started == Some(true),
            false => status.ready,
        };
        if !done {
            incomplete.push(container.name.as_str());
        }
    }
    if phase == "Succeeded" && unknown.is_empty() {
        return Verdict {
            reason: POD_COMPLETED.to_owned(),
            ..Verdict::yes()
        };
    }
    // A sidecar that restarts does not reset the condition.
    let any_regular_started = spec.containers.iter().any(|container| {
        find_status(statuses, &container.name)
            .is_some_and(|status| is_running(&status.state) || terminated(&status.state).is_some())
    });
    if any_regular_started {
        return Verdict::yes();
    }
    match list_containers(&[("unknown", unknown), ("incomplete", incomplete)]) {
        None => Verdict::yes(),
        // When all containers restart in place, init containers wait again; the condition keeps its value.
        Some(_) if find_condition(previous, INITIALIZED).is_some_and(|c| c.status == "True") => {
            Verdict::yes()
        }
        Some(message) => Verdict::no("ContainersNotInitialized", &message),
    }
}

/// `containers with unknown status: [a b], containers with …`; `None` if there are none.
fn list_containers(kinds: &[(&str, Vec<&str>)]) -> Option<String> {
    let parts: Vec<String> = kinds
        .iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(kind, names)| format!("containers with {kind} status: [{}]", names.join(" ")))
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Whether the pod can continue with its newest sandbox (the reverse of `PodSandboxChanged`).
fn sandbox_is_usable(pod: &Pod, runtime: &PodStatus) -> bool {
    let ready = runtime
        .sandboxes
        .iter()
        .filter(|sandbox| sandbox.state == SandboxState::Ready)
        .count();
    runtime.sandboxes.first().is_some_and(|sandbox| {
        ready == 1
            && sandbox.state == SandboxState::Ready
            && sandbox.host_network == pod.host_network()
            && (sandbox.host_network || !sandbox.network_reported || !sandbox.ips.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubelet_core::runtime::SandboxStatus;
    use serde_json::json;

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"generation": 3}, "spec": spec})).unwrap()
    }

    fn status(name: &str, ready: bool) -> ContainerStatus {
        ContainerStatus {
            name: name.to_owned(),
            ready,
            ..ContainerStatus::default()
        }
    }

    #[test]
    fn readiness_gates_hold_the_pod_back_and_say_why() {
        let pod = pod(json!({"containers": [{"name": "a"}],
            "readinessGates": [{"conditionType": "example.com/x"}, {"conditionType": "example.com/y"}]}));
        let gate = |type_: &str, status: &str| PodCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            ..PodCondition::default()
        };
        let is_ready = status("a", true);
        let statuses = [&is_ready];
        let condition = ready(&pod, &[gate("example.com/y", "False")], &statuses, "Running");
        assert_eq!(condition.status, "False");
        assert_eq!(condition.observed_generation, Some(3));
        assert_eq!(condition.reason.as_deref(), Some("ReadinessGatesNotReady"));
        assert_eq!(
            condition.message.as_deref(),
            Some(
                "corresponding condition of pod readiness gate \"example.com/x\" does not exist., the status of \
                 pod readiness gate \"example.com/y\" is not \"True\", but False"
            )
        );
        let gates = [gate("example.com/x", "True"), gate("example.com/y", "True")];
        assert_eq!(ready(&pod, &gates, &statuses, "Running").status, "True");
        let condition = ready(&pod, &gates, &[&status("a", false)], "Running");
        assert_eq!(condition.reason.as_deref(), Some("ContainersNotReady"));
        assert_eq!(
            condition.message.as_deref(),
            Some("containers with unready status: [a]")
        );
    }

    #[test]
    fn a_sandbox_must_be_the_newest_the_only_ready_one_and_have_its_network() {
        let sandbox = |state, ips: &[&str], reported, host_network| SandboxStatus {
            id: "s".to_owned(),
            state,
            attempt: 0,
            created_at: None,
            ips: ips.iter().map(|ip| ip.to_string()).collect(),
            network_reported: reported,
            host_network,
            runtime_handler: String::new(),
        };
        let ready = sandbox(SandboxState::Ready, &["10.0.0.1"], true, false);
        let stopped = sandbox(SandboxState::NotReady, &[], true, false);
        let table = [
            (vec![], false),
            (vec![ready.clone()], true),
            (vec![ready.clone(), stopped.clone()], true),
            (vec![stopped, ready.clone()], false),
            (vec![ready.clone(), ready], false),
            (vec![sandbox(SandboxState::Ready, &[], true, false)], false),
            (vec![sandbox(SandboxState::Ready, &[], false, false)], true),
            (vec![sandbox(SandboxState::Ready, &[], true, true)], false),
        ];
        for (sandboxes, usable) in table {
            let mut runtime = PodStatus::empty(
                "u".into(),
                kubelet_core::PodKey::new("ns", "p"),
                tokio::time::Instant::now(),
            );
            runtime.sandboxes = sandboxes;
            let condition = ready_to_start_containers(&pod(json!({"containers": []})), &runtime);
            assert_eq!(condition.status == "True", usable, "{:?}", runtime.sandboxes);
        }
    }
}
