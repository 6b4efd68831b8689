//! The final status of a pod whose containers have all ended (`TerminatePod`).

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus as ApiPodStatus};
use kubelet_core::PodExt;
use kubelet_core::restart_rules::is_restartable_init_container;

use crate::status_ext::{
    CONTAINER_STATUS_UNKNOWN, container_at, is_running, is_terminal, is_waiting, phase, terminated,
    terminated_unseen,
};

/// Gives every container that was or could have been started an exit, and the pod a terminal phase. An exit that was
/// not observed does not count as success.
pub(crate) fn terminate(pod: &Pod, status: &mut ApiPodStatus, was_reported: bool) {
    if has_initialized(pod) {
        for container in status.container_statuses.iter_mut().flatten() {
            end(container);
        }
    }
    let init = status.init_container_statuses.as_deref_mut().unwrap_or_default();
    let started = started_prefix(init);
    init[..started].iter_mut().for_each(end);

    // Its manifest may start a static pod again.
    if !pod.is_static() && !is_terminal(phase(status)) {
        if phase(status) == "Running" && was_reported {
            tracing::warn!(
                pod = %pod.key(), uid = pod.uid_str(),
                "A pod that has ended was still reported as running"
            );
        }
        status.phase = Some("Failed".to_owned());
    }
}

fn end(status: &mut ContainerStatus) {
    if terminated(&status.state).is_none() {
        status.state = Some(terminated_unseen(
            CONTAINER_STATUS_UNKNOWN,
            "The container could not be located when the pod was terminated",
        ));
    }
}

/// Whether a regular container may have started (`hasPodInitialized`), according to the API server's status.
fn has_initialized(pod: &Pod) -> bool {
    let init_containers = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.init_containers.as_deref())
        .unwrap_or_default();
    if init_containers.is_empty() {
        return true;
    }
    let Some(status) = &pod.status else {
        return false;
    };
    let any_moved = status
        .container_statuses
        .iter()
        .flatten()
        .any(|status| terminated(&status.last_state).is_some() || !is_waiting(&status.state));
    if any_moved {
        return true;
    }
    let statuses = status.init_container_statuses.as_deref().unwrap_or_default();
    let Some(last) = statuses.last() else {
        return false;
    };
    match container_at(init_containers, statuses, statuses.len() - 1) {
        None => false,
        Some(container) if is_restartable_init_container(container) => {
            is_running(&last.state) && last.started == Some(true)
        }
        Some(_) => [&last.last_state, &last.state]
            .into_iter()
            .any(|state| terminated(state).is_some_and(|end| end.exit_code == 0)),
    }
}

/// How many init containers were tried, from the first; at least one (`initializedContainers`).
fn started_prefix(statuses: &[ContainerStatus]) -> usize {
    statuses
        .iter()
        .rposition(|status| !is_waiting(&status.state) || terminated(&status.last_state).is_some())
        .map_or(statuses.len().min(1), |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn container(name: &str, state: Value) -> Value {
        json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state})
    }

    #[test]
    fn what_nobody_saw_end_is_an_error_and_the_phase_is_terminal() {
        let waiting = json!({"waiting": {"reason": "PodInitializing"}});
        let running = json!({"running": {}});
        let done = json!({"terminated": {"exitCode": 0}});
        // source, phase, states of i, j, a → phase, exit codes
        let table = [
            (
                "api",
                "Running",
                &done,
                &done,
                &running,
                "Failed",
                [Some(0), Some(0), Some(137)],
            ),
            (
                "api",
                "Succeeded",
                &done,
                &done,
                &done,
                "Succeeded",
                [Some(0), Some(0), Some(0)],
            ),
            (
                "api",
                "Pending",
                &waiting,
                &waiting,
                &waiting,
                "Failed",
                [Some(137), None, None],
            ),
            (
                "api",
                "Pending",
                &done,
                &running,
                &waiting,
                "Failed",
                [Some(0), Some(137), None],
            ),
            (
                "file",
                "Running",
                &done,
                &done,
                &running,
                "Running",
                [Some(0), Some(0), Some(137)],
            ),
        ];
        for (source, phase_before, i, j, a, phase_after, codes) in table {
            let mut status: ApiPodStatus = serde_json::from_value(json!({"phase": phase_before,
                "initContainerStatuses": [container("i", i.clone()), container("j", j.clone())],
                "containerStatuses": [container("a", a.clone())]}))
            .unwrap();
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"annotations": {"kubernetes.io/config.source": source}},
                "spec": {"initContainers": [{"name": "i"}, {"name": "j"}], "containers": [{"name": "a"}]}, "status": status}))
            .unwrap();
            terminate(&pod, &mut status, false);
            let ends: Vec<Option<i32>> = status
                .init_container_statuses
                .iter()
                .chain(&status.container_statuses)
                .flatten()
                .map(|status| terminated(&status.state).map(|end| end.exit_code))
                .collect();
            assert_eq!(phase(&status), phase_after, "{source} {i} {j} {a}");
            assert_eq!(ends, codes, "{source} {i} {j} {a}");
        }
    }
}
