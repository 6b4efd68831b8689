//! Helpers to read and build API statuses.

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateTerminated, ContainerStatus, PodCondition,
    PodStatus as ApiPodStatus,
};

/// `ContainerStatusUnknown`: the reason of an exit that was not observed.
pub(crate) const CONTAINER_STATUS_UNKNOWN: &str = "ContainerStatusUnknown";
/// Why containers wait while all containers of the pod restart in place.
pub(crate) const RESTARTING_ALL_CONTAINERS: &str = "RestartingAllContainers";
/// The exit code of an exit that was not observed.
const UNKNOWN_EXIT_CODE: i32 = 137;

/// A container in one of its states.
pub(crate) fn is_running(state: &Option<ContainerState>) -> bool {
    state.as_ref().is_some_and(|state| state.running.is_some())
}

/// Whether the status shows a running container: the pod still holds resources.
pub(crate) fn any_container_runs(status: &ApiPodStatus) -> bool {
    status
        .container_statuses
        .iter()
        .chain(&status.init_container_statuses)
        .chain(&status.ephemeral_container_statuses)
        .flatten()
        .any(|status| is_running(&status.state))
}

pub(crate) fn is_waiting(state: &Option<ContainerState>) -> bool {
    state.as_ref().is_some_and(|state| state.waiting.is_some())
}

pub(crate) fn terminated(state: &Option<ContainerState>) -> Option<&ContainerStateTerminated> {
    state.as_ref()?.terminated.as_ref()
}

/// The state after an exit that was not observed: exit code 137.
pub(crate) fn terminated_unseen(reason: &str, message: &str) -> ContainerState {
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code: UNKNOWN_EXIT_CODE,
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    }
}

/// The statuses of several lists, in this order.
pub(crate) fn chain<'a>(
    first: &'a Option<Vec<ContainerStatus>>,
    second: &'a Option<Vec<ContainerStatus>>,
) -> Vec<&'a ContainerStatus> {
    first.iter().chain(second).flatten().collect()
}

pub(crate) fn find_status<'a>(statuses: &[&'a ContainerStatus], name: &str) -> Option<&'a ContainerStatus> {
    statuses.iter().copied().find(|status| status.name == name)
}

/// The container of the status at `index`, if the two lists match there (`GetContainerByIndex`).
pub(crate) fn container_at<'a>(
    containers: &'a [Container],
    statuses: &[ContainerStatus],
    index: usize,
) -> Option<&'a Container> {
    let container = containers.get(index)?;
    (statuses.get(index)?.name == container.name).then_some(container)
}

pub(crate) fn find_condition<'a>(status: &'a ApiPodStatus, type_: &str) -> Option<&'a PodCondition> {
    status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == type_)
}

pub(crate) fn phase(status: &ApiPodStatus) -> &str {
    status.phase.as_deref().unwrap_or_default()
}

pub(crate) fn is_terminal(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

/// A text as the API stores it: absent if empty.
pub(crate) fn text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
