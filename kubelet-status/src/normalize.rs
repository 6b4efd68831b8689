//! Normalizes statuses, so that equal statuses compare as equal (`normalizeStatus`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStatus, Pod, PodCondition, PodStatus as ApiPodStatus, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubelet_core::clock::api_time;
use kubelet_core::quantity::canonical;

use crate::conditions;
use crate::status_ext::find_condition;

/// The maximum size of all termination messages of a pod together (`MaxPodTerminationMessageLogLength`).
const MAX_TERMINATION_MESSAGES: usize = 12 * 1024;

/// The conditions whose transition times the kubelet sets.
const TIMED_CONDITIONS: [&str; 7] = [
    conditions::CONTAINERS_READY,
    conditions::READY,
    conditions::INITIALIZED,
    conditions::READY_TO_START_CONTAINERS,
    conditions::POD_SCHEDULED,
    conditions::DISRUPTION_TARGET,
    conditions::ALL_CONTAINERS_RESTARTING,
];

/// Truncates times to seconds and messages to their share, sorts the container statuses, and formats quantities like an
/// API server.
pub(crate) fn normalize(pod: &Pod, status: &mut ApiPodStatus) {
    let containers = pod.spec.as_ref().map_or(0, |spec| {
        spec.containers.len()
            + spec.init_containers.as_ref().map_or(0, Vec::len)
            + spec.ephemeral_containers.as_ref().map_or(0, Vec::len)
    });
    let max_message = MAX_TERMINATION_MESSAGES / containers.max(1);

    cut(&mut status.start_time);
    for condition in status.conditions.iter_mut().flatten() {
        cut(&mut condition.last_probe_time);
        cut(&mut condition.last_transition_time);
    }
    let all = [
        &mut status.container_statuses,
        &mut status.init_container_statuses,
        &mut status.ephemeral_container_statuses,
    ];
    for container in all.into_iter().flatten().flatten() {
        normalize_state(&mut container.state, max_message);
        normalize_state(&mut container.last_state, max_message);
        write_canonically(&mut container.allocated_resources);
        normalize_resources(&mut container.resources);
    }
    write_canonically(&mut status.allocated_resources);
    normalize_resources(&mut status.resources);
    for statuses in [
        &mut status.container_statuses,
        &mut status.ephemeral_container_statuses,
    ] {
        statuses
            .as_deref_mut()
            .unwrap_or_default()
            .sort_by(|a, b| a.name.cmp(&b.name));
    }
    sort_init(
        pod,
        status.init_container_statuses.as_deref_mut().unwrap_or_default(),
    );
}

/// Sets the transition times of our conditions: the old time if the status is unchanged, otherwise `now`
/// (`updateLastTransitionTime`).
pub(crate) fn set_transition_times(status: &mut ApiPodStatus, old: &ApiPodStatus, now: &Time) {
    for condition in status.conditions.iter_mut().flatten() {
        if TIMED_CONDITIONS.contains(&condition.type_.as_str()) {
            set_transition_time(condition, old, now);
        }
    }
}

/// Takes over the transition times of conditions that have the same status in `old`.
pub(crate) fn keep_transition_times(status: &mut ApiPodStatus, old: &ApiPodStatus) {
    for condition in status.conditions.iter_mut().flatten() {
        if let Some(now) = condition.last_transition_time.clone() {
            set_transition_time(condition, old, &now);
        }
    }
}

/// Sets one condition's transition time.
pub(crate) fn set_transition_time(condition: &mut PodCondition, old: &ApiPodStatus, now: &Time) {
    let unchanged = find_condition(old, &condition.type_)
        .filter(|old_condition| old_condition.status == condition.status);
    condition.last_transition_time = match unchanged {
        Some(old_condition) => old_condition.last_transition_time.clone(),
        None => Some(now.clone()),
    };
}

fn cut(time: &mut Option<Time>) {
    if let Some(time) = time {
        *time = api_time(time.0);
    }
}

fn normalize_state(state: &mut Option<ContainerState>, max_message: usize) {
    let Some(state) = state else { return };
    if let Some(running) = &mut state.running {
        cut(&mut running.started_at);
    }
    if let Some(terminated) = &mut state.terminated {
        cut(&mut terminated.started_at);
        cut(&mut terminated.finished_at);
        if let Some(message) = &mut terminated.message {
            let mut end = max_message.min(message.len());
            while !message.is_char_boundary(end) {
                end -= 1;
            }
            message.truncate(end);
        }
    }
}

fn normalize_resources(resources: &mut Option<ResourceRequirements>) {
    if let Some(resources) = resources {
        write_canonically(&mut resources.limits);
        write_canonically(&mut resources.requests);
    }
}

fn write_canonically(list: &mut Option<BTreeMap<String, Quantity>>) {
    for quantity in list.iter_mut().flat_map(BTreeMap::values_mut) {
        quantity.0 = canonical(quantity);
    }
}

/// Init containers are in the order of the spec; unknown ones come last.
fn sort_init(pod: &Pod, statuses: &mut [ContainerStatus]) {
    let containers = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.init_containers.as_deref())
        .unwrap_or_default();
    statuses.sort_by_key(|status| {
        containers
            .iter()
            .position(|container| container.name == status.name)
            .unwrap_or(usize::MAX)
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::equality::same_by_kubelet;
    use serde_json::{Value, json};

    fn status(value: Value) -> ApiPodStatus {
        serde_json::from_value(value).unwrap()
    }

    fn container(name: &str, state: Value) -> Value {
        json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state})
    }

    fn pod(init: &[&str], regular: usize) -> Pod {
        let init: Vec<Value> = init.iter().map(|name| json!({"name": name})).collect();
        let regular: Vec<Value> = (0..regular).map(|n| json!({"name": format!("c{n}")})).collect();
        serde_json::from_value(json!({"spec": {"initContainers": init, "containers": regular}})).unwrap()
    }

    #[test]
    fn times_lose_what_is_less_than_a_second() {
        let long = "2026-01-01T00:00:01.999999999Z";
        let mut cut = status(json!({"startTime": long,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": long, "lastProbeTime": long}],
            "containerStatuses": [container("a", json!({"running": {"startedAt": long}}))],
            "initContainerStatuses": [container("i", json!({"terminated": {"exitCode": 0, "startedAt": long, "finishedAt": long}}))]}));
        normalize(&pod(&["i"], 1), &mut cut);
        let text = json!(cut).to_string();
        assert!(
            !text.contains('.') && text.matches("2026-01-01T00:00:01Z").count() == 6,
            "{text}"
        );
    }

    #[test]
    fn messages_of_all_containers_together_have_twelve_kibibytes() {
        // containers, bytes of the message, bytes that stay
        for (containers, long, stays) in [
            (1, 20_000, 12_288),
            (1, 100, 100),
            (4, 20_000, 3_072),
            (48, 300, 256),
        ] {
            let state = || json!({"terminated": {"exitCode": 1, "message": "x".repeat(long)}});
            let mut cut = container("c0", state());
            cut["lastState"] = state();
            let mut cut = status(json!({"containerStatuses": [cut]}));
            normalize(&pod(&[], containers), &mut cut);
            let shown = &cut.container_statuses.unwrap()[0];
            for state in [&shown.state, &shown.last_state] {
                let message = state
                    .as_ref()
                    .unwrap()
                    .terminated
                    .as_ref()
                    .unwrap()
                    .message
                    .as_ref()
                    .unwrap();
                assert_eq!(message.len(), stays, "{containers} {long}");
            }
        }
        // A letter is not cut in two.
        let message = json!({"terminated": {"exitCode": 1, "message": "ä".repeat(10_000)}});
        let mut cut = status(json!({"containerStatuses": [container("c0", message)]}));
        normalize(&pod(&[], 5), &mut cut);
        let end = cut.container_statuses.unwrap()[0]
            .state
            .clone()
            .unwrap()
            .terminated
            .unwrap();
        assert_eq!(end.message.unwrap().len(), 2_456);
    }

    #[test]
    fn the_order_of_containers_makes_no_difference() {
        let names = |status: &Option<Vec<ContainerStatus>>| -> String {
            status
                .iter()
                .flatten()
                .map(|status| status.name.as_str())
                .collect()
        };
        let list = |names: &str| -> Vec<Value> {
            names
                .chars()
                .map(|name| container(&name.to_string(), json!({"running": {}})))
                .collect()
        };
        let of = |order: &str| {
            let mut shown = status(
                json!({"containerStatuses": list(order), "initContainerStatuses": list(order),
                "ephemeralContainerStatuses": list(order)}),
            );
            // The spec's order is not the alphabet's; `x` stands in no spec.
            normalize(&pod(&["c", "a", "b"], 1), &mut shown);
            shown
        };
        let first = of("abcx");
        assert_eq!(names(&first.container_statuses), "abcx");
        assert_eq!(names(&first.init_container_statuses), "cabx");
        for order in ["xcba", "bxac", "cabx"] {
            assert!(same_by_kubelet(&first, &of(order)), "{order}");
        }
        assert!(!same_by_kubelet(&first, &of("abc")));
    }

    #[test]
    fn an_amount_is_one_however_it_is_written() {
        let of = |cpu: &str, memory: &str| {
            let resources = json!({"requests": {"cpu": cpu}, "limits": {"memory": memory}});
            let mut container = container("a", json!({"running": {}}));
            container["resources"] = resources.clone();
            container["allocatedResources"] = resources["requests"].clone();
            let mut shown = status(json!({"containerStatuses": [container], "resources": resources,
                "allocatedResources": {"memory": memory}}));
            normalize(&pod(&[], 1), &mut shown);
            shown
        };
        assert!(same_by_kubelet(&of("0.5", "1024Mi"), &of("500m", "1Gi")));
        assert!(!same_by_kubelet(&of("500m", "1Gi"), &of("501m", "1Gi")));
    }

    #[test]
    fn transition_times_move_with_the_status_alone() {
        let at = |second: u8| format!("2026-01-01T00:00:0{second}Z");
        let condition = |kind: &str, status: &str, time: Option<u8>| json!({"type": kind, "status": status, "reason": "R", "lastTransitionTime": time.map(at)});
        // type, before, after → the second of its transition
        for (kind, before, after, second) in [
            ("Ready", Some("True"), "True", Some(1)),
            ("Ready", Some("True"), "False", Some(9)),
            ("Ready", None, "True", Some(9)),
            ("DisruptionTarget", Some("True"), "True", Some(1)),
            ("AllContainersRestarting", Some("False"), "True", Some(9)),
            // Who sets the time of these is whoever sets these.
            ("PodResizePending", Some("True"), "True", None),
            ("example.com/x", Some("True"), "False", None),
        ] {
            let old: Vec<Value> = before
                .iter()
                .map(|status| condition(kind, status, Some(1)))
                .collect();
            let mut new = status(json!({"conditions": [condition(kind, after, None)]}));
            let now = Time(at(9).parse().unwrap());
            set_transition_times(&mut new, &status(json!({"conditions": old})), &now);
            let shown = json!(new.conditions.unwrap()[0].last_transition_time);
            assert_eq!(shown, json!(second.map(at)), "{kind} {before:?} {after}");
        }
    }
}
