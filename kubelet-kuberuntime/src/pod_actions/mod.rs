//! What a sync has to do for a pod: a pure function of its spec, its runtime status and what its probes found
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

/// What to do for a pod, in this order (`podActions`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PodActions {
    /// Stop all its running containers and its sandboxes, and none of [`containers_to_kill`](Self::containers_to_kill)
    /// alone.
    pub kill_pod: bool,
    /// Make a new sandbox.
    pub create_sandbox: bool,
    /// The sandbox to start containers in, or the one that is replaced.
    pub sandbox_id: Option<String>,
    /// How many sandboxes the pod had before the one to make, or before the one it has.
    pub attempt: u32,
    /// Containers to kill, in the order of the spec.
    pub containers_to_kill: Vec<ContainerToKill>,
    /// Containers to remove, and to kill first if they may run, so that the pod starts over
    /// (`RestartAllContainers`). The one whose exit asked for it comes last.
    pub containers_to_reset: Vec<ContainerToReset>,
    /// Indices in `spec.ephemeralContainers`.
    pub ephemeral_containers_to_start: Vec<usize>,
    /// Indices in `spec.initContainers`.
    pub init_containers_to_start: Vec<usize>,
    /// Running containers that get other memory, in this order, before the regular ones are started.
    pub containers_to_update_memory: Vec<ContainerToUpdate>,
    /// Running containers that then get other CPU, in this order.
    pub containers_to_update_cpu: Vec<ContainerToUpdate>,
    /// Some container gets other resources by starting again.
    pub update_pod_resources: bool,
    /// The pod as a whole gets other resources.
    pub update_pod_level_resources: bool,
    /// Indices in `spec.containers`.
    pub containers_to_start: Vec<usize>,
    /// Its init containers have done what they are for.
    initialized: bool,
}

/// A container to kill, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerToKill {
    /// Its id.
    pub id: ContainerId,
    /// Its name.
    pub name: String,
    /// The message of the `Killing` event.
    pub message: String,
    /// Why, where it matters to how it is killed.
    pub reason: Option<KillReason>,
}

/// A container to remove, so that it starts anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerToReset {
    /// Its id.
    pub id: ContainerId,
    /// Its name.
    pub name: String,
    /// It has not ended: kill it first.
    pub kill: bool,
}

/// Why a container is killed (`containerKillReason`). A probe may have a grace period of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KillReason {
    /// Its startup probe failed.
    StartupProbe,
    /// Its liveness probe failed.
    LivenessProbe,
    /// Its post-start hook failed.
    FailedPostStartHook,
    /// The exit of another container of the pod asks that all start over.
    RestartAllContainers,
    /// Any other.
    Unknown,
}

impl KillReason {
    /// The kubelet's word for it.
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

/// Decides what to do for a pod so that it comes closer to its spec (`computePodActions`). Does nothing itself.
///
/// `restart_all_containers` says that the exit of one of its containers asks that all of them start over.
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

    // Whether or not the pod is initialized; they are never started again.
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
        // Sidecars must not keep a finished pod alive.
        actions.init_containers_to_start.clear();
    }
    actions
}

fn start_in_new_sandbox(spec: &PodSpec, pod: &Pod, status: &PodStatus, actions: &mut PodActions) {
    // Without any container there never was a whole sandbox: making one is tried again whatever the policy.
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

/// Returns how many running containers stay.
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
                    // It may run: two of one container must not.
                    let message = "Container is in \"unknown\" state, try killing it before restart";
                    actions.kill(unknown, message.to_owned(), Some(KillReason::Unknown));
                }
            }
            continue;
        };

        // A probe is not an exit: of the container's own rules only its policy counts.
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
    /// Leaves alone what has ended for good and is known from a record alone, since the runtime has lost it, sandbox
    /// and all. The kubelet keeps no such record.
    pub(super) fn spare_lost(&mut self, pod: &Pod, status: &PodStatus) {
        let containers = pod.spec.as_ref().map_or(&[][..], |spec| &spec.containers);
        self.containers_to_start.retain(|index| {
            let container = containers.get(*index);
            let last = container.and_then(|container| status.container(&container.name));
            // Whatever the runtime tells of is in a sandbox.
            let is_lost = last.is_some_and(|last| last.sandbox_id.is_empty());
            !is_lost || container.is_none_or(|container| restart::should_be_restarted(container, pod, last))
        });
    }

    /// The pod runs on, and its init containers have done what they are for.
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

/// Whether the container runs to another spec than this (`containerChanged`).
fn changed(container: &Container, status: &ContainerStatus) -> bool {
    status.hash != hash_container(container)
}

fn succeeded(status: Option<&ContainerStatus>) -> bool {
    status.is_some_and(|status| status.state == ContainerState::Exited && status.exit_code == 0)
}

/// One regular container was made, so all init containers were done (`HasAnyRegularContainerCreated`).
fn any_regular_container_created(spec: &PodSpec, status: &PodStatus) -> bool {
    spec.containers
        .iter()
        .filter_map(|container| status.container(&container.name))
        .any(|status| status.state != ContainerState::Unknown)
}
