//! The start latency of pods (`PodStartupLatencyTracker`).

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kubelet_core::restart_rules::is_restartable_init_container;
use kubelet_core::{PodExt, PodUid};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::conditions::POD_SCHEDULED;
use crate::metrics;
use crate::status_ext::{find_condition, terminated};

/// Tracks pods of the API server from when they are first seen until the server shows that all their containers run.
#[derive(Debug, Default)]
pub(crate) struct PodStartupLatencyTracker {
    /// `None` after it was recorded.
    pods: FxHashMap<PodUid, Option<Box<Startup>>>,
    /// Pods that could not be scheduled at once: their latency is not the node's.
    excluded: FxHashSet<PodUid>,
    first_network_pod_seen: bool,
}

#[derive(Debug, Default)]
struct Startup {
    pulls: Vec<(Timestamp, Timestamp)>,
    /// The running pulls, oldest first.
    pulling_since: Vec<Timestamp>,
    /// The running pod was reported to the server.
    observed_running: bool,
}

impl PodStartupLatencyTracker {
    /// A watch shows this version of the pod (`ObservedPodOnWatch`).
    pub(crate) fn observed_pod_on_watch(&mut self, pod: &Pod, when: &Time) {
        let uid = pod.uid();
        if pod.is_terminal_phase() {
            self.pods.remove(&uid);
            return;
        }
        let Some(startup) = self.pods.get_mut(&uid) else {
            let started = pod
                .status
                .as_ref()
                .is_some_and(|status| status.start_time.is_some());
            if started || self.excluded.contains(&uid) {
                // It was running before this agent started.
            } else if is_unschedulable(pod) {
                self.excluded.insert(uid);
            } else {
                self.pods.insert(uid, Some(Box::default()));
            }
            return;
        };
        if is_unschedulable(pod) {
            self.pods.remove(&uid);
            self.excluded.insert(uid);
        } else if let Some(startup) = startup.take_if(|startup| startup.observed_running && has_started(pod))
        {
            let Some(created) = &pod.metadata.creation_timestamp else {
                return;
            };
            let total = when.0.duration_since(created.0);
            metrics::pod_started(total);
            if !is_stateful(pod) {
                let sli = total - pulling_time(&startup.pulls) - init_time(pod);
                let first = !pod.host_network() && !std::mem::replace(&mut self.first_network_pod_seen, true);
                metrics::pod_started_sli(sli, first);
            }
        }
    }

    /// The pod's status was sent to the API server (`RecordStatusUpdated`).
    pub(crate) fn status_updated(&mut self, pod: &Pod) {
        if let Some(Some(startup)) = self.pods.get_mut(pod.uid_str())
            && !startup.observed_running
        {
            startup.observed_running = has_started(pod);
        }
    }

    /// `RecordImageStartedPulling`
    pub(crate) fn image_started_pulling(&mut self, uid: &PodUid, now: Timestamp) {
        if let Some(Some(startup)) = self.pods.get_mut(uid) {
            startup.pulling_since.push(now);
        }
    }

    /// `RecordImageFinishedPulling`: ends the oldest running pull.
    pub(crate) fn image_finished_pulling(&mut self, uid: &PodUid, now: Timestamp) {
        if let Some(Some(startup)) = self.pods.get_mut(uid)
            && !startup.pulling_since.is_empty()
        {
            let since = startup.pulling_since.remove(0);
            startup.pulls.push((since, now));
        }
    }

    /// `DeletePodStartupState`
    pub(crate) fn forget(&mut self, uid: &PodUid) {
        self.pods.remove(uid);
        self.excluded.remove(uid);
    }

    /// Removes all other pods.
    pub(crate) fn retain(&mut self, known: &HashSet<PodUid>) {
        self.pods.retain(|uid, _| known.contains(uid));
        self.excluded.retain(|uid| known.contains(uid));
    }
}

/// Whether every container is running, and so has started (`hasPodStartedSLO`).
fn has_started(pod: &Pod) -> bool {
    let runs = |status: &ContainerStatus| {
        let running = status.state.as_ref().and_then(|state| state.running.as_ref());
        running.is_some_and(|running| running.started_at.is_some())
    };
    let statuses = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten());
    statuses.into_iter().all(runs)
}

fn is_unschedulable(pod: &Pod) -> bool {
    let scheduled = pod
        .status
        .as_ref()
        .and_then(|status| find_condition(status, POD_SCHEDULED));
    scheduled.is_some_and(|condition| condition.status == "False")
}

/// Whether it has volumes that can be slow, which puts it outside the SLO (`isStatefulPod`).
fn is_stateful(pod: &Pod) -> bool {
    let is_ephemeral = |volume: &Volume| {
        volume.secret.is_some()
            || volume.config_map.is_some()
            || volume.downward_api.is_some()
            || volume.empty_dir.is_some()
            || volume.projected.is_some()
    };
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.into_iter().any(|volume| !is_ephemeral(volume))
}

/// The total time of image pulls, without counting overlaps twice (`calculateImagePullingTime`).
fn pulling_time(pulls: &[(Timestamp, Timestamp)]) -> SignedDuration {
    let mut total = SignedDuration::ZERO;
    let mut until: Option<Timestamp> = None;
    for (start, end) in pulls {
        let from = until.map_or(*start, |until| until.max(*start));
        if *end > from {
            total += end.duration_since(from);
            until = Some(*end);
        }
    }
    total
}

/// The total time of init containers, from the last two runs in the status; without sidecars.
fn init_time(pod: &Pod) -> SignedDuration {
    let (Some(spec), Some(status)) = (&pod.spec, &pod.status) else {
        return SignedDuration::ZERO;
    };
    let sidecar = |name: &str| {
        let of_name = spec
            .init_containers
            .iter()
            .flatten()
            .find(|container| container.name == name);
        of_name.is_some_and(is_restartable_init_container)
    };
    let statuses = status.init_container_statuses.iter().flatten();
    statuses
        .filter(|status| !sidecar(&status.name))
        .flat_map(|status| [&status.last_state, &status.state])
        .filter_map(|state| {
            let end = terminated(state)?;
            Some(
                end.finished_at
                    .as_ref()?
                    .0
                    .duration_since(end.started_at.as_ref()?.0),
            )
        })
        .filter(|ran| ran.is_positive())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn pulls_that_overlap_count_once() {
        let pull = |(start, end)| (time(start), time(end));
        for (pulls, seconds) in [
            (vec![], 0),
            (vec![(0, 5)], 5),
            (vec![(0, 5), (10, 12)], 7),
            (vec![(0, 5), (3, 8)], 8),
            (vec![(0, 10), (2, 4)], 10),
            (vec![(0, 10), (2, 4), (9, 12)], 12),
        ] {
            let pulls: Vec<_> = pulls.into_iter().map(pull).collect();
            assert_eq!(pulling_time(&pulls).as_secs(), seconds, "{pulls:?}");
        }
    }

    #[test]
    fn stateful_unschedulable_and_started() {
        let pod = |value: Value| serde_json::from_value::<Pod>(value).unwrap();
        for (volumes, stateful) in [
            (json!([]), false),
            (
                json!([{"name": "a", "secret": {}}, {"name": "b", "configMap": {}}, {"name": "c", "downwardAPI": {}},
                {"name": "d", "emptyDir": {}}, {"name": "e", "projected": {}}]),
                false,
            ),
            (json!([{"name": "a", "hostPath": {"path": "/x"}}]), true),
            (
                json!([{"name": "a", "emptyDir": {}}, {"name": "b", "persistentVolumeClaim": {"claimName": "x"}}]),
                true,
            ),
        ] {
            let pod = pod(json!({"spec": {"containers": [], "volumes": volumes}}));
            assert_eq!(is_stateful(&pod), stateful, "{volumes}");
        }
        for (status, unschedulable) in [
            (json!({}), false),
            (
                json!({"conditions": [{"type": "PodScheduled", "status": "True"}]}),
                false,
            ),
            (
                json!({"conditions": [{"type": "PodScheduled", "status": "False"}]}),
                true,
            ),
        ] {
            assert_eq!(
                is_unschedulable(&pod(json!({"status": status}))),
                unschedulable,
                "{status}"
            );
        }
        let container = |state: Value| json!({"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": state});
        for (states, started) in [
            (vec![], true),
            (
                vec![json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}})],
                true,
            ),
            (vec![json!({"running": {}})], false),
            (
                vec![
                    json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}}),
                    json!({"waiting": {}}),
                ],
                false,
            ),
        ] {
            let statuses: Vec<Value> = states.iter().cloned().map(container).collect();
            let pod = pod(json!({"status": {"containerStatuses": statuses}}));
            assert_eq!(has_started(&pod), started, "{states:?}");
        }
    }

    #[test]
    fn init_containers_are_taken_off_and_sidecars_are_not() {
        let ran = |from: &str, to: &str| {
            json!({"terminated": {"exitCode": 0, "startedAt": format!("2026-01-01T00:00:{from}Z"),
            "finishedAt": format!("2026-01-01T00:00:{to}Z")}})
        };
        let status = |name: &str, state: Value, last: Value| {
            json!({"name": name, "image": "", "imageID": "",
            "ready": true, "restartCount": 0, "state": state, "lastState": last})
        };
        let pod: Pod = serde_json::from_value(json!({
            "spec": {"containers": [], "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]},
            "status": {"initContainerStatuses": [status("i", ran("10", "14"), ran("01", "03")), status("s", ran("00", "50"), json!({}))]}}))
        .unwrap();
        assert_eq!(init_time(&pod).as_secs(), 6);
    }
}
