//! Valid transitions: a container that has exited for good stays so (`checkContainerStateTransition`).

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec, PodStatus as ApiPodStatus};
use kubelet_core::PodExt;
use kubelet_core::restart_rules::{container_should_restart, is_restartable_init_container};

use crate::error::Error;
use crate::restart_rules::all_containers_could_restart;
use crate::status_ext::{container_at, is_terminal, phase, terminated};

/// Rejects a status in which a container that has exited, and must not restart, is running or waiting.
pub(crate) fn check(pod: &Pod, old: &ApiPodStatus, new: &ApiPodStatus) -> Result<(), Error> {
    let Some(spec) = &pod.spec else {
        return Ok(());
    };
    if pod.restart_policy() == "Always" || all_containers_could_restart(spec) {
        return Ok(());
    }
    let illegal = |container: &str| Error::IllegalTransition {
        pod: pod.key(),
        uid: pod.uid(),
        container: container.to_owned(),
    };

    for status in old.container_statuses.iter().flatten() {
        let container = spec
            .containers
            .iter()
            .find(|container| container.name == status.name);
        if leaves_its_end(spec, container, status, &new.container_statuses) {
            return Err(illegal(&status.name));
        }
    }
    let init_containers = spec.init_containers.as_deref().unwrap_or_default();
    let old_init = old.init_container_statuses.as_deref().unwrap_or_default();
    for (index, status) in old_init.iter().enumerate() {
        let Some(container) = container_at(init_containers, old_init, index) else {
            return Err(Error::StatusMismatch {
                pod: pod.key(),
                uid: pod.uid(),
                container: status.name.clone(),
            });
        };
        if !is_restartable_init_container(container)
            && leaves_its_end(spec, Some(container), status, &new.init_container_statuses)
        {
            return Err(illegal(&status.name));
        }
    }
    Ok(())
}

/// Whether the reported status, if there is one, can change to this status. If not, the object that shows it must be
/// created again.
pub(crate) fn are_possible(pod: &Pod, shown: Option<&ApiPodStatus>, status: &ApiPodStatus) -> bool {
    shown.is_none_or(|shown| {
        let begins_again = is_terminal(phase(shown)) && !is_terminal(phase(status));
        !begins_again && check(pod, shown, status).is_ok()
    })
}

fn leaves_its_end(
    spec: &PodSpec,
    container: Option<&Container>,
    old: &ContainerStatus,
    new: &Option<Vec<ContainerStatus>>,
) -> bool {
    let Some(end) = terminated(&old.state) else {
        return false;
    };
    let failed_and_retried = end.exit_code != 0 && spec.restart_policy.as_deref() == Some("OnFailure");
    let restarts = container.is_some_and(|c| container_should_restart(c, spec, end.exit_code));
    !failed_and_retried
        && !restarts
        && new
            .iter()
            .flatten()
            .any(|new| new.name == old.name && terminated(&new.state).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn what_ended_for_good_stays_ended() {
        let ended = |code: i32| json!({"terminated": {"exitCode": code}});
        let running = || json!({"running": {}});
        let status = |state: Value| -> ApiPodStatus {
            let container = |name: &str| json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state});
            serde_json::from_value(
                json!({"containerStatuses": [container("a")], "initContainerStatuses": [container("i")]}),
            )
            .unwrap()
        };
        // pod policy, the containers' own, from, to, allowed
        let table = [
            ("Always", None, ended(0), running(), true),
            ("Never", None, ended(0), running(), false),
            ("Never", None, ended(1), running(), false),
            ("Never", None, running(), ended(1), true),
            ("Never", None, ended(1), ended(0), true),
            ("OnFailure", None, ended(1), running(), true),
            ("OnFailure", None, ended(0), running(), false),
            ("Never", Some("Always"), ended(0), running(), true),
            ("Never", Some("OnFailure"), ended(1), running(), true),
        ];
        for (policy, own, from, to, allowed) in table {
            let mut container = json!({"name": "a"});
            let mut init = json!({"name": "i"});
            if let Some(own) = own {
                container["restartPolicy"] = json!(own);
                init["restartPolicy"] = json!(own);
            }
            let pod: Pod = serde_json::from_value(
                json!({"spec": {"restartPolicy": policy, "containers": [container], "initContainers": [init]}}),
            )
            .unwrap();
            let result = check(&pod, &status(from.clone()), &status(to.clone()));
            assert_eq!(
                result.is_ok(),
                allowed,
                "{policy} {own:?} {from} {to}: {result:?}"
            );
        }
    }
}
