//! Whether a container that ended is to run again: restart policies of pod and container, and exit code rules.

use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, Pod, PodSpec, PodStatus as ApiPodStatus};
use kubelet_core::PodExt;
use kubelet_core::runtime::{ContainerState, PodStatus};

use crate::status_ext::{find_condition, terminated};

const RESTART: &str = "Restart";
const RESTART_ALL: &str = "RestartAllContainers";

/// A sidecar: an init container that runs beside the regular ones (`IsRestartableInitContainer`).
pub(crate) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Whether the container is to run again after this exit code (`ContainerShouldRestart`): its rules come
/// first, then its own policy, then the pod's.
pub(crate) fn container_should_restart(container: &Container, pod: &PodSpec, exit_code: i32) -> bool {
    if let Some(policy) = container.restart_policy.as_deref() {
        let action = matching_rule(container, exit_code).map(|rule| rule.action.as_str());
        if matches!(action, Some(RESTART | RESTART_ALL)) {
            return true;
        }
        if let Some(restart) = policy_restarts(policy, exit_code) {
            return restart;
        }
    }
    let policy = pod.restart_policy.as_deref().unwrap_or("Always");
    policy_restarts(policy, exit_code).unwrap_or(true)
}

fn policy_restarts(policy: &str, exit_code: i32) -> Option<bool> {
    match policy {
        "Always" => Some(true),
        "OnFailure" => Some(exit_code != 0),
        "Never" => Some(false),
        _ => None,
    }
}

/// The first rule that this exit code meets (`FindMatchingContainerRestartRule`).
fn matching_rule(container: &Container, exit_code: i32) -> Option<&ContainerRestartRule> {
    container.restart_policy_rules.iter().flatten().find(|rule| {
        rule.exit_codes.as_ref().is_some_and(|codes| {
            let listed = codes.values.iter().flatten().any(|code| *code == exit_code);
            match codes.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                _ => false,
            }
        })
    })
}

/// Whether some container's end may make all of them start again (`AllContainersCouldRestart`).
pub(crate) fn all_containers_could_restart(spec: &PodSpec) -> bool {
    spec.init_containers
        .iter()
        .flatten()
        .chain(&spec.containers)
        .flat_map(|container| container.restart_policy_rules.iter().flatten())
        .any(|rule| rule.action == RESTART_ALL)
}

/// Whether all containers are to start again in place (`ShouldAllContainersRestart`): because that is going
/// on already, or because one ended in a way that a rule says so for.
pub(crate) fn should_all_containers_restart(pod: &Pod, runtime: &PodStatus, previous: &ApiPodStatus) -> bool {
    if find_condition(previous, "AllContainersRestarting").is_some_and(|condition| condition.status == "True")
    {
        return true;
    }
    let asks = |container: &Container, exit_code: i32| {
        matching_rule(container, exit_code).is_some_and(|rule| rule.action == RESTART_ALL)
    };
    pod.all_containers().any(|container| {
        // What the runtime knows goes first; without an ended container there, the API is not asked either.
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
        asks(container, status.exit_code)
            || reported.is_some_and(|reported| asks(container, reported.exit_code))
    })
}

/// Whether the runtime has nothing left of any container (`AllContainersRestartCleanedUp`).
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_come_before_policies_and_the_containers_before_the_pods() {
        // (container policy, rules, pod policy, exit code, restarts)
        let rule = |action: &str, operator: &str, code: i32| {
            format!(r#"[{{"action":"{action}","exitCodes":{{"operator":"{operator}","values":[{code}]}}}}]"#)
        };
        let table = [
            (None, "[]".to_owned(), "Always", 0, true),
            (None, "[]".to_owned(), "Never", 1, false),
            (None, "[]".to_owned(), "OnFailure", 0, false),
            (None, "[]".to_owned(), "OnFailure", 1, true),
            (Some("Never"), "[]".to_owned(), "Always", 1, false),
            (Some("Always"), "[]".to_owned(), "Never", 0, true),
            (Some("OnFailure"), "[]".to_owned(), "Always", 0, false),
            (Some("Never"), rule("Restart", "In", 42), "Never", 42, true),
            (Some("Never"), rule("Restart", "In", 42), "Never", 41, false),
            (Some("Never"), rule("Restart", "NotIn", 42), "Never", 41, true),
            (
                Some("Never"),
                rule("RestartAllContainers", "In", 42),
                "Never",
                42,
                true,
            ),
            // Without a policy of its own a container has no rules.
            (None, rule("Restart", "In", 42), "Never", 42, false),
        ];
        for (own, rules, of_pod, exit_code, restarts) in table {
            let container = Container {
                restart_policy: own.map(str::to_owned),
                restart_policy_rules: serde_json::from_str(&rules).unwrap(),
                ..Container::default()
            };
            let spec = PodSpec {
                restart_policy: Some(of_pod.to_owned()),
                ..PodSpec::default()
            };
            assert_eq!(
                container_should_restart(&container, &spec, exit_code),
                restarts,
                "{own:?} {rules} {of_pod} {exit_code}"
            );
        }
    }
}
