//! Decides which running containers to resize (`computePodResizeAction`).

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::restart_rules::is_restartable_init_container;
use kubelet_core::runtime::{ContainerState, ContainerStatus, PodStatus};
use kubelet_core::{ContainerId, ProbeResult, ProbeResults};

use super::PodActions;
use crate::config::{container_amounts, pod_amounts};

/// CPU and memory of a container, or of a whole pod, 0 for none (`resourceRequirements`). A limit that a container does
/// not have is the pod's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContainerAmounts {
    /// In bytes.
    pub memory_limit: i64,
    /// In bytes.
    pub memory_request: i64,
    /// In thousandths of a CPU.
    pub cpu_limit: i64,
    /// In thousandths of a CPU.
    pub cpu_request: i64,
}

/// A container to resize without a restart (`containerToUpdateInfo`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerToUpdate {
    /// Its id.
    pub id: ContainerId,
    /// Its name.
    pub name: String,
    /// The resources that the runtime got last.
    pub from: ContainerAmounts,
    /// The resources in its spec.
    pub to: ContainerAmounts,
}

/// Adds the actions that give the pod and each running container the resources of its spec. `actuated` returns the
/// resources of a container that the runtime got last; a container without them is not resized. `whole` is the same for
/// the pod.
///
/// A container whose `resizePolicy` requires a restart is killed and started again. The others are updated. For each
/// resource, those that get less come first.
pub(crate) fn add_resizes(
    pod: &Pod,
    status: &PodStatus,
    probes: &dyn ProbeResults,
    actuated: impl Fn(&str) -> Option<ContainerAmounts>,
    whole: Option<ContainerAmounts>,
    actions: &mut PodActions,
) {
    let Some(spec) = &pod.spec else { return };
    if actions.kill_pod || actions.create_sandbox || !actions.containers_to_reset.is_empty() {
        return;
    }
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        if let Some(running) = kept(container, status, actions)
            && (!is_restartable_init_container(container) || has_started(container, running, probes))
            && !add_resize(pod, container, running, &actuated, actions)
        {
            insert(&mut actions.init_containers_to_start, index);
        }
    }
    for (index, container) in spec.containers.iter().enumerate() {
        if let Some(running) = kept(container, status, actions)
            && !add_resize(pod, container, running, &actuated, actions)
        {
            insert(&mut actions.containers_to_start, index);
        }
    }
    actions.update_pod_level_resources = actions.initialized() && has_other_whole(pod, whole);
}

/// Whether the pod-level resources differ from the spec (`computePodLevelResourcesResizeAction`).
pub(crate) fn has_other_whole(pod: &Pod, whole: Option<ContainerAmounts>) -> bool {
    match pod_amounts(pod) {
        Ok(Some(desired)) => whole.unwrap_or_default() != desired,
        Ok(None) | Err(_) => false,
    }
}

/// The running instance of the container, unless it has another action.
fn kept<'a>(
    container: &Container,
    status: &'a PodStatus,
    actions: &PodActions,
) -> Option<&'a ContainerStatus> {
    let running = status
        .container(&container.name)
        .filter(|status| status.state == ContainerState::Running)?;
    let killed = actions
        .containers_to_kill
        .iter()
        .any(|kill| kill.id == running.id);
    (!killed).then_some(running)
}

fn has_started(container: &Container, running: &ContainerStatus, probes: &dyn ProbeResults) -> bool {
    container.startup_probe.is_none() || probes.startup(&running.id) == Some(ProbeResult::Success)
}

/// Returns whether the container keeps running.
fn add_resize(
    pod: &Pod,
    container: &Container,
    running: &ContainerStatus,
    actuated: &impl Fn(&str) -> Option<ContainerAmounts>,
    actions: &mut PodActions,
) -> bool {
    let (Some(from), Ok(to)) = (actuated(&container.name), container_amounts(pod, container)) else {
        return true;
    };
    let memory_changes = (from.memory_limit, from.memory_request) != (to.memory_limit, to.memory_request);
    let cpu_changes = (from.cpu_limit, from.cpu_request) != (to.cpu_limit, to.cpu_request);
    let restarts = |resource: &str| {
        let mut policies = container.resize_policy.iter().flatten();
        policies.any(|policy| policy.resource_name == resource && policy.restart_policy == "RestartContainer")
    };
    if (memory_changes && restarts("memory")) || (cpu_changes && restarts("cpu")) {
        let message = format!("Container {} resize requires restart", container.name);
        actions.kill(running, message, None);
        actions.update_pod_resources = true;
        return false;
    }
    let update = ContainerToUpdate {
        id: running.id.clone(),
        name: container.name.clone(),
        from,
        to,
    };
    // If the limit changes, it decides whether the container gets more.
    let grows = |(limit_from, limit_to), (from, to)| match limit_from == limit_to {
        true => to > from,
        false => limit_to > limit_from,
    };
    if memory_changes {
        let limits = (from.memory_limit, to.memory_limit);
        let grows = grows(limits, (from.memory_request, to.memory_request));
        add(&mut actions.containers_to_update_memory, update.clone(), grows);
    }
    if cpu_changes {
        let limits = (from.cpu_limit, to.cpu_limit);
        let grows = grows(limits, (from.cpu_request, to.cpu_request));
        add(&mut actions.containers_to_update_cpu, update, grows);
    }
    true
}

/// Containers that get less come first.
fn add(updates: &mut Vec<ContainerToUpdate>, update: ContainerToUpdate, grows: bool) {
    let at = if grows { updates.len() } else { 0 };
    updates.insert(at, update);
}

/// Inserts into a sorted list, without duplicates.
fn insert(indices: &mut Vec<usize>, index: usize) {
    if let Err(at) = indices.binary_search(&index) {
        indices.insert(at, index);
    }
}

#[cfg(test)]
mod tests {
    use kubelet_core::{NoProbes, PodExt};
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::*;

    /// Millicores and bytes of memory; limits equal requests.
    fn amounts(cpu: i64, memory: i64) -> ContainerAmounts {
        ContainerAmounts {
            memory_limit: memory,
            memory_request: memory,
            cpu_limit: cpu,
            cpu_request: cpu,
        }
    }

    fn container(name: &str, cpu: &str, memory: &str, more: Value) -> Value {
        let list = json!({ "cpu": cpu, "memory": memory });
        let mut container = json!({ "name": name, "resources": { "requests": list, "limits": list } });
        container
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        container
    }

    /// All its containers are running.
    fn running(spec: Value) -> (Pod, PodStatus) {
        let pod: Pod = serde_json::from_value(json!({ "metadata": { "uid": "u" }, "spec": spec })).unwrap();
        let mut status = PodStatus::empty(pod.uid(), pod.key(), Instant::now());
        for container in pod.all_containers() {
            let id = ContainerId::new("test", container.name.as_str());
            let running = ContainerStatus::new(id, &container.name, ContainerState::Running);
            status.containers.push(running);
        }
        (pod, status)
    }

    /// All its containers had 1 CPU and 1000 bytes.
    fn resized(spec: Value) -> PodActions {
        let (pod, status) = running(spec);
        let mut actions = PodActions::default();
        add_resizes(
            &pod,
            &status,
            &NoProbes,
            |_| Some(amounts(1000, 1000)),
            None,
            &mut actions,
        );
        actions
    }

    fn names(updates: &[ContainerToUpdate]) -> Vec<&str> {
        updates.iter().map(|update| update.name.as_str()).collect()
    }

    #[test]
    fn what_shrinks_comes_before_what_grows() {
        let actions = resized(json!({
            "initContainers": [container("side", "2", "1000", json!({ "restartPolicy": "Always" }))],
            "containers": [
                container("same", "1", "1000", json!({})),
                container("grows", "2", "3000", json!({})),
                container("shrinks", "500m", "500", json!({})),
                container("mixed", "1", "400", json!({})),
            ],
        }));
        assert_eq!(
            names(&actions.containers_to_update_cpu),
            ["shrinks", "side", "grows"]
        );
        assert_eq!(
            names(&actions.containers_to_update_memory),
            ["mixed", "shrinks", "grows"]
        );
        let grows = &actions.containers_to_update_memory[2];
        assert_eq!((grows.from, grows.to), (amounts(1000, 1000), amounts(2000, 3000)));
        assert!(actions.containers_to_kill.is_empty() && actions.containers_to_start.is_empty());
    }

    #[test]
    fn a_policy_may_ask_for_a_restart() {
        let policy = |resource: &str| {
            json!({ "resizePolicy": [
                { "resourceName": "other", "restartPolicy": "NotRequired" },
                { "resourceName": resource, "restartPolicy": "RestartContainer" },
            ] })
        };
        let mut sidecar = policy("cpu");
        sidecar["restartPolicy"] = "Always".into();
        let actions = resized(json!({
            "initContainers": [container("side", "2", "1000", sidecar)],
            "containers": [
                container("other", "2", "1000", policy("memory")),
                container("again", "2", "1000", policy("cpu")),
            ],
        }));
        let killed: Vec<_> = actions
            .containers_to_kill
            .iter()
            .map(|kill| (kill.message.as_str(), kill.reason))
            .collect();
        assert_eq!(
            killed,
            [
                ("Container side resize requires restart", None),
                ("Container again resize requires restart", None)
            ]
        );
        assert_eq!(actions.init_containers_to_start, [0]);
        assert_eq!(actions.containers_to_start, [1]);
        assert_eq!(names(&actions.containers_to_update_cpu), ["other"]);
    }

    #[test]
    fn limits_of_the_pod_are_those_of_containers_without() {
        let mut only_requests = container("a", "1", "1000", json!({}));
        only_requests["resources"]["limits"] = json!({});
        let actions = resized(json!({
            "resources": { "limits": { "cpu": "1", "memory": "5000" } },
            "containers": [only_requests],
        }));
        assert!(actions.containers_to_update_cpu.is_empty());
        assert_eq!(actions.containers_to_update_memory[0].to.memory_limit, 5000);
    }

    #[test]
    fn who_is_killed_anyway_or_unknown_is_not_resized() {
        let (pod, status) = running(json!({
            "containers": [container("a", "2", "1", json!({})), container("b", "2", "1", json!({}))],
        }));
        let mut actions = PodActions::default();
        actions.kill(&status.containers[0], String::new(), None);
        let before = actions.clone();
        add_resizes(
            &pod,
            &status,
            &NoProbes,
            |name| (name == "a").then(|| amounts(1000, 1000)),
            None,
            &mut actions,
        );
        assert_eq!(actions, before);
    }

    #[test]
    fn a_pod_as_a_whole_is_resized_once_it_is_initialized() {
        let list = json!({ "cpu": "2", "memory": "1000" });
        let own = json!({ "requests": list, "limits": list });
        let with = |resources: Value| {
            let mut spec = json!({ "containers": [container("a", "1", "1000", json!({}))] });
            if !resources.is_null() {
                spec["resources"] = resources;
            }
            running(spec)
        };
        let given = Some(amounts(2000, 1000));
        // its spec, what it was given, whether it is initialized, whether it is killed; whether there is a resize
        let cases = [
            (json!(null), None, true, false, false),
            (json!(null), given, true, false, false),
            (own.clone(), given, true, false, false),
            (own.clone(), Some(amounts(1000, 1000)), true, false, true),
            (own.clone(), Some(amounts(2000, 1001)), true, false, true),
            (own.clone(), None, true, false, true),
            (own.clone(), None, false, false, false),
            (own.clone(), None, true, true, false),
            (json!({ "limits": list }), given, true, false, true),
        ];
        for (resources, whole, initialized, kill_pod, expected) in cases {
            let (pod, status) = with(resources);
            let mut actions = PodActions {
                initialized,
                kill_pod,
                ..PodActions::default()
            };
            let given = |_: &str| Some(amounts(1000, 1000));
            add_resizes(&pod, &status, &NoProbes, given, whole, &mut actions);
            let case = (pod.spec.unwrap().resources, whole, initialized, kill_pod);
            assert_eq!(actions.update_pod_level_resources, expected, "{case:?}");
            assert!(actions.containers_to_update_cpu.is_empty(), "{case:?}");
        }
    }
}
