//! Changes of a pod's status.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus as ApiPodStatus};
use kubelet_core::{ContainerId, PodExt, PodUid};

use super::{Known, Now, Record, Records, Turn, is_mirror_of};
use crate::conditions;
use crate::container_statuses::waiting_to_start;
use crate::equality::same_by_kubelet;
use crate::error::Error;
use crate::normalize::{normalize, set_transition_times};
use crate::status_ext::{chain, is_terminal, phase, terminated};
use crate::terminate::terminate;
use crate::{metrics, transitions};

impl Records {
    /// `SetPodStatus`. Returns whether there is something new to send.
    pub(crate) fn set_pod_status(
        &mut self,
        pod: &Arc<Pod>,
        mut status: ApiPodStatus,
        now: &Now,
    ) -> Result<bool, Error> {
        status.observed_generation = conditions::observed_generation(pod);
        // The status of a pod that is being deleted is sent even without a change: its deletion may depend on it.
        let force = pod.is_deleting();
        // Usually the status is unchanged, and needs neither validation nor normalization.
        if !force
            && let Some(record) = self.by_uid.get_mut(pod.uid_str())
            && !record.orphaned
            && record.says_the_same_as(&status)
        {
            record.pod = pod.clone();
            return Ok(false);
        }
        self.update(pod, status, force, false, now)
    }

    /// A sync of the pod starts. A static pod that has ended may come back under its UID: its containers will run
    /// again. Returns whether it has come back.
    pub(crate) fn begin_pod(&mut self, uid: &PodUid, now: &Now) -> bool {
        if !self.may_run.contains(uid) {
            self.may_run.insert(uid.clone());
        }
        let is_over =
            |record: &&mut Box<Record>| record.pod.is_static() && (record.finished || record.orphaned);
        let Some(record) = self.by_uid.get_mut(uid).filter(is_over) else {
            return false;
        };
        let mut status = ApiPodStatus::clone(&record.status);
        let containers = status.container_statuses.iter_mut().flatten();
        for container in containers.chain(status.init_container_statuses.iter_mut().flatten()) {
            if terminated(&container.state).is_some() {
                container.last_state = container.state.replace(waiting_to_start(&record.pod));
            }
        }
        if is_terminal(phase(&status)) {
            // The reason, times and conditions of that end no longer apply.
            status.phase = Some("Pending".to_owned());
            (status.reason, status.message) = (None, None);
            (status.start_time, status.conditions) = (None, None);
        }
        record.status = Arc::new(status);
        record.has_changed(now);
        (record.finished, record.orphaned) = (false, false);
        self.queue(uid);
        true
    }

    /// No container of the pod runs any more. Returns whether a terminal phase has waited for this.
    pub(crate) fn containers_ended(&mut self, uid: &PodUid, now: &Now) -> bool {
        let might_run = self.may_run.remove(uid);
        let ended = |record: &&mut Box<Record>| might_run && is_terminal(phase(&record.status));
        let Some(record) = self.by_uid.get_mut(uid).filter(ended) else {
            return false;
        };
        record.has_changed(now);
        self.queue(uid);
        true
    }

    /// `OnPodSandboxReady`
    pub(crate) fn on_pod_sandbox_ready(&mut self, pod: &Arc<Pod>, now: &Now) -> Result<bool, Error> {
        let mut status = match self.status(&pod.uid()) {
            Some(status) => ApiPodStatus::clone(status),
            None => pod.status.clone().unwrap_or_default(),
        };
        let ready = conditions::sandbox_is_ready(pod);
        conditions::replace_or_append(status.conditions.get_or_insert_default(), ready);
        self.set_pod_status(pod, status, now)
    }

    /// `TerminatePod`
    pub(crate) fn terminate_pod(&mut self, pod: &Arc<Pod>, now: &Now) -> Result<bool, Error> {
        let reported = self.status(&pod.uid());
        let was_reported = reported.is_some();
        let mut status = match reported {
            Some(status) => ApiPodStatus::clone(status),
            None => pod.status.clone().unwrap_or_default(),
        };
        terminate(pod, &mut status, was_reported);
        self.may_run.remove(&pod.uid());
        self.update(pod, status, true, true, now)
    }

    /// `SetContainerReadiness`
    pub(crate) fn set_container_readiness(
        &mut self,
        uid: &PodUid,
        container: &ContainerId,
        ready: bool,
        now: &Now,
    ) -> Result<bool, Error> {
        let Some((pod, mut status)) = self.of_container(uid, container, |status| status.ready != ready)
        else {
            return Ok(false);
        };
        if let Some(status) = find_container(&mut status, container) {
            status.ready = ready;
        }
        let mut conditions = status.conditions.take().unwrap_or_default();
        let all = chain(&status.init_container_statuses, &status.container_statuses);
        let is_ready = conditions::ready(&pod, &conditions, &all, phase(&status));
        conditions::replace_or_append(&mut conditions, is_ready);
        let containers_ready = conditions::containers_ready(&pod, &all, phase(&status));
        conditions::replace_or_append(&mut conditions, containers_ready);
        status.conditions = Some(conditions);
        self.update(&pod, status, false, false, now)
    }

    /// `SetContainerStartup`
    pub(crate) fn set_container_startup(
        &mut self,
        uid: &PodUid,
        container: &ContainerId,
        started: bool,
        now: &Now,
    ) -> Result<bool, Error> {
        let differs = |status: &ContainerStatus| status.started != Some(started);
        let Some((pod, mut status)) = self.of_container(uid, container, differs) else {
            return Ok(false);
        };
        if let Some(status) = find_container(&mut status, container) {
            status.started = Some(started);
        }
        self.update(&pod, status, false, false, now)
    }

    /// The pod and its status, if this container is known and `differs`.
    fn of_container(
        &self,
        uid: &PodUid,
        container: &ContainerId,
        differs: impl FnOnce(&ContainerStatus) -> bool,
    ) -> Option<(Arc<Pod>, ApiPodStatus)> {
        let record = self.known(uid);
        let id = container.to_string();
        let whole = record.map(|record| &record.status);
        let of_container = whole.as_ref().and_then(|whole| {
            let all = whole
                .container_statuses
                .iter()
                .chain(&whole.init_container_statuses);
            all.flatten()
                .find(|status| status.container_id.as_deref() == Some(id.as_str()))
        });
        let (Some(record), Some(of_container)) = (record, of_container) else {
            tracing::info!(%uid, container = id, "Ignored the result of a probe for a container that was not reported yet");
            return None;
        };
        let differs = differs(of_container);
        let whole = whole.filter(|_| differs)?;
        Some((record.pod.clone(), ApiPodStatus::clone(whole)))
    }

    /// `updateStatusInternal`
    fn update(
        &mut self,
        pod: &Arc<Pod>,
        mut status: ApiPodStatus,
        force: bool,
        mut finished: bool,
        now: &Now,
    ) -> Result<bool, Error> {
        let record = self.by_uid.get_mut(pod.uid_str());
        // It counts only if nothing was reported yet.
        let asks_mirror = record.is_none() && pod.is_static();
        let mirror = asks_mirror.then(|| self.mirrors.get(&pod.key())).flatten();
        let mirror = mirror.filter(|mirror| {
            is_mirror_of(mirror, pod) && transitions::are_possible(pod, mirror.status.as_ref(), &status)
        });
        let (known, no_status) = (
            record.as_ref().map(|record| record.status.clone()),
            ApiPodStatus::default(),
        );
        let old: &ApiPodStatus = match &known {
            Some(known) => known,
            None => {
                let shown = mirror.unwrap_or(pod);
                shown.status.as_ref().unwrap_or(&no_status)
            }
        };
        status.start_time = old
            .start_time
            .clone()
            .or(status.start_time)
            .or_else(|| Some(now.wall()));
        status.observed_generation = status.observed_generation.max(old.observed_generation);

        if let Some(record) = &record
            && record.finished
            && !pod.is_static()
        {
            finished = true;
        }

        let uid = pod.uid();
        transitions::check(pod, old, &status)?;
        if is_terminal(phase(old)) && !is_terminal(phase(&status)) {
            tracing::error!(
                pod = %pod.key(), %uid, from = phase(old), to = phase(&status),
                "pod attempted to leave a terminal phase"
            );
            status.phase.clone_from(&old.phase);
            status.reason.clone_from(&old.reason);
            status.message.clone_from(&old.message);
        }
        set_transition_times(&mut status, old, &now.wall());
        normalize(pod, &mut status);
        count_terminations(old, &status);

        match record {
            Some(record) => {
                // It says nothing about the sink's version: a worker may have an older pod than the source.
                record.pod = pod.clone();
                let came_back = std::mem::take(&mut record.orphaned);
                if !force && !came_back && same_by_kubelet(old, &status) {
                    return Ok(false);
                }
                record.status = Arc::new(status);
                record.has_changed(now);
                record.finished = finished;
            }
            None => {
                let mut known = Known::default();
                match mirror {
                    Some(mirror) => known.saw(mirror),
                    None => !pod.is_static() && known.saw(pod),
                };
                let record = Record {
                    pod: pod.clone(),
                    status: Arc::new(status),
                    version: 1,
                    sent: 0,
                    known,
                    finished,
                    changed_at: now.instant(),
                    differs: false,
                    orphaned: false,
                    turn: Turn::Idle,
                    failures: 0,
                };
                self.by_uid.insert(uid.clone(), Box::new(record));
            }
        }
        self.queue(&uid);
        Ok(true)
    }
}

fn find_container<'a>(
    status: &'a mut ApiPodStatus,
    container: &ContainerId,
) -> Option<&'a mut ContainerStatus> {
    let id = container.to_string();
    status
        .container_statuses
        .iter_mut()
        .chain(&mut status.init_container_statuses)
        .flatten()
        .find(|status| status.container_id.as_deref() == Some(id.as_str()))
}

/// Each exit of a container counts once: when it is first reported.
fn count_terminations(old: &ApiPodStatus, new: &ApiPodStatus) {
    let kinds = [
        ("container", &old.container_statuses, &new.container_statuses),
        (
            "init_container",
            &old.init_container_statuses,
            &new.init_container_statuses,
        ),
        (
            "ephemeral_container",
            &old.ephemeral_container_statuses,
            &new.ephemeral_container_statuses,
        ),
    ];
    for (kind, old, new) in kinds {
        for status in new.iter().flatten() {
            let had_ended = || {
                let old = old.iter().flatten().find(|old| old.name == status.name);
                old.is_some_and(|old| terminated(&old.state).is_some())
            };
            if let Some(end) = terminated(&status.state)
                && !had_ended()
            {
                metrics::container_terminated(kind, end.exit_code, end.reason.as_deref().unwrap_or_default());
            }
        }
    }
}
