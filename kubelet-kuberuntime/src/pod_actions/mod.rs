//! Decides what a sync does for a pod: a pure function of its spec, its runtime status and its probe results
//! (`computePodActions`).

mod init_containers;
mod resize;
#[cfg(test)]
mod rest;
mod restart;
mod sandbox;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kubelet_core::runtime::{ContainerState, ContainerStatus, PodStatus};
use kubelet_core::{ContainerId, PodExt, ProbeResult, ProbeResults};

use crate::config::hash_container;
pub use resize::{ContainerAmounts, ContainerToUpdate};
pub(crate) use resize::{add_resizes, has_other_whole};
pub(crate) use restart::should_all_containers_restart;

/// The actions for a pod, in this order (`podActions`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PodActions {
    /// Stop all its running containers and its sandboxes. Then [`containers_to_kill`](Self::containers_to_kill) is
    /// ignored.
    pub kill_pod: bool,
    /// Create a new sandbox.
    pub create_sandbox: bool,
    /// The sandbox to start containers in, or the sandbox to replace.
    pub sandbox_id: Option<String>,
    /// The attempt of the sandbox to create, or of the present one.
    pub attempt: u32,
    /// Containers to kill, in the order of the spec.
    pub containers_to_kill: Vec<ContainerToKill>,
    /// Containers to remove, so that all containers of the pod restart (`RestartAllContainers`). Those that may be
    /// running are killed first. The container whose exit triggered this comes last.
    pub containers_to_reset: Vec<ContainerToReset>,
    /// Indices in `spec.ephemeralContainers`.
    pub ephemeral_containers_to_start: Vec<usize>,
    /// Indices in `spec.initContainers`.
    pub init_containers_to_start: Vec<usize>,
    /// Running containers to resize in memory, in this order, before regular containers are started.
    pub containers_to_update_memory: Vec<ContainerToUpdate>,
    /// Running containers to resize in CPU after that, in this order.
    pub containers_to_update_cpu: Vec<ContainerToUpdate>,
    /// Some container is restarted to be resized.
    pub update_pod_resources: bool,
    /// The pod-level resources change.
    pub update_pod_level_resources: bool,
    /// Indices in `spec.containers`.
    pub containers_to_start: Vec<usize>,
    /// All its init containers are done.
    initialized: bool,
}

/// A container to kill, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerToKill {
    /// Its id.
    pub id: ContainerId,
    /// Its name.
    pub name: String,
    /// The message of the `Killing` event.
    pub message: String,
    /// The reason, as far as it changes how the container is killed.
    pub reason: Option<KillReason>,
}

/// A container to remove, so that it starts again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerToReset {
    /// Its id.
    pub id: ContainerId,
    /// Its name.
    pub name: String,
    /// Whether it has not ended and must be killed first.
    pub kill: bool,
}

/// Why a container is killed (`containerKillReason`). A probe may set its own grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KillReason {
    /// Its startup probe failed.
    StartupProbe,
    /// Its liveness probe failed.
    LivenessProbe,
    /// Its post-start hook failed.
    FailedPostStartHook,
    /// The exit of another container of the pod restarts all containers.
    RestartAllContainers,
    /// Any other reason.
    Unknown,
}

impl KillReason {
    /// The kubelet's name for it.
    pub fn as_str(self) -> &'static str {
        match self {
            KillReason::StartupProbe => "StartupProbe",
            KillReason::LivenessProbe => "LivenessProbe",
            KillReason::FailedPostStartHook => "FailedPostStartHook",
            KillReason::RestartAllContainers => "RestartAllContainers",
            KillReason::Unknown => "Unknown",
        }
    }
}

/// Decides what to do for a pod to reach its spec (`computePodActions`). It only computes.
///
/// `restart_all_containers`: the exit of one of its containers restarts all of them.
pub fn compute_pod_actions(
    pod: &Pod,
    status: &PodStatus,
    probes: &dyn ProbeResults,
    restart_all_containers: bool,
) -> PodActions {
    let no_spec;
    let spec = match &pod.spec {
        Some(spec) => spec,
        None => {
            no_spec = PodSpec::default();
            &no_spec
        }
    };
    let sandbox = sandbox::needed_sandbox(pod, status);
    let mut actions = PodActions {
        kill_pod: sandbox.create,
        create_sandbox: sandbox.create,
        sandbox_id: sandbox.id,
        attempt: sandbox.attempt,
        ..Default::default()
    };

    if restart_all_containers {
        actions.containers_to_reset = restart::containers_to_reset(spec, status);
        return actions;
    }
    if sandbox.create {
        start_in_new_sandbox(spec, pod, status, &mut actions);
        return actions;
    }

    // Ephemeral containers start even if the pod is not initialized, and are never restarted.
    for (index, container) in spec.ephemeral_containers.iter().flatten().enumerate() {
        if status.container(&container.name).is_none() {
            actions.ephemeral_containers_to_start.push(index);
        }
    }
    let initialized = init_containers::compute(spec, pod, status, probes, &mut actions);
    if actions.kill_pod || !initialized {
        return actions;
    }
    actions.initialized = true;
    let kept = regular_containers(spec, pod, status, probes, &mut actions);
    if kept == 0 && actions.containers_to_start.is_empty() {
        actions.kill_pod = true;
        // Sidecars must not keep a finished pod running.
        actions.init_containers_to_start.clear();
    }
    actions
}

fn start_in_new_sandbox(spec: &PodSpec, pod: &Pod, status: &PodStatus, actions: &mut PodActions) {
    // Without containers, no sandbox was ever complete: it is created again under any restart policy.
    if pod.restart_policy() == "Never" && actions.attempt != 0 && !status.containers.is_empty() {
        actions.create_sandbox = false;
        return;
    }
    let to_start: Vec<usize> = spec
        .containers
        .iter()
        .enumerate()
        .filter(|(_, container)| {
            let policy = container.restart_policy.as_deref();
            let run_once = policy.unwrap_or(pod.restart_policy()) == "OnFailure";
            !(run_once && succeeded(status.container(&container.name)))
        })
        .map(|(index, _)| index)
        .collect();

    if to_start.is_empty() && any_regular_container_created(spec, status) {
        actions.create_sandbox = false;
    } else if spec.init_containers.as_ref().is_some_and(|init| !init.is_empty()) {
        actions.init_containers_to_start = vec![0];
    } else {
        actions.containers_to_start = to_start;
    }
}

/// Returns how many running containers are kept.
fn regular_containers(
    spec: &PodSpec,
    pod: &Pod,
    pod_status: &PodStatus,
    probes: &dyn ProbeResults,
    actions: &mut PodActions,
) -> usize {
    let mut kept = 0;
    for (index, container) in spec.containers.iter().enumerate() {
        let status = pod_status.container(&container.name);
        let Some(running) = status.filter(|status| status.state == ContainerState::Running) else {
            if restart::should_be_restarted(container, pod, status) {
                actions.containers_to_start.push(index);
                if let Some(unknown) = status.filter(|status| status.state == ContainerState::Unknown) {
                    // It may be running, and two instances of one container must not run.
                    let message = "Container is in \"unknown\" state, try killing it before restart";
                    actions.kill(unknown, message.to_owned(), Some(KillReason::Unknown));
                }
            }
            continue;
        };

        // A failed probe is not an exit, so the container's restart rules do not apply, only its restart policy.
        let policy = container.restart_policy.as_deref();
        let mut restart = policy.unwrap_or(pod.restart_policy()) != "Never";
        let (what, reason) = if changed(container, running) {
            restart = true;
            ("definition changed", None)
        } else if probes.liveness(&running.id) == Some(ProbeResult::Failure) {
            ("failed liveness probe", Some(KillReason::LivenessProbe))
        } else if probes.startup(&running.id) == Some(ProbeResult::Failure) {
            ("failed startup probe", Some(KillReason::StartupProbe))
        } else {
            kept += 1;
            continue;
        };
        let mut message = format!("Container {} {what}", container.name);
        if restart {
            message.push_str(", will be restarted");
            actions.containers_to_start.push(index);
        }
        actions.kill(running, message, reason);
    }
    kept
}

impl PodActions {
    /// Removes actions for containers that have ended for good and are known only from a record, because the runtime
    /// has lost them with their sandbox. The kubelet has no such records.
    pub(super) fn spare_lost(&mut self, pod: &Pod, status: &PodStatus) {
        let containers = pod.spec.as_ref().map_or(&[][..], |spec| &spec.containers);
        self.containers_to_start.retain(|index| {
            let container = containers.get(*index);
            let last = container.and_then(|container| status.container(&container.name));
            // Every container that the runtime reports has a sandbox.
            let is_lost = last.is_some_and(|last| last.sandbox_id.is_empty());
            !is_lost || container.is_none_or(|container| restart::should_be_restarted(container, pod, last))
        });
    }

    /// The pod keeps running, and its init containers are done.
    pub(super) fn initialized(&self) -> bool {
        self.initialized && !self.kill_pod
    }

    fn kill(&mut self, status: &ContainerStatus, message: String, reason: Option<KillReason>) {
        self.containers_to_kill.push(ContainerToKill {
            id: status.id.clone(),
            name: status.name.clone(),
            message,
            reason,
        });
    }
}

/// Whether the running container has another spec (`containerChanged`).
fn changed(container: &Container, status: &ContainerStatus) -> bool {
    status.hash != hash_container(container)
}

fn succeeded(status: Option<&ContainerStatus>) -> bool {
    status.is_some_and(|status| status.state == ContainerState::Exited && status.exit_code == 0)
}

/// Whether a regular container was created, so that all init containers were done (`HasAnyRegularContainerCreated`).
fn any_regular_container_created(spec: &PodSpec, status: &PodStatus) -> bool {
    spec.containers
        .iter()
        .filter_map(|container| status.container(&container.name))
        .any(|status| status.state != ContainerState::Unknown)
}
