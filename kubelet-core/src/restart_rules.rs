//! Whether an exited container restarts: by its own rules and policy, then by the pod's policy (`pkg/api/v1/pod`,
//! `ContainerShouldRestart` and its helpers).

use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, PodSpec};

/// Whether it is a sidecar: an init container that runs beside the regular ones (`IsRestartableInitContainer`).
pub fn is_restartable_init_container(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Whether the container restarts after this exit code (`ContainerShouldRestart`). Its rules come first, then its own
/// policy, then the pod's. Rules without a policy of the container are ignored.
pub fn container_should_restart(container: &Container, pod: &PodSpec, exit_code: i32) -> bool {
    let own = container.restart_policy.as_deref();
    if own.is_some()
        && let Some(rule) = matching_restart_rule(container, exit_code)
        && matches!(rule.action.as_str(), "Restart" | "RestartAllContainers")
    {
        return true;
    }
    let restarts = |policy: &str| match policy {
        "Always" => Some(true),
        "OnFailure" => Some(exit_code != 0),
        "Never" => Some(false),
        _ => None,
    };
    own.and_then(restarts)
        .or_else(|| pod.restart_policy.as_deref().and_then(restarts))
        .unwrap_or(true)
}

/// Whether no container of the pod ever restarts (`IsContainerRestartable` is false for each).
pub(crate) fn runs_once(pod: &PodSpec) -> bool {
    let is_restartable = |container: &Container| match container.restart_policy.as_deref() {
        Some(policy) => {
            let mut rules = container.restart_policy_rules.iter().flatten();
            rules.any(|rule| rule.action == "Restart") || policy != "Never"
        }
        None => false,
    };
    pod.restart_policy.as_deref() == Some("Never") && !pod.containers.iter().any(is_restartable)
}

/// Whether this exit of the container restarts the whole pod (`RestartAllContainers`).
pub fn asks_to_restart_all_containers(container: &Container, exit_code: i32) -> bool {
    matching_restart_rule(container, exit_code).is_some_and(|rule| rule.action == "RestartAllContainers")
}

/// The first rule that applies to this exit code (`FindMatchingContainerRestartRule`).
pub fn matching_restart_rule(container: &Container, exit_code: i32) -> Option<&ContainerRestartRule> {
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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ContainerRestartRuleOnExitCodes;

    use super::*;

    #[test]
    fn rules_come_before_policies_and_the_containers_before_the_pods() {
        let rule = |action: &str, operator: &str| ContainerRestartRule {
            action: action.to_owned(),
            exit_codes: Some(ContainerRestartRuleOnExitCodes {
                operator: operator.to_owned(),
                values: Some(vec![42]),
            }),
        };
        // container's policy, rule, pod's policy, exit code, restarts
        let table = [
            (None, None, Some("Always"), 0, true),
            (None, None, None, 0, true),
            (None, None, Some("Never"), 1, false),
            (None, None, Some("OnFailure"), 0, false),
            (None, None, Some("OnFailure"), 1, true),
            (Some("Never"), None, Some("Always"), 1, false),
            (Some("Always"), None, Some("Never"), 0, true),
            (Some("OnFailure"), None, Some("Always"), 0, false),
            (
                Some("Never"),
                Some(rule("Restart", "In")),
                Some("Never"),
                42,
                true,
            ),
            (
                Some("Never"),
                Some(rule("Restart", "In")),
                Some("Never"),
                41,
                false,
            ),
            (
                Some("Never"),
                Some(rule("Restart", "NotIn")),
                Some("Never"),
                41,
                true,
            ),
            (
                Some("Never"),
                Some(rule("RestartAllContainers", "In")),
                Some("Never"),
                42,
                true,
            ),
            (None, Some(rule("Restart", "In")), Some("Never"), 42, false),
        ];
        for (own, rule, of_pod, exit_code, restarts) in table {
            let what = format!("{own:?} {rule:?} {of_pod:?} {exit_code}");
            let container = Container {
                restart_policy: own.map(str::to_owned),
                restart_policy_rules: rule.map(|rule| vec![rule]),
                ..Container::default()
            };
            let pod = PodSpec {
                restart_policy: of_pod.map(str::to_owned),
                ..PodSpec::default()
            };
            assert_eq!(
                container_should_restart(&container, &pod, exit_code),
                restarts,
                "{what}"
            );
        }
    }
}
