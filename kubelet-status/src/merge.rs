//! Merges a status with the sink's version before it is sent (`mergePodStatus`).

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus as ApiPodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::conditions::{self, CONTAINERS_READY, DISRUPTION_TARGET, READY};
use crate::normalize::set_transition_time;
use crate::status_ext::{find_condition, is_terminal, phase};

/// Our status with the conditions and claims of other owners from the sink.
///
/// While `may_run`, containers of the pod may still be running. A terminal phase would release the pod's resources, so
/// it is held back.
pub(crate) fn merge(
    pod: &Pod,
    sink: &ApiPodStatus,
    ours: &ApiPodStatus,
    may_run: bool,
    now: &Time,
) -> ApiPodStatus {
    let ends = !is_terminal(phase(sink)) && is_terminal(phase(ours));
    let mut merged = ApiPodStatus {
        conditions: Some(merge_conditions(sink, ours, ends && !may_run, now))
            .filter(|conditions| !conditions.is_empty()),
        resource_claim_statuses: sink.resource_claim_statuses.clone(),
        extended_resource_claim_status: sink.extended_resource_claim_status.clone(),
        node_allocatable_resource_claim_statuses: sink.node_allocatable_resource_claim_statuses.clone(),
        ..ours.clone()
    };
    if ends && may_run {
        merged.phase.clone_from(&sink.phase);
        merged.reason.clone_from(&sink.reason);
        merged.message.clone_from(&sink.message);
    }
    let is_true = |type_| find_condition(&merged, type_).is_some_and(|condition| condition.status == "True");
    if is_terminal(phase(&merged)) && (is_true(READY) || is_true(CONTAINERS_READY)) {
        let conditions: Vec<PodCondition> = [CONTAINERS_READY, READY]
            .into_iter()
            .map(|type_| {
                let mut condition = conditions::not_ready_any_more(pod, type_, phase(&merged));
                set_transition_time(&mut condition, &merged, now);
                condition
            })
            .collect();
        let all = merged.conditions.get_or_insert_default();
        for condition in conditions {
            conditions::replace_or_append(all, condition);
        }
    }
    merged
}

fn merge_conditions(
    sink: &ApiPodStatus,
    ours: &ApiPodStatus,
    has_ended: bool,
    now: &Time,
) -> Vec<PodCondition> {
    let mut merged: Vec<PodCondition> = sink
        .conditions
        .iter()
        .flatten()
        .filter(|condition| !conditions::is_owned(&condition.type_))
        .cloned()
        .collect();
    for condition in ours.conditions.iter().flatten() {
        if conditions::is_owned(&condition.type_) {
            merged.push(condition.clone());
        } else if condition.type_ == DISRUPTION_TARGET && has_ended {
            let mut condition = condition.clone();
            set_transition_time(&mut condition, sink, now);
            conditions::replace_or_append(&mut merged, condition);
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn merged(sink: Value, ours: Value, may_run: bool) -> Value {
        let status = |value| serde_json::from_value(value).unwrap();
        let now = Time("2026-01-01T00:00:09Z".parse().unwrap());
        json!(merge(
            &Pod::default(),
            &status(sink),
            &status(ours),
            may_run,
            &now
        ))
    }

    #[test]
    fn conditions_of_others_stay_as_the_sink_has_them() {
        let result = merged(
            json!({"phase": "Running", "resourceClaimStatuses": [{"name": "c"}], "conditions":
                [{"type": "example.com/x", "status": "True"}, {"type": "Ready", "status": "False"}]}),
            json!({"phase": "Running", "conditions":
                [{"type": "example.com/x", "status": "False"}, {"type": "Ready", "status": "True"}]}),
            true,
        );
        assert_eq!(
            result,
            json!({"phase": "Running", "resourceClaimStatuses": [{"name": "c"}], "conditions":
                [{"type": "example.com/x", "status": "True"}, {"type": "Ready", "status": "True"}]})
        );
    }

    #[test]
    fn a_terminal_phase_waits_for_the_last_container() {
        let sink = json!({"phase": "Running", "conditions": []});
        let ours = json!({"phase": "Failed", "reason": "Evicted", "conditions": [
            {"type": "DisruptionTarget", "status": "True"},
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let result = merged(sink.clone(), ours.clone(), true);
        assert_eq!(result["phase"], "Running");
        assert_eq!(result["reason"], json!(null));
        assert_eq!(result["conditions"].as_array().unwrap().len(), 1);

        let result = merged(sink, ours, false);
        assert_eq!(
            (&result["phase"], &result["reason"]),
            (&json!("Failed"), &json!("Evicted"))
        );
        assert_eq!(
            result["conditions"],
            json!([
                {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "2026-01-01T00:00:09Z"},
                {"type": "Ready", "status": "False", "reason": "PodFailed", "lastTransitionTime": "2026-01-01T00:00:09Z"},
                {"type": "ContainersReady", "status": "False", "reason": "PodFailed", "lastTransitionTime": "2026-01-01T00:00:09Z"},
            ])
        );
    }
}
