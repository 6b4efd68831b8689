//! In which order pods end, and how long each may take.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// `DefaultPriorityWhenNoDefaultClassExists`
const DEFAULT_PRIORITY: i32 = 0;
/// `SystemCriticalPriority`
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// `nodeShutdownReason`
const REASON: &str = "Terminated";
/// `nodeShutdownMessage`
const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";

/// How long pods may take to end, by priority, from low to high.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutdownGracePeriods {
    /// The lowest priority of a group, and its grace period.
    groups: Vec<(i32, Duration)>,
}

/// Pods that end together.
#[derive(Clone, Debug, PartialEq)]
pub struct ShutdownGroup {
    /// The lowest priority of the group, as configured.
    pub priority: i32,
    /// How long the node waits for the group.
    pub grace_period: Duration,
    /// The pods, each with its grace period: its own, if that is not longer.
    pub pods: Vec<(Arc<Pod>, Duration)>,
}

impl ShutdownGracePeriods {
    /// The fields `shutdownGracePeriod` and `shutdownGracePeriodCriticalPods`: critical pods get that part of it, after the
    /// others (`migrateConfig`). Without a period, or if the part is longer than the whole, pods are not ended.
    pub fn new(total: Duration, critical_pods: Duration) -> Self {
        let groups = match total.checked_sub(critical_pods) {
            Some(others) if !total.is_zero() => vec![
                (DEFAULT_PRIORITY, whole_seconds(others)),
                (CRITICAL_PRIORITY, whole_seconds(critical_pods)),
            ],
            _ => Vec::new(),
        };
        Self { groups }
    }

    /// The field `shutdownGracePeriodByPodPriority`: pairs of priority and grace period. It replaces the other two fields if it
    /// is not empty.
    #[must_use]
    pub fn by_pod_priority(self, groups: impl IntoIterator<Item = (i32, Duration)>) -> Self {
        let mut groups: Vec<(i32, Duration)> = groups.into_iter().collect();
        groups.sort_by_key(|(priority, _)| *priority);
        match groups.is_empty() {
            true => self,
            false => Self { groups },
        }
    }

    /// Whether pods are not ended at all.
    pub fn is_off(&self) -> bool {
        self.groups.is_empty()
    }

    /// How long all groups together may take (`periodRequested`).
    pub fn total(&self) -> Duration {
        self.groups.iter().map(|(_, period)| *period).sum()
    }

    /// The groups that have pods, in the order in which they end (`groupByPriority`, `killPods`). A pod belongs to the group
    /// with the highest priority that is not above its own, or to the lowest group.
    ///
    /// ```
    /// use std::time::Duration;
    /// use kubelet_node::shutdown::ShutdownGracePeriods;
    ///
    /// let periods = ShutdownGracePeriods::new(Duration::from_secs(30), Duration::from_secs(10));
    /// let pod = std::sync::Arc::new(k8s_openapi::api::core::v1::Pod::default());
    /// let groups = periods.groups(&[pod]);
    /// assert_eq!((groups.len(), groups[0].grace_period), (1, Duration::from_secs(20)));
    /// ```
    pub fn groups(&self, pods: &[Arc<Pod>]) -> Vec<ShutdownGroup> {
        let mut groups: Vec<ShutdownGroup> = self
            .groups
            .iter()
            .map(|(priority, grace_period)| ShutdownGroup {
                priority: *priority,
                grace_period: *grace_period,
                pods: Vec::new(),
            })
            .collect();
        for pod in pods {
            let spec = pod.spec.as_ref();
            let priority = spec.and_then(|spec| spec.priority).unwrap_or(0);
            let not_above = groups.iter().rposition(|group| group.priority <= priority);
            if let Some(group) = groups.get_mut(not_above.unwrap_or(0)) {
                let own = spec.and_then(|spec| spec.termination_grace_period_seconds);
                let own = own.map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
                let grace_period = own.map_or(group.grace_period, |own| own.min(group.grace_period));
                group.pods.push((pod.clone(), grace_period));
            }
        }
        groups.retain(|group| !group.pods.is_empty());
        groups
    }
}

fn whole_seconds(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_secs())
}

/// Changes the status to that of a pod that the shutdown has ended. One that has succeeded stays so.
pub fn terminated(pod: &Pod, status: &mut PodStatus, now: &Time) {
    if status.phase.as_deref() != Some("Succeeded") {
        status.phase = Some("Failed".to_owned());
    }
    status.reason = Some(REASON.to_owned());
    status.message = Some(MESSAGE.to_owned());
    let conditions = status.conditions.get_or_insert_default();
    let mut condition = PodCondition {
        // `DisruptionTarget`
        type_: "DisruptionTarget".to_owned(),
        observed_generation: pod.metadata.generation,
        status: "True".to_owned(),
        // `PodReasonTerminationByKubelet`
        reason: Some("TerminationByKubelet".to_owned()),
        message: Some(MESSAGE.to_owned()),
        last_transition_time: Some(now.clone()),
        ..PodCondition::default()
    };
    match conditions.iter_mut().find(|known| known.type_ == condition.type_) {
        None => conditions.push(condition),
        Some(known) => {
            if known.status == condition.status {
                condition.last_transition_time = known.last_transition_time.take();
            }
            *known = condition;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::json;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn pod(name: &str, priority: Option<i32>, grace: Option<i64>) -> Arc<Pod> {
        let spec = json!({"containers": [], "priority": priority, "terminationGracePeriodSeconds": grace});
        let pod = json!({"metadata": {"name": name, "uid": name, "generation": 3}, "spec": spec});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    /// `priority/seconds: pod/seconds …`
    fn shown(groups: &[ShutdownGroup]) -> Vec<String> {
        let shown = groups.iter().map(|group| {
            let pods = group.pods.iter().map(|(pod, grace)| {
                format!(" {}/{}", pod.metadata.name.as_deref().unwrap(), grace.as_secs())
            });
            let pods: String = pods.collect();
            format!("{}/{}:{pods}", group.priority, group.grace_period.as_secs())
        });
        shown.collect()
    }

    #[test]
    fn critical_pods_get_the_end_of_the_period() {
        for (total, critical, expected) in [
            (
                300,
                120,
                vec![(0, seconds(180)), (CRITICAL_PRIORITY, seconds(120))],
            ),
            (100, 0, vec![(0, seconds(100)), (CRITICAL_PRIORITY, seconds(0))]),
            (0, 0, vec![]),
            (1, 100, vec![]),
        ] {
            let periods = ShutdownGracePeriods::new(seconds(total), seconds(critical));
            assert_eq!(periods.groups, expected);
            assert_eq!(periods.is_off(), expected.is_empty());
            let sum = if expected.is_empty() { 0 } else { total };
            assert_eq!(periods.total(), seconds(sum));
        }
        let half = ShutdownGracePeriods::new(Duration::from_millis(2500), Duration::from_millis(500));
        assert_eq!(half.total(), seconds(2));
    }

    #[test]
    fn pods_end_by_priority() {
        let periods = ShutdownGracePeriods::new(seconds(300), seconds(120));
        let pods = [
            pod("normal", Some(0), None),
            pod("highest-of-users", Some(1_000_000_000), None),
            pod("critical", Some(CRITICAL_PRIORITY), Some(5)),
            pod("negative", Some(-7), Some(500)),
            pod("unset", None, Some(180)),
        ];
        assert_eq!(
            shown(&periods.groups(&pods)),
            [
                "0/180: normal/180 highest-of-users/180 negative/180 unset/180",
                "2000000000/120: critical/5",
            ]
        );
        // A group without pods is left out.
        assert_eq!(
            shown(&periods.groups(&pods[2..3])),
            ["2000000000/120: critical/5"]
        );
        assert!(ShutdownGracePeriods::default().groups(&pods).is_empty());
    }

    #[test]
    fn groups_may_be_configured() {
        let groups = [
            (4, seconds(40)),
            (1, seconds(10)),
            (3, seconds(30)),
            (2, seconds(20)),
        ];
        let usual = ShutdownGracePeriods::new(seconds(300), seconds(120));
        let periods = usual.clone().by_pod_priority(groups);
        let pods: Vec<Arc<Pod>> = (0..6)
            .map(|priority| pod(&format!("pod-{priority}"), Some(priority), None))
            .collect();
        assert_eq!(
            shown(&periods.groups(&pods)),
            [
                "1/10: pod-0/10 pod-1/10",
                "2/20: pod-2/20",
                "3/30: pod-3/30",
                "4/40: pod-4/40 pod-5/40"
            ]
        );
        assert_eq!(periods.total(), seconds(100));
        assert_eq!(usual.clone().by_pod_priority([]), usual);
    }

    #[test]
    fn the_status_names_the_shutdown() {
        let time = |second| Time(Timestamp::from_second(second).unwrap());
        for (before, phase) in [
            ("Running", "Failed"),
            ("Succeeded", "Succeeded"),
            ("Failed", "Failed"),
        ] {
            let mut status = PodStatus {
                phase: Some(before.to_owned()),
                ..PodStatus::default()
            };
            terminated(&pod("p", None, None), &mut status, &time(7));
            terminated(&pod("p", None, None), &mut status, &time(9));
            assert_eq!(
                serde_json::to_value(status).unwrap(),
                json!({
                    "phase": phase, "reason": "Terminated",
                    "message": "Pod was terminated in response to imminent node shutdown.",
                    "conditions": [{
                        "type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "observedGeneration": 3,
                        "message": "Pod was terminated in response to imminent node shutdown.",
                        "lastTransitionTime": time(7),
                    }],
                })
            );
        }
    }
}
