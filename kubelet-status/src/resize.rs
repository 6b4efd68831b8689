//! The conditions of a resize in place: pending and in progress.

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::conditions::{RESIZE_IN_PROGRESS, RESIZE_PENDING};
use crate::status_ext::text;

/// The resize waits until the node has room (`PodReasonDeferred`).
pub(crate) const DEFERRED: &str = "Deferred";
/// The node will never have room (`PodReasonInfeasible`).
pub(crate) const INFEASIBLE: &str = "Infeasible";

/// The conditions of one pod (`podResizeConditions`).
#[derive(Clone, Debug, Default)]
pub(crate) struct ResizeConditions {
    pending: Option<PodCondition>,
    in_progress: Option<PodCondition>,
}

impl ResizeConditions {
    /// All conditions, the pending one first.
    pub(crate) fn list(&self) -> Vec<PodCondition> {
        self.pending.iter().chain(&self.in_progress).cloned().collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_none() && self.in_progress.is_none()
    }

    /// The reason why a resize is pending, if one is.
    pub(crate) fn pending_reason(&self) -> Option<&str> {
        self.pending.as_ref()?.reason.as_deref()
    }

    pub(crate) fn is_in_progress(&self) -> bool {
        self.in_progress.is_some()
    }

    /// `SetPodResizePendingCondition`: everything that is not infeasible is deferred. Returns whether the reason or the
    /// generation is new.
    pub(crate) fn set_pending(&mut self, reason: &str, message: &str, generation: i64, now: &Time) -> bool {
        let reason = if reason == INFEASIBLE {
            INFEASIBLE
        } else {
            DEFERRED
        };
        let before = self.pending.take();
        let changed = before.as_ref().is_none_or(|before| {
            before.reason.as_deref() != Some(reason) || generation_of(before) != generation
        });
        self.pending = Some(condition(
            RESIZE_PENDING,
            before.as_ref(),
            reason,
            message,
            generation,
            now,
        ));
        changed
    }

    /// `SetPodResizeInProgressCondition`: a condition that exists keeps its generation, and its reason and message
    /// unless new ones are given. Returns the generation, and whether anything but times changed.
    pub(crate) fn set_in_progress(
        &mut self,
        reason: &str,
        message: &str,
        generation: i64,
        now: &Time,
    ) -> (i64, bool) {
        let Some(before) = self.in_progress.take() else {
            self.in_progress = Some(condition(
                RESIZE_IN_PROGRESS,
                None,
                reason,
                message,
                generation,
                now,
            ));
            return (generation, true);
        };
        let generation = generation_of(&before);
        let (old_reason, old_message) = (
            before.reason.as_deref().unwrap_or_default(),
            before.message.as_deref().unwrap_or_default(),
        );
        let (reason, message) = match reason.is_empty() && message.is_empty() {
            true => (old_reason, old_message),
            false => (reason, message),
        };
        let changed = (reason, message) != (old_reason, old_message);
        self.in_progress = Some(condition(
            RESIZE_IN_PROGRESS,
            Some(&before),
            reason,
            message,
            generation,
            now,
        ));
        (generation, changed)
    }

    /// `ClearPodResizePendingCondition`. Returns whether there was one.
    pub(crate) fn clear_pending(&mut self) -> bool {
        self.pending.take().is_some()
    }

    /// `ClearPodResizeInProgressCondition`. Returns the generation of the one that existed.
    pub(crate) fn clear_in_progress(&mut self) -> Option<i64> {
        self.in_progress.take().as_ref().map(generation_of)
    }

    /// Restores the conditions of an earlier run of the agent, with their times (`BackfillPodResizeConditions`).
    pub(crate) fn backfill(&mut self, pod: &Pod, now: &Time) {
        let shown = pod
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten());
        for shown in shown {
            let again = |type_| {
                let reason = shown.reason.as_deref().unwrap_or_default();
                let message = shown.message.as_deref().unwrap_or_default();
                Some(condition(
                    type_,
                    Some(shown),
                    reason,
                    message,
                    generation_of(shown),
                    now,
                ))
            };
            match shown.type_.as_str() {
                RESIZE_PENDING => self.pending = again(RESIZE_PENDING),
                RESIZE_IN_PROGRESS => self.in_progress = again(RESIZE_IN_PROGRESS),
                _ => {}
            }
        }
    }
}

/// `updatedPodResizeCondition`: the probe time is now; the transition time is that of the last change of its reason.
fn condition(
    type_: &str,
    before: Option<&PodCondition>,
    reason: &str,
    message: &str,
    generation: i64,
    now: &Time,
) -> PodCondition {
    let same_reason = before.filter(|before| before.reason.as_deref().unwrap_or_default() == reason);
    PodCondition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        reason: text(reason),
        message: text(message),
        observed_generation: Some(generation).filter(|generation| *generation != 0),
        last_probe_time: Some(now.clone()),
        last_transition_time: same_reason
            .and_then(|before| before.last_transition_time.clone())
            .or_else(|| Some(now.clone())),
    }
}

pub(crate) fn is_about_resize(condition: &PodCondition) -> bool {
    matches!(condition.type_.as_str(), RESIZE_PENDING | RESIZE_IN_PROGRESS)
}

fn generation_of(condition: &PodCondition) -> i64 {
    condition.observed_generation.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(second: u32) -> Time {
        Time(format!("2026-01-01T00:00:{second:02}Z").parse().unwrap())
    }

    /// The conditions, their transition by its second.
    fn shown(conditions: &ResizeConditions) -> Value {
        let list = conditions.list();
        json!(
            list.iter()
                .map(|c| {
                    let time = c.last_transition_time.as_ref().unwrap().0.to_string();
                    json!([
                        c.type_,
                        c.reason,
                        c.message,
                        c.observed_generation,
                        time[17..19].parse::<u8>().unwrap()
                    ])
                })
                .collect::<Vec<_>>()
        )
    }

    #[test]
    fn a_pending_resize_is_deferred_or_infeasible_and_moves_with_its_reason() {
        let mut c = ResizeConditions::default();
        // reason, message, generation → changed; reason, message, generation, second of its transition
        let steps = [
            (
                "Deferred",
                "no room",
                2,
                true,
                json!(["Deferred", "no room", 2, 0]),
            ),
            (
                "Deferred",
                "still none",
                2,
                false,
                json!(["Deferred", "still none", 2, 0]),
            ),
            ("", "whatever", 2, false, json!(["Deferred", "whatever", 2, 0])),
            (
                "Deferred",
                "whatever",
                3,
                true,
                json!(["Deferred", "whatever", 3, 0]),
            ),
            (
                "Infeasible",
                "never",
                3,
                true,
                json!(["Infeasible", "never", 3, 4]),
            ),
            (
                "Infeasible",
                "never",
                3,
                false,
                json!(["Infeasible", "never", 3, 4]),
            ),
        ];
        for (second, (reason, message, generation, changed, expected)) in steps.into_iter().enumerate() {
            let now = at(second as u32);
            assert_eq!(
                c.set_pending(reason, message, generation, &now),
                changed,
                "step {second}"
            );
            let shown = shown(&c);
            assert_eq!(
                shown[0].as_array().unwrap()[1..],
                expected.as_array().unwrap()[..],
                "step {second}"
            );
            assert_eq!(c.list()[0].last_probe_time, Some(now));
        }
        assert!(c.clear_pending() && !c.clear_pending() && c.is_empty());
    }

    #[test]
    fn a_resize_in_progress_keeps_its_generation_and_its_error() {
        let mut c = ResizeConditions::default();
        let steps = [
            ("", "", 2, (2, true), json!([null, null, 2, 0])),
            ("", "", 3, (2, false), json!([null, null, 2, 0])),
            ("Error", "cgroup", 3, (2, true), json!(["Error", "cgroup", 2, 2])),
            ("", "", 4, (2, false), json!(["Error", "cgroup", 2, 2])),
            ("Error", "other", 4, (2, true), json!(["Error", "other", 2, 2])),
        ];
        for (second, (reason, message, generation, told, expected)) in steps.into_iter().enumerate() {
            let told_now = c.set_in_progress(reason, message, generation, &at(second as u32));
            assert_eq!(told_now, told, "step {second}");
            let shown = shown(&c);
            assert_eq!(
                shown[0].as_array().unwrap()[1..],
                expected.as_array().unwrap()[..],
                "step {second}"
            );
        }
        assert_eq!((c.clear_in_progress(), c.clear_in_progress()), (Some(2), None));
    }

    #[test]
    fn an_earlier_runs_conditions_are_taken_up() {
        let pod: Pod = serde_json::from_value(json!({"status": {"conditions": [
            {"type": "PodResizeInProgress", "status": "True", "reason": "Error", "message": "m", "observedGeneration": 4,
             "lastTransitionTime": "2026-01-01T00:00:03Z"},
            {"type": "Ready", "status": "True"},
            {"type": "PodResizePending", "status": "True", "reason": "Infeasible", "observedGeneration": 5}]}}))
        .unwrap();
        let mut c = ResizeConditions::default();
        c.backfill(&pod, &at(7));
        assert_eq!(
            shown(&c),
            json!([
                ["PodResizePending", "Infeasible", null, 5, 7],
                ["PodResizeInProgress", "Error", "m", 4, 3]
            ])
        );
        assert_eq!((c.pending_reason(), c.is_in_progress()), (Some(INFEASIBLE), true));
    }
}
