//! Decides whether a container that is not running is restarted.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use kubelet_core::PodExt;
use kubelet_core::restart_rules::{asks_to_restart_all_containers, container_should_restart};
use kubelet_core::runtime::{ContainerState, ContainerStatus, PodStatus};

use super::ContainerToReset;

/// `ShouldContainerBeRestarted`; `status` is the container's newest.
pub(super) fn should_be_restarted(
    container: &Container,
    pod: &Pod,
    status: Option<&ContainerStatus>,
) -> bool {
    if pod.is_deleting() {
        return false;
    }
    match status.map(|status| (status.state, status.exit_code)) {
        None | Some((ContainerState::Unknown | ContainerState::Created, _)) => true,
        Some((ContainerState::Running, _)) => false,
        Some((ContainerState::Exited, exit_code)) => {
            let spec = pod.spec.as_ref();
            spec.is_none_or(|spec| container_should_restart(container, spec, exit_code))
        }
    }
}

/// Whether the exit of a container restarts all containers of the pod (`ShouldAllContainersRestart`).
pub(crate) fn should_all_containers_restart(pod: &Pod, status: &PodStatus) -> bool {
    pod.all_containers()
        .filter(|container| container.restart_policy_rules.is_some())
        .any(|container| {
            status
                .container(&container.name)
                .is_some_and(|status| asks_to_restart_all(container, status))
        })
}

/// `getContainersToReset`, for regular and init containers: those that triggered the restart come last.
pub(super) fn containers_to_reset(spec: &PodSpec, pod_status: &PodStatus) -> Vec<ContainerToReset> {
    let (mut askers, mut others) = (Vec::new(), Vec::new());
    for container in spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten())
    {
        let instances = pod_status
            .containers
            .iter()
            .filter(|status| status.name == container.name);
        for status in instances {
            let list = match asks_to_restart_all(container, status) {
                true => &mut askers,
                false => &mut others,
            };
            list.push(ContainerToReset {
                id: status.id.clone(),
                name: status.name.clone(),
                kill: status.state != ContainerState::Exited,
            });
        }
    }
    others.append(&mut askers);
    others
}

fn asks_to_restart_all(container: &Container, status: &ContainerStatus) -> bool {
    status.state == ContainerState::Exited && asks_to_restart_all_containers(container, status.exit_code)
}
