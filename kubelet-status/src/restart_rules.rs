//! The effect of containers and their restart rules on the whole pod.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus as ApiPodStatus};
use kubelet_core::PodExt;
use kubelet_core::restart_rules::{asks_to_restart_all_containers, container_should_restart};
use kubelet_core::runtime::{ContainerState, PodStatus};

use crate::status_ext::{find_condition, terminated};

/// Whether the exit of a container can restart all of them (`AllContainersCouldRestart`).
pub(crate) fn all_containers_could_restart(spec: &PodSpec) -> bool {
    spec.init_containers
        .iter()
        .flatten()
        .chain(&spec.containers)
        .flat_map(|container| container.restart_policy_rules.iter().flatten())
        .any(|rule| rule.action == "RestartAllContainers")
}

/// Whether all containers must restart in place (`ShouldAllContainersRestart`): because they are doing so already, or
/// because a restart rule applies to an exit.
pub(crate) fn should_all_containers_restart(pod: &Pod, runtime: &PodStatus, previous: &ApiPodStatus) -> bool {
    if find_condition(previous, "AllContainersRestarting").is_some_and(|condition| condition.status == "True")
    {
        return true;
    }
    pod.all_containers().any(|container| {
        // The runtime's state takes precedence; without an exited container there, the API status is not used either.
        let Some(status) = runtime
            .container(&container.name)
            .filter(|status| status.state == ContainerState::Exited)
        else {
            return false;
        };
        let reported = previous
            .init_container_statuses
            .iter()
            .chain(&previous.container_statuses)
            .flatten()
            .find(|status| status.name == container.name)
            .and_then(|status| terminated(&status.state));
        asks_to_restart_all_containers(container, status.exit_code)
            || reported.is_some_and(|reported| asks_to_restart_all_containers(container, reported.exit_code))
    })
}

/// Whether the runtime has removed all containers (`AllContainersRestartCleanedUp`).
pub(crate) fn all_containers_removed(pod: &Pod, runtime: &PodStatus) -> bool {
    pod.all_containers()
        .all(|container| runtime.container(&container.name).is_none())
}

/// Whether the next sync will start the container (`ShouldContainerBeRestarted`).
pub(crate) fn container_will_start(container: &Container, pod: &Pod, runtime: &PodStatus) -> bool {
    if pod.is_deleting() {
        return false;
    }
    let Some(status) = runtime.container(&container.name) else {
        return true;
    };
    match status.state {
        ContainerState::Running => false,
        ContainerState::Created | ContainerState::Unknown => true,
        ContainerState::Exited => pod
            .spec
            .as_ref()
            .is_none_or(|spec| container_should_restart(container, spec, status.exit_code)),
    }
}
