//! Sets started and ready from the results of probes (the prober's `UpdatePodStatus`).

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kubelet_core::restart_rules::is_restartable_init_container;
use kubelet_core::{ContainerId, ProbeResult, ProbeResults};

use crate::status_ext::{container_at, is_running, terminated};

/// A container that started this much before the agent was running before: without a result of a probe it is not
/// reported as unready (`kubeletRestartGracePeriod`).
const RESTART_GRACE_PERIOD: SignedDuration = SignedDuration::from_secs(10);

/// Sets `started` and `ready` of the pod's regular and init containers.
pub(crate) struct Readiness<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) probes: &'a dyn ProbeResults,
    /// When the agent started.
    pub(crate) started_at: Timestamp,
}

impl Readiness<'_> {
    pub(crate) fn apply_to_regular(&self, statuses: &mut [ContainerStatus]) {
        let containers = self.pod.spec.as_ref().map_or(&[][..], |spec| &spec.containers);
        for status in statuses {
            let container = containers.iter().find(|container| container.name == status.name);
            self.apply(container, status);
        }
    }

    pub(crate) fn apply_to_init(&self, statuses: &mut [ContainerStatus]) {
        let containers = self
            .pod
            .spec
            .as_ref()
            .and_then(|spec| spec.init_containers.as_deref())
            .unwrap_or_default();
        for index in 0..statuses.len() {
            let container = container_at(containers, statuses, index);
            let status = &mut statuses[index];
            match container {
                Some(sidecar) if is_restartable_init_container(sidecar) => self.apply(container, status),
                _ => {
                    status.started = Some(self.is_started(None, status));
                    let succeeded = terminated(&status.state).is_some_and(|end| end.exit_code == 0);
                    if container.is_some() && succeeded {
                        status.ready = true;
                    }
                }
            }
        }
    }

    fn apply(&self, container: Option<&Container>, status: &mut ContainerStatus) {
        let started = self.is_started(container, status);
        status.started = Some(started);
        // A container that has not started keeps its readiness.
        if started {
            status.ready = self.is_ready(container, status);
        }
    }

    /// `isContainerStarted`. `probed`: the container, if its kind can have probes.
    fn is_started(&self, probed: Option<&Container>, status: &ContainerStatus) -> bool {
        if !is_running(&status.state) {
            return false;
        }
        match container_id(status).and_then(|id| self.probes.startup(&id)) {
            Some(result) => result == ProbeResult::Success,
            None => status.started == Some(true) || probed.is_none_or(|c| c.startup_probe.is_none()),
        }
    }

    fn is_ready(&self, container: Option<&Container>, status: &ContainerStatus) -> bool {
        let measured = container_id(status).and_then(|id| self.probes.readiness(&id));
        if measured == Some(ProbeResult::Success) {
            return true;
        }
        let has_probe = container.is_some_and(|container| container.readiness_probe.is_some());
        let ran_before_agent = status
            .state
            .as_ref()
            .and_then(|state| state.running.as_ref()?.started_at.as_ref())
            .is_some_and(|started_at| started_at.0 < self.started_at - RESTART_GRACE_PERIOD);
        if container.is_none() || !ran_before_agent {
            return !has_probe;
        }
        !has_probe || (measured.is_none() && self.pod_was_ready())
    }

    /// Whether the API server showed the pod as ready before the agent started.
    fn pod_was_ready(&self) -> bool {
        self.pod
            .status
            .iter()
            .flat_map(|status| status.conditions.iter().flatten())
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
    }
}

fn container_id(status: &ContainerStatus) -> Option<ContainerId> {
    status.container_id.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubelet_core::NoProbes;
    use serde_json::json;

    struct Fixed {
        startup: Option<ProbeResult>,
        readiness: Option<ProbeResult>,
    }
    impl ProbeResults for Fixed {
        fn liveness(&self, _: &ContainerId) -> Option<ProbeResult> {
            None
        }
        fn readiness(&self, _: &ContainerId) -> Option<ProbeResult> {
            self.readiness
        }
        fn startup(&self, _: &ContainerId) -> Option<ProbeResult> {
            self.startup
        }
    }

    #[test]
    fn started_and_ready() {
        use ProbeResult::{Failure, Success};
        // probes in the spec; results; ready before; agent restarted → started, ready
        let table = [
            ("", None, None, false, false, (true, true)),
            ("r", None, None, false, false, (true, false)),
            ("r", None, Some(Success), false, false, (true, true)),
            ("r", None, Some(Failure), true, true, (true, false)),
            ("s", None, None, false, false, (false, false)),
            ("s", Some(Failure), None, false, false, (false, false)),
            ("s", Some(Success), None, false, false, (true, true)),
            ("rs", Some(Success), None, false, false, (true, false)),
            // Nobody measured it since the agent started again: it stays what it was.
            ("r", None, None, true, true, (true, true)),
            ("r", None, None, false, true, (true, false)),
            ("", None, None, false, true, (true, true)),
        ];
        for (spec, startup, readiness, was_ready, restarted, expected) in table {
            let mut container = json!({"name": "a"});
            if spec.contains('r') {
                container["readinessProbe"] = json!({"exec": {}});
            }
            if spec.contains('s') {
                container["startupProbe"] = json!({"exec": {}});
            }
            let pod: Pod = serde_json::from_value(
                json!({"spec": {"containers": [container]}, "status": {"conditions":
                [{"type": "Ready", "status": if was_ready { "True" } else { "False" }}]}}),
            )
            .unwrap();
            let mut statuses: Vec<ContainerStatus> = serde_json::from_value(json!([{"name": "a", "image": "", "imageID": "",
                "ready": false, "restartCount": 0, "containerID": "fake://x", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]))
            .unwrap();
            let started_at = match restarted {
                true => "2026-01-01T00:01:00Z",
                false => "2025-12-31T23:00:00Z",
            };
            Readiness {
                pod: &pod,
                probes: &Fixed { startup, readiness },
                started_at: started_at.parse().unwrap(),
            }
            .apply_to_regular(&mut statuses);
            let status = &statuses[0];
            assert_eq!(
                (status.started, status.ready),
                (Some(expected.0), expected.1),
                "{spec} {startup:?} {readiness:?} {was_ready} {restarted}"
            );
        }
    }

    #[test]
    fn an_init_container_is_ready_once_it_ended_well() {
        let pod: Pod = serde_json::from_value(
            json!({"spec": {"containers": [], "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]}}),
        )
        .unwrap();
        let mut statuses: Vec<ContainerStatus> = serde_json::from_value(json!([
            {"name": "i", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": 0}}},
            {"name": "s", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": {"running": {}}},
        ]))
        .unwrap();
        Readiness {
            pod: &pod,
            probes: &NoProbes,
            started_at: Timestamp::UNIX_EPOCH,
        }
        .apply_to_init(&mut statuses);
        assert_eq!((statuses[0].started, statuses[0].ready), (Some(false), true));
        assert_eq!((statuses[1].started, statuses[1].ready), (Some(true), true));
    }
}
