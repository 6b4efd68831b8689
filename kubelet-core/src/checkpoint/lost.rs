//! Containers that ran, that the runtime has lost, and that must not run again.

use k8s_openapi::api::core::v1::{
    Container, ContainerStateTerminated, ContainerStatus as ApiContainerStatus, Pod,
    PodStatus as ApiPodStatus,
};

use super::record::Record;
use crate::pod::restarts_all_containers;
use crate::restart_rules::container_should_restart;
use crate::runtime::{ContainerState, ContainerStatus, PodStatus};

/// What the kubelet reports when the exit of a container was not observed.
const UNSEEN_EXIT_CODE: i32 = 137;
const UNSEEN_REASON: &str = "ContainerStatusUnknown";
const UNSEEN_MESSAGE: &str = "The container could not be located when the pod was terminated";

/// A container that has ended and that the runtime no longer knows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lost {
    /// Its status in the form in which the runtime would return it.
    pub(super) status: ContainerStatus,
    /// Its exit was reported; the details come from that report.
    pub(super) is_reported: bool,
}

/// Whether this container must not be restarted when its exit was not observed.
pub(super) fn runs_once(pod: &Pod, name: &str) -> bool {
    let regular = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut of_name = regular.filter(|container| container.name == name);
    match of_name.next() {
        Some(container) => !restarts(pod, container, UNSEEN_EXIT_CODE),
        // Ephemeral containers are never restarted; init containers are when their pod starts over.
        None => {
            let ephemeral = pod
                .spec
                .iter()
                .flat_map(|spec| spec.ephemeral_containers.iter().flatten());
            ephemeral
                .map(|container| &container.name)
                .any(|of_pod| of_pod == name)
        }
    }
}

/// The containers that were recorded or reported as started and that the runtime does not list. Containers that the
/// restart policy restarts after such an exit are left out: the sync starts them again.
pub(super) fn lost_containers(pod: &Pod, record: &Record, runtime: &PodStatus) -> Vec<Lost> {
    let recorded = record.status.as_deref();
    let reported: Vec<&ApiPodStatus> = recorded.into_iter().chain(&pod.status).collect();
    if reported.iter().any(|status| restarts_all_containers(status)) {
        // They were removed on purpose, so that all containers restart.
        return Vec::new();
    }
    let spec = pod.spec.iter();
    let regular = spec
        .clone()
        .flat_map(|spec| &spec.containers)
        .map(|c| (c.name.as_str(), c.image.as_deref(), Some(c)));
    let ephemeral = spec.flat_map(|spec| spec.ephemeral_containers.iter().flatten());
    let ephemeral = ephemeral.map(|c| (c.name.as_str(), c.image.as_deref(), None));
    let mut lost = Vec::new();
    for (name, image, container) in regular.chain(ephemeral) {
        if runtime.container(name).is_some() {
            continue;
        }
        let Some(found) = Known::of(name, record, &reported) else {
            continue;
        };
        let again = container.is_some_and(|container| restarts(pod, container, found.exit_code()));
        if !again {
            lost.push(found.as_lost(name, image.unwrap_or_default()));
        }
    }
    lost
}

fn restarts(pod: &Pod, container: &Container, exit_code: i32) -> bool {
    let spec = pod.spec.as_ref();
    spec.is_none_or(|spec| container_should_restart(container, spec, exit_code))
}

/// What the records say about a container that has started.
struct Known<'a> {
    id: crate::ContainerId,
    attempt: u32,
    reported: Option<&'a ApiContainerStatus>,
    end: Option<&'a ContainerStateTerminated>,
}

impl<'a> Known<'a> {
    fn of(name: &str, record: &Record, reported: &[&'a ApiPodStatus]) -> Option<Self> {
        let statuses = reported.iter().flat_map(|status| {
            let regular = status.container_statuses.iter().flatten();
            regular.chain(status.ephemeral_container_statuses.iter().flatten())
        });
        let mut began: Vec<&ApiContainerStatus> = statuses
            .filter(|status| status.name == name && has_begun(status))
            .collect();
        // A status with an exit has more information than one without.
        began.sort_by_key(|status| end_of(status).is_none());
        let reported = began.first().copied();
        let reported_id = reported.and_then(|status| status.container_id.as_deref()?.parse().ok());
        let start = record.starts.iter().find(|start| start.name == name);
        match (start, reported_id) {
            // It was started again after that report, so the report is about an earlier instance.
            (Some(start), id) if id.as_ref() != Some(&start.id) => Some(Self {
                id: start.id.clone(),
                attempt: start.attempt,
                reported,
                end: None,
            }),
            (_, Some(id)) => Some(Self {
                id,
                attempt: reported.map_or(0, |status| u32::try_from(status.restart_count).unwrap_or(0)),
                reported,
                end: reported.and_then(end_of),
            }),
            (_, None) => None,
        }
    }

    fn exit_code(&self) -> i32 {
        self.end.map_or(UNSEEN_EXIT_CODE, |end| end.exit_code)
    }

    fn as_lost(&self, name: &str, image: &str) -> Lost {
        let mut status = ContainerStatus::new(self.id.clone(), name, ContainerState::Exited);
        status.exit_code = self.exit_code();
        status.restart_count = self.attempt;
        image.clone_into(&mut status.image);
        if let Some(reported) = self.reported {
            reported.image.clone_into(&mut status.image);
            reported.image_id.clone_into(&mut status.image_ref);
            let running = reported.state.as_ref().and_then(|state| state.running.as_ref());
            status.started_at = running.and_then(|running| Some(running.started_at.as_ref()?.0));
        }
        match self.end {
            Some(end) => {
                status.reason = end.reason.clone().unwrap_or_default();
                status.message = end.message.clone().unwrap_or_default();
                status.started_at = end.started_at.as_ref().map(|at| at.0);
                status.finished_at = end.finished_at.as_ref().map(|at| at.0);
            }
            None => {
                UNSEEN_REASON.clone_into(&mut status.reason);
                UNSEEN_MESSAGE.clone_into(&mut status.message);
            }
        }
        Lost {
            status,
            is_reported: self.end.is_some(),
        }
    }
}

fn end_of(status: &ApiContainerStatus) -> Option<&ContainerStateTerminated> {
    status.state.as_ref()?.terminated.as_ref()
}

fn has_begun(status: &ApiContainerStatus) -> bool {
    let state = status.state.as_ref();
    state.is_some_and(|state| state.running.is_some() || state.terminated.is_some())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};
    use tokio::time::Instant;

    use super::*;
    use crate::runtime::ContainerStart;
    use crate::{ContainerId, PodExt};

    fn pod(policy: &str, status: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"uid": "a", "name": "a", "namespace": "ns"},
            "spec": {
                "restartPolicy": policy,
                "initContainers": [{"name": "init", "image": "i"}],
                "containers": [
                    {"name": "one", "image": "i"},
                    {"name": "two", "image": "i", "restartPolicy": "Always"},
                ],
                "ephemeralContainers": [{"name": "look", "image": "i"}],
            },
            "status": status,
        }))
        .unwrap()
    }

    fn reported(name: &str, state: Value) -> Value {
        json!({"containerStatuses": [{
            "name": name, "containerID": "fake://1", "image": "i", "imageID": "sha", "ready": false,
            "restartCount": 3, "state": state,
        }]})
    }

    fn starts(names: &[&str]) -> Record {
        let start = |name: &&str| ContainerStart {
            name: (*name).to_owned(),
            id: ContainerId::new("fake", "2"),
            attempt: 1,
        };
        Record {
            starts: names.iter().map(start).collect(),
            ..Record::default()
        }
    }

    type Case = (
        &'static str,
        Value,
        &'static [&'static str],
        &'static [&'static str],
        &'static [(&'static str, &'static str, i32, bool)],
    );

    #[test]
    fn who_must_not_run_again_and_how_it_ended() {
        let running = json!({"running": {}});
        let ended = |code: i32| json!({"terminated": {"exitCode": code, "reason": "Error"}});
        let restarting = json!({
            "conditions": [{"type": "AllContainersRestarting", "status": "True"}],
        });
        let none = json!(null);
        // policy, status, started by the record, listed by the runtime: lost, as name, id, exit code, reported
        let table: Vec<Case> = vec![
            ("Never", none.clone(), &[], &[], &[]),
            ("Never", none.clone(), &["one"], &[], &[("one", "2", 137, false)]),
            ("Never", none.clone(), &["one"], &["one"], &[]),
            (
                "Never",
                none.clone(),
                &["one", "two", "look", "init"],
                &[],
                &[("one", "2", 137, false), ("look", "2", 137, false)],
            ),
            (
                "Never",
                reported("one", running.clone()),
                &[],
                &[],
                &[("one", "1", 137, false)],
            ),
            (
                "Never",
                reported("one", ended(4)),
                &[],
                &[],
                &[("one", "1", 4, true)],
            ),
            // The start came after the reported exit.
            (
                "Never",
                reported("one", ended(4)),
                &["one"],
                &[],
                &[("one", "2", 137, false)],
            ),
            (
                "Never",
                reported("one", json!({"waiting": {"reason": "ContainerCreating"}})),
                &[],
                &[],
                &[],
            ),
            ("OnFailure", none.clone(), &["one"], &[], &[]),
            ("OnFailure", reported("one", ended(1)), &[], &[], &[]),
            (
                "OnFailure",
                reported("one", ended(0)),
                &[],
                &[],
                &[("one", "1", 0, true)],
            ),
            ("Always", reported("one", ended(0)), &[], &[], &[]),
            ("Never", restarting, &["one"], &[], &[]),
        ];
        for (policy, status, started, listed, expected) in table {
            let pod = pod(policy, status.clone());
            let mut runtime = PodStatus::empty(pod.uid(), pod.key(), Instant::now());
            for name in listed {
                runtime.containers.push(ContainerStatus::new(
                    ContainerId::new("fake", "2"),
                    *name,
                    ContainerState::Exited,
                ));
            }
            let lost = lost_containers(&pod, &starts(started), &runtime);
            let lost: Vec<_> = lost
                .iter()
                .map(|lost| {
                    let status = &lost.status;
                    (&*status.name, status.id.id(), status.exit_code, lost.is_reported)
                })
                .collect();
            assert_eq!(lost, expected, "{policy} {status} {started:?} {listed:?}");
        }
    }

    #[test]
    fn the_record_knows_ends_that_the_source_was_not_told_of() {
        let ended: ApiPodStatus = serde_json::from_value(reported(
            "one",
            json!({"terminated": {"exitCode": 0, "reason": "Completed"}}),
        ))
        .unwrap();
        let record = Record {
            status: Some(Arc::new(ended)),
            ..Record::default()
        };
        let pod = pod("Never", reported("one", json!({"running": {}})));
        let lost = lost_containers(
            &pod,
            &record,
            &PodStatus::empty(pod.uid(), pod.key(), Instant::now()),
        );
        let status = &lost[0].status;
        assert_eq!((status.exit_code, &*status.reason), (0, "Completed"));
        assert_eq!((&*status.image_ref, status.restart_count), ("sha", 3));
    }

    #[test]
    fn who_runs_once() {
        let runs_once = |policy: &str, name: &str| runs_once(&pod(policy, json!(null)), name);
        assert!(runs_once("Never", "one") && runs_once("Always", "look"));
        for (policy, name) in [
            ("Never", "two"),
            ("Never", "init"),
            ("OnFailure", "one"),
            ("Always", "one"),
        ] {
            assert!(!runs_once(policy, name), "{policy} {name}");
        }
    }
}
