//! One form for every status, so that what is the same compares the same (`normalizeStatus`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStatus, Pod, PodCondition, PodStatus as ApiPodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubelet_core::clock::api_time;

use crate::conditions;
use crate::status_ext::find_condition;

/// How many bytes of termination messages a pod's status holds, all containers together
/// (`MaxPodTerminationMessageLogLength`).
const MAX_TERMINATION_MESSAGES: usize = 12 * 1024;

/// The conditions whose transition times we keep.
const TIMED_CONDITIONS: [&str; 7] = [
    conditions::CONTAINERS_READY,
    conditions::READY,
    conditions::INITIALIZED,
    conditions::READY_TO_START_CONTAINERS,
    conditions::POD_SCHEDULED,
    conditions::DISRUPTION_TARGET,
    conditions::ALL_CONTAINERS_RESTARTING,
];

/// Cuts times to seconds and messages to their share, and puts the container statuses in order.
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
    }
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

/// Sets the transition times of our conditions: of one that says what it said before, the old time, else
/// `now` (`updateLastTransitionTime`).
pub(crate) fn set_transition_times(status: &mut ApiPodStatus, old: &ApiPodStatus, now: &Time) {
    for condition in status.conditions.iter_mut().flatten() {
        if TIMED_CONDITIONS.contains(&condition.type_.as_str()) {
            set_transition_time(condition, old, now);
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

/// Whether two statuses say the same as far as we have a say (`isPodStatusByKubeletEqual`): conditions of
/// others and the times of ours do not count, nor what belongs to resource claims.
pub(crate) fn same_by_kubelet(old: &ApiPodStatus, new: &ApiPodStatus) -> bool {
    same_conditions(old, new) && same_but_conditions(old, new)
}

/// Whether a sink that has `old` has nothing to learn from `new`.
pub(crate) fn same(old: &ApiPodStatus, new: &ApiPodStatus) -> bool {
    let all_known = new
        .conditions
        .iter()
        .flatten()
        .all(|condition| find_condition(old, &condition.type_).is_some_and(|known| known == condition));
    all_known
        && old.conditions.as_ref().map_or(0, Vec::len) == new.conditions.as_ref().map_or(0, Vec::len)
        && same_but_conditions(old, new)
}

fn same_conditions(old: &ApiPodStatus, new: &ApiPodStatus) -> bool {
    fn ours(status: &ApiPodStatus) -> impl Iterator<Item = &PodCondition> {
        let ours = |type_: &str| conditions::is_owned(type_) || conditions::is_shared(type_);
        status
            .conditions
            .iter()
            .flatten()
            .filter(move |condition| ours(&condition.type_))
    }
    ours(old).count() == ours(new).count()
        && ours(new).all(|condition| {
            find_condition(old, &condition.type_).is_some_and(|old| {
                old.status == condition.status
                    && old.reason.as_deref().unwrap_or_default()
                        == condition.reason.as_deref().unwrap_or_default()
                    && old.message.as_deref().unwrap_or_default()
                        == condition.message.as_deref().unwrap_or_default()
            })
        })
}

fn same_but_conditions(old: &ApiPodStatus, new: &ApiPodStatus) -> bool {
    same_text(&old.phase, &new.phase)
        && same_text(&old.reason, &new.reason)
        && same_text(&old.message, &new.message)
        && same_text(&old.host_ip, &new.host_ip)
        && same_text(&old.pod_ip, &new.pod_ip)
        && same_text(&old.qos_class, &new.qos_class)
        && same_text(&old.nominated_node_name, &new.nominated_node_name)
        && same_text(&old.resize, &new.resize)
        && old.start_time == new.start_time
        && old.observed_generation.unwrap_or(0) == new.observed_generation.unwrap_or(0)
        && old.resources == new.resources
        && same_map(&old.allocated_resources, &new.allocated_resources)
        && same_list(&old.host_ips, &new.host_ips)
        && same_list(&old.pod_ips, &new.pod_ips)
        && same_list(&old.container_statuses, &new.container_statuses)
        && same_list(&old.init_container_statuses, &new.init_container_statuses)
        && same_list(
            &old.ephemeral_container_statuses,
            &new.ephemeral_container_statuses,
        )
}

/// Absent and empty are the same.
fn same_text(old: &Option<String>, new: &Option<String>) -> bool {
    old.as_deref().unwrap_or_default() == new.as_deref().unwrap_or_default()
}

fn same_list<T: PartialEq>(old: &Option<Vec<T>>, new: &Option<Vec<T>>) -> bool {
    old.as_deref().unwrap_or_default() == new.as_deref().unwrap_or_default()
}

fn same_map<K: Ord, V: PartialEq>(old: &Option<BTreeMap<K, V>>, new: &Option<BTreeMap<K, V>>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => old == new,
        (Some(one), None) | (None, Some(one)) => one.is_empty(),
        (None, None) => true,
    }
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

/// Init containers stand in the order of the spec; what the spec does not name stands last.
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
    fn what_is_others_business_makes_no_difference() {
        let ours = || {
            json!({"phase": "Running", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1}]})
        };
        let with = |change: &dyn Fn(&mut Value)| {
            let mut changed = ours();
            change(&mut changed);
            status(changed)
        };
        fn push(status: &mut Value, condition: Value) {
            status["conditions"].as_array_mut().unwrap().push(condition);
        }
        type Change = fn(&mut Value);
        let table: [(Change, bool); 12] = [
            (
                |s| push(s, json!({"type": "example.com/x", "status": "True"})),
                true,
            ),
            (
                |s| s["conditions"][0]["lastTransitionTime"] = json!("2027-01-01T00:00:00Z"),
                true,
            ),
            (|s| s["conditions"][0]["observedGeneration"] = json!(2), true),
            (|s| s["resourceClaimStatuses"] = json!([{"name": "c"}]), true),
            (
                |s| {
                    s["extendedResourceClaimStatus"] =
                        json!({"requestMappings": [], "resourceClaimName": "c"})
                },
                true,
            ),
            (|s| s["message"] = json!(""), true),
            (|s| s["podIPs"] = json!([]), true),
            (|s| s["conditions"][0]["status"] = json!("False"), false),
            (|s| s["conditions"][0]["message"] = json!("no"), false),
            (
                |s| push(s, json!({"type": "DisruptionTarget", "status": "True"})),
                false,
            ),
            (|s| s["observedGeneration"] = json!(2), false),
            (|s| s["allocatedResources"] = json!({"cpu": "1"}), false),
        ];
        for (index, (change, same)) in table.into_iter().enumerate() {
            assert_eq!(
                same_by_kubelet(&status(ours()), &with(&change)),
                same,
                "change {index}"
            );
        }
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
