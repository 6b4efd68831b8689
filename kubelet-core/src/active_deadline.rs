//! `spec.activeDeadlineSeconds`: how long a pod may be active on the node.

use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::{Clock, Event, EventRecorder, EventType, Eviction};

/// The reason of the status and of the event (`activeDeadlineHandler`).
const REASON: &str = "DeadlineExceeded";
const MESSAGE: &str = "Pod was active on the node longer than the specified deadline";

/// When the pod reaches its active deadline. `None` if it has no deadline, has not started, or has succeeded: a pod
/// that succeeded stays so, however long its clean-up takes. `reported` is the status reported last, if there is one;
/// its start time takes precedence.
pub(crate) fn active_deadline(pod: &Pod, reported: Option<&ApiPodStatus>) -> Option<Timestamp> {
    let seconds = pod.spec.as_ref()?.active_deadline_seconds?;
    let status = reported.or(pod.status.as_ref())?;
    if status.phase.as_deref() == Some("Succeeded") {
        return None;
    }
    let started = status.start_time.as_ref()?.0;
    started.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// Why the pod must end, if its deadline has passed. Emits an event at each call, as the kubelet does.
pub(crate) fn past_active_deadline(
    pod: &Pod,
    reported: Option<&ApiPodStatus>,
    clock: &Clock,
    recorder: &dyn EventRecorder,
) -> Option<Eviction> {
    active_deadline(pod, reported).filter(|deadline| clock.now() >= *deadline)?;
    recorder.record(Event::about(pod, EventType::Normal, REASON, MESSAGE));
    Some(Eviction {
        reason: REASON.to_owned(),
        message: MESSAGE.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LogEvents;
    use k8s_openapi::api::core::v1::PodSpec;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn status(started: Option<i64>) -> ApiPodStatus {
        ApiPodStatus {
            start_time: started.map(|second| Time(Timestamp::from_second(second).unwrap())),
            ..ApiPodStatus::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_over_once_it_was_active_for_as_long_as_it_may() {
        // (deadline, begun by its source, reported: begun) -> over at second 100
        type Case = (Option<i64>, Option<i64>, Option<Option<i64>>, bool);
        let cases: [Case; 9] = [
            (None, Some(0), Some(Some(0)), false),
            (Some(30), Some(0), None, true),
            (Some(30), None, None, false),
            (Some(30), Some(0), Some(Some(71)), false),
            (Some(30), Some(0), Some(Some(70)), true),
            (Some(30), None, Some(Some(10)), true),
            (Some(30), Some(0), Some(None), false),
            (Some(101), Some(0), None, false),
            (Some(i64::MAX), Some(0), None, false),
        ];
        let clock = Clock::starting_at(Timestamp::from_second(100).unwrap());
        for case @ (seconds, began, reported, over) in cases {
            let mut pod = Pod {
                status: Some(status(began)),
                ..Pod::default()
            };
            pod.spec = Some(PodSpec {
                active_deadline_seconds: seconds,
                ..PodSpec::default()
            });
            let reported = reported.map(status);
            let ended = past_active_deadline(&pod, reported.as_ref(), &clock, &LogEvents);
            assert_eq!(ended.is_some(), over, "{case:?}");
            // Who has succeeded is not failed by time.
            let succeeded = ApiPodStatus {
                phase: Some("Succeeded".to_owned()),
                ..reported.unwrap_or_default()
            };
            assert_eq!(
                past_active_deadline(&pod, Some(&succeeded), &clock, &LogEvents),
                None,
                "{case:?}"
            );
        }
    }
}
