//! Decides which init containers to start or kill, and whether the pod is initialized.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kubelet_core::restart_rules::is_restartable_init_container;
use kubelet_core::runtime::{ContainerState, ContainerStatus, PodStatus};
use kubelet_core::{PodExt, ProbeResult, ProbeResults};

use super::{KillReason, PodActions, changed, restart};

/// Adds the actions for the init containers, and returns whether the regular ones are next
/// (`computeInitContainerActions`).
///
/// It goes through them from the last to the first: an init container that ran proves that those before it were done,
/// even if they were removed.
pub(super) fn compute(
    spec: &PodSpec,
    pod: &Pod,
    pod_status: &PodStatus,
    probes: &dyn ProbeResults,
    actions: &mut PodActions,
) -> bool {
    let containers = spec.init_containers.as_deref().unwrap_or_default();
    if containers.is_empty() {
        return true;
    }
    let mut initialized = any_regular_container_lives(spec, pod_status);
    // Whether a container after the present one has been started.
    let mut passed = initialized;
    let mut to_start = Vec::new();

    for (index, container) in containers.iter().enumerate().rev() {
        let sidecar = is_restartable_init_container(container);
        let status = pod_status.container(&container.name);
        let Some(status) = status.filter(|status| !is_left_over(status, pod_status)) else {
            if passed && sidecar {
                to_start.push(index);
            }
            continue;
        };
        if passed && !sidecar {
            continue;
        }
        let last = index + 1 == containers.len();
        let verdict = match sidecar {
            true => look_at_sidecar(container, status, probes, actions),
            false => look_at_init_container(container, pod, status, actions),
        };
        match verdict {
            Verdict::Wait => {}
            Verdict::Restart => to_start.push(index),
            Verdict::Done { restart } => {
                if last {
                    initialized = true;
                } else if !passed {
                    to_start.push(index + 1);
                }
                if restart {
                    to_start.push(index);
                }
            }
            Verdict::PodFailed => {
                actions.kill_pod = true;
                actions.init_containers_to_start.clear();
                return false;
            }
        }
        passed = true;
    }

    if !passed {
        to_start.push(0);
    }
    to_start.reverse();
    actions.init_containers_to_start = to_start;
    initialized
}

/// Whether it belongs to an older sandbox than the pod's newest: it ended or was only created there, and could not be
/// removed. Such a container has no meaning for the newest sandbox.
fn is_left_over(status: &ContainerStatus, pod_status: &PodStatus) -> bool {
    let newest = pod_status.sandboxes.first();
    matches!(status.state, ContainerState::Created | ContainerState::Exited)
        && !status.sandbox_id.is_empty()
        && newest.is_some_and(|sandbox| sandbox.id != status.sandbox_id)
}

enum Verdict {
    /// It is running, and the next one waits for it.
    Wait,
    /// It must be restarted.
    Restart,
    /// The next one need not wait for it; it is restarted if it is being stopped.
    Done { restart: bool },
    /// It failed and is not restarted, so the pod fails.
    PodFailed,
}

fn look_at_sidecar(
    container: &Container,
    status: &ContainerStatus,
    probes: &dyn ProbeResults,
    actions: &mut PodActions,
) -> Verdict {
    let mut kill = |what: &str, reason| {
        actions.kill(
            status,
            format!("Init container {} {what}", container.name),
            reason,
        );
    };
    match status.state {
        ContainerState::Created | ContainerState::Exited => Verdict::Restart,
        ContainerState::Unknown => {
            kill_unknown(status, actions);
            Verdict::Restart
        }
        ContainerState::Running => {
            if container.startup_probe.is_some() {
                match probes.startup(&status.id) {
                    Some(ProbeResult::Success) => {}
                    Some(ProbeResult::Failure) => {
                        kill("failed startup probe", Some(KillReason::StartupProbe));
                        return Verdict::Restart;
                    }
                    None | Some(ProbeResult::Unknown) => return Verdict::Wait,
                }
            }
            let failed_liveness = container.liveness_probe.is_some()
                && probes.liveness(&status.id) == Some(ProbeResult::Failure);
            let restart = if changed(container, status) {
                kill("definition changed", None);
                true
            } else if failed_liveness {
                kill("failed liveness probe", Some(KillReason::LivenessProbe));
                true
            } else {
                false
            };
            Verdict::Done { restart }
        }
    }
}

fn look_at_init_container(
    container: &Container,
    pod: &Pod,
    status: &ContainerStatus,
    actions: &mut PodActions,
) -> Verdict {
    match status.state {
        // The runtime failed to start it.
        ContainerState::Created => Verdict::Restart,
        ContainerState::Running => Verdict::Wait,
        ContainerState::Exited if !failed(status) => Verdict::Done { restart: false },
        ContainerState::Exited => match restart::should_be_restarted(container, pod, Some(status)) {
            true => Verdict::Restart,
            false => Verdict::PodFailed,
        },
        ContainerState::Unknown => {
            // There may be no exit code, so no rule on exit codes can apply.
            let policy = container.restart_policy.as_deref();
            if policy.unwrap_or(pod.restart_policy()) == "Never" {
                return Verdict::PodFailed;
            }
            kill_unknown(status, actions);
            Verdict::Restart
        }
    }
}

fn kill_unknown(status: &ContainerStatus, actions: &mut PodActions) {
    let message = "Init container is in \"unknown\" state, try killing it before restart";
    actions.kill(status, message.to_owned(), Some(KillReason::Unknown));
}

/// `isInitContainerFailed`, for a container that has exited.
fn failed(status: &ContainerStatus) -> bool {
    status.reason == "OOMKilled" || status.exit_code != 0
}

/// Exited containers do not count: if the runtime does not report their sandbox, they may belong to the previous one.
fn any_regular_container_lives(spec: &PodSpec, pod_status: &PodStatus) -> bool {
    spec.containers
        .iter()
        .filter_map(|container| pod_status.container(&container.name))
        .filter(|status| !is_left_over(status, pod_status))
        .any(|status| matches!(status.state, ContainerState::Created | ContainerState::Running))
}
