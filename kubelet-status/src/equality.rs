//! Compares statuses without copying them (`isPodStatusByKubeletEqual`).
//!
//! Both should be [normalized](crate::normalize). Otherwise equal statuses may look different, and the caller compares
//! again after it has normalized them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodCondition, PodStatus as ApiPodStatus};

use crate::conditions;
use crate::status_ext::find_condition;

/// Whether two statuses are equal in the parts that the kubelet owns. Other owners' conditions, the times of conditions
/// and resource claims are ignored.
pub(crate) fn same_by_kubelet(old: &ApiPodStatus, new: &ApiPodStatus) -> bool {
    same_origin(old, new) && same_news(old, new)
}

/// The same, without start time and generation, which a new status takes from the previous one.
pub(crate) fn same_news(old: &ApiPodStatus, new: &ApiPodStatus) -> bool {
    same_conditions(old, new) && same_but_conditions(old, new)
}

/// Whether `new` contains nothing that a sink with `old` needs.
pub(crate) fn same(old: &ApiPodStatus, new: &ApiPodStatus) -> bool {
    let all_known = new
        .conditions
        .iter()
        .flatten()
        .all(|condition| find_condition(old, &condition.type_).is_some_and(|known| known == condition));
    all_known
        && old.conditions.as_ref().map_or(0, Vec::len) == new.conditions.as_ref().map_or(0, Vec::len)
        && same_origin(old, new)
        && same_but_conditions(old, new)
}

fn same_origin(old: &ApiPodStatus, new: &ApiPodStatus) -> bool {
    old.start_time == new.start_time
        && old.observed_generation.unwrap_or(0) == new.observed_generation.unwrap_or(0)
}

/// Usually both are in the same order; then one pass is enough.
fn same_conditions(old: &ApiPodStatus, new: &ApiPodStatus) -> bool {
    let (old, new) = (slice(&old.conditions), slice(&new.conditions));
    let in_order = old.len() == new.len()
        && old
            .iter()
            .zip(new)
            .all(|(old, new)| old.type_ == new.type_ && same_condition(old, new));
    in_order || same_conditions_of_ours(old, new)
}

fn same_conditions_of_ours(old: &[PodCondition], new: &[PodCondition]) -> bool {
    fn ours(conditions: &[PodCondition]) -> impl Iterator<Item = &PodCondition> {
        let ours = |type_: &str| conditions::is_owned(type_) || conditions::is_shared(type_);
        conditions.iter().filter(move |condition| ours(&condition.type_))
    }
    ours(old).count() == ours(new).count()
        && ours(new).all(|new| {
            let before = old.iter().find(|old| old.type_ == new.type_);
            before.is_some_and(|old| same_condition(old, new))
        })
}

fn same_condition(old: &PodCondition, new: &PodCondition) -> bool {
    old.status == new.status && same_text(&old.reason, &new.reason) && same_text(&old.message, &new.message)
}

fn same_but_conditions(old: &ApiPodStatus, new: &ApiPodStatus) -> bool {
    same_text(&old.phase, &new.phase)
        && same_list(&old.container_statuses, &new.container_statuses)
        && same_list(&old.init_container_statuses, &new.init_container_statuses)
        && same_list(
            &old.ephemeral_container_statuses,
            &new.ephemeral_container_statuses,
        )
        && same_list(&old.pod_ips, &new.pod_ips)
        && same_list(&old.host_ips, &new.host_ips)
        && same_text(&old.pod_ip, &new.pod_ip)
        && same_text(&old.host_ip, &new.host_ip)
        && same_text(&old.reason, &new.reason)
        && same_text(&old.message, &new.message)
        && same_text(&old.qos_class, &new.qos_class)
        && same_text(&old.nominated_node_name, &new.nominated_node_name)
        && same_text(&old.resize, &new.resize)
        && old.resources == new.resources
        && same_map(&old.allocated_resources, &new.allocated_resources)
}

/// Absent equals empty.
fn same_text(old: &Option<String>, new: &Option<String>) -> bool {
    old.as_deref().unwrap_or_default() == new.as_deref().unwrap_or_default()
}

fn same_list<T: PartialEq>(old: &Option<Vec<T>>, new: &Option<Vec<T>>) -> bool {
    slice(old) == slice(new)
}

fn slice<T>(list: &Option<Vec<T>>) -> &[T] {
    list.as_deref().unwrap_or_default()
}

fn same_map<K: Ord, V: PartialEq>(old: &Option<BTreeMap<K, V>>, new: &Option<BTreeMap<K, V>>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => old == new,
        (Some(one), None) | (None, Some(one)) => one.is_empty(),
        (None, None) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn status(value: Value) -> ApiPodStatus {
        serde_json::from_value(value).unwrap()
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
    fn the_order_of_conditions_makes_no_difference() {
        let with = |conditions: &[(&str, &str)]| {
            let list: Vec<Value> = conditions
                .iter()
                .map(|(kind, status)| json!({"type": kind, "status": status}))
                .collect();
            status(json!({"conditions": list}))
        };
        let known = [
            ("Ready", "True"),
            ("example.com/x", "True"),
            ("Initialized", "True"),
        ];
        for (conditions, same) in [
            (&[("Initialized", "True"), ("Ready", "True")][..], true),
            (
                &[
                    ("Ready", "True"),
                    ("example.com/x", "False"),
                    ("Initialized", "True"),
                ],
                true,
            ),
            (
                &[
                    ("Ready", "True"),
                    ("example.com/x", "True"),
                    ("Initialized", "False"),
                ],
                false,
            ),
            (&[("Initialized", "True"), ("Ready", "False")], false),
            (
                &[
                    ("Ready", "True"),
                    ("example.com/x", "True"),
                    ("PodScheduled", "True"),
                ],
                false,
            ),
            (&[("Ready", "True")], false),
        ] {
            assert_eq!(
                same_by_kubelet(&with(&known), &with(conditions)),
                same,
                "{conditions:?}"
            );
            assert_eq!(
                same_by_kubelet(&with(conditions), &with(&known)),
                same,
                "{conditions:?}"
            );
        }
    }
}
