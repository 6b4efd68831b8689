//! One probe of one container: its reaction to the container's status and to results (`prober.worker`, without its
//! loop).

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodStatus as ApiPodStatus};

use super::ProbeKind;
use super::prober::Place;
use super::{ProbeResult, ProbeResultCache};
use crate::pod::{has_terminal_phase, restarts_all_containers};
use crate::restart_rules::{
    asks_to_restart_all_containers, container_should_restart, is_restartable_init_container,
};
use crate::{ContainerId, PodExt};

/// A container that started this much before the agent was started by an earlier run: without a result it keeps its
/// readiness (`kubeletRestartGracePeriod`).
const RESTART_GRACE_PERIOD: SignedDuration = SignedDuration::from_secs(10);
/// The default of `failureThreshold`.
const DEFAULT_FAILURE_THRESHOLD: i32 = 3;

/// The next action of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Nothing now.
    Wait,
    /// Run the probe.
    Probe,
    /// End: this container will not restart.
    End,
}

/// The current times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) now: Timestamp,
    pub(super) agent_started: Timestamp,
}

/// The cache for results.
pub(super) trait ResultSink {
    fn set(&self, kind: ProbeKind, pod: &Pod, container: &ContainerId, result: ProbeResult);
    fn results(&self) -> &ProbeResultCache;
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) kind: ProbeKind,
    pub(super) pod: Arc<Pod>,
    pub(super) place: Place,
    /// The container that it saw last.
    pub(super) container_id: Option<ContainerId>,
    /// The last result, and its number in a row.
    last: Option<(ProbeResult, i32)>,
    /// No probe runs until there is another container.
    on_hold: bool,
}

impl Worker {
    pub(super) fn new(kind: ProbeKind, pod: Arc<Pod>, place: Place) -> Self {
        Self {
            kind,
            pod,
            place,
            container_id: None,
            last: None,
            on_hold: false,
        }
    }

    pub(super) fn container_name(&self) -> &str {
        let container = self.place.container(&self.pod);
        container.map_or("", |container| &container.name)
    }

    /// Decides what to do, from the status that was reported last (`doProbe`, up to the probe).
    pub(super) fn look(
        &mut self,
        status: Option<&ApiPodStatus>,
        times: Times,
        sink: &dyn ResultSink,
    ) -> Look {
        let pod = self.pod.clone();
        let Some(container) = self.place.container(&pod) else {
            return Look::End;
        };
        let Some(spec) = self.kind.of(container) else {
            return Look::End;
        };
        let Some(status) = status else {
            return Look::Wait;
        };
        if has_terminal_phase(status) {
            return Look::End;
        }
        let Some((id, reported)) = reported_container(status, &container.name) else {
            return Look::Wait;
        };
        if self.container_id.as_ref() != Some(&id) {
            self.meet(id.clone(), reported, times, sink);
        }
        if self.on_hold {
            return Look::Wait;
        }

        let no_state = ContainerState::default();
        let state = reported.state.as_ref().unwrap_or(&no_state);
        let Some(running) = &state.running else {
            sink.set(self.kind, &pod, &id, ProbeResult::Failure);
            let (Some(end), Some(pod_spec)) = (&state.terminated, &pod.spec) else {
                return Look::Wait;
            };
            let comes_back = container_should_restart(container, pod_spec, end.exit_code)
                || all_containers_restart(&pod, status);
            return if comes_back { Look::Wait } else { Look::End };
        };
        if pod.is_deleting() && self.kind != ProbeKind::Readiness {
            // A failure now must not kill the container before its grace period ends.
            sink.set(self.kind, &pod, &id, ProbeResult::Success);
            return Look::End;
        }
        let delay = i64::from(spec.initial_delay_seconds.unwrap_or_default());
        if let Some(started_at) = &running.started_at
            && times.now.duration_since(started_at.0).as_secs() < delay
        {
            return Look::Wait;
        }
        // Startup probes are for containers that have not started, the other kinds for those that have.
        let started = reported.started == Some(true);
        if started == (self.kind == ProbeKind::Startup) {
            return Look::Wait;
        }
        Look::Probe
    }

    /// Another container than before: the old results are dropped.
    fn meet(&mut self, id: ContainerId, reported: &ContainerStatus, times: Times, sink: &dyn ResultSink) {
        self.forget(sink.results());
        self.container_id = Some(id.clone());
        self.on_hold = false;
        let running = reported.state.as_ref().and_then(|state| state.running.as_ref());
        let started_at = running.and_then(|running| running.started_at.as_ref());
        let ran_before_agent = started_at.is_some_and(|at| at.0 < times.agent_started - RESTART_GRACE_PERIOD);
        let container = self.place.container(&self.pod);
        let sidecar = self.place.init && container.is_some_and(is_restartable_init_container);
        if sidecar && self.kind == ProbeKind::Startup && reported.started == Some(true) {
            // The condition `Initialized` depends on it.
            sink.set(self.kind, &self.pod, &id, ProbeResult::Success);
        }
        if !ran_before_agent {
            let initial = match self.kind {
                ProbeKind::Liveness => ProbeResult::Success,
                ProbeKind::Readiness => ProbeResult::Failure,
                ProbeKind::Startup => ProbeResult::Unknown,
            };
            sink.set(self.kind, &self.pod, &id, initial);
        }
    }

    /// Whether the last result of this container is a failure.
    pub(super) fn failed_last(&self) -> bool {
        matches!(self.last, Some((ProbeResult::Failure, _)))
    }

    /// Applies a result. It takes effect after enough equal results in a row.
    pub(super) fn judge(&mut self, result: ProbeResult, sink: &dyn ResultSink) {
        let Some(spec) = self.place.container(&self.pod).and_then(|c| self.kind.of(c)) else {
            return;
        };
        let Some(id) = &self.container_id else {
            return;
        };
        let run = match self.last {
            Some((last, run)) if last == result => run.saturating_add(1),
            _ => 1,
        };
        self.last = Some((result, run));
        let threshold = match result {
            ProbeResult::Success => spec.success_threshold.filter(|times| *times > 0).unwrap_or(1),
            ProbeResult::Failure => {
                let set = spec.failure_threshold.filter(|times| *times > 0);
                set.unwrap_or(DEFAULT_FAILURE_THRESHOLD)
            }
            ProbeResult::Unknown => 1,
        };
        if run < threshold {
            return;
        }
        sink.set(self.kind, &self.pod, id, result);
        let decided = match self.kind {
            ProbeKind::Liveness => result == ProbeResult::Failure,
            ProbeKind::Readiness => false,
            ProbeKind::Startup => true,
        };
        if decided {
            // A failed container is killed, and a started one needs no startup probe: no more commands are run in it.
            self.on_hold = true;
            self.last = Some((result, 0));
        }
    }

    /// Removes its results.
    pub(super) fn forget(&self, results: &ProbeResultCache) {
        if let Some(id) = &self.container_id {
            results.remove(self.kind, id);
        }
    }
}

/// The status of the container with this name, if it has an id; regular or init.
pub(super) fn reported_container<'a>(
    status: &'a ApiPodStatus,
    name: &str,
) -> Option<(ContainerId, &'a ContainerStatus)> {
    let find = |statuses: &'a Option<Vec<ContainerStatus>>| {
        let found = statuses.iter().flatten().find(|status| status.name == name)?;
        Some((found.container_id.as_deref()?.parse().ok()?, found))
    };
    find(&status.container_statuses).or_else(|| find(&status.init_container_statuses))
}

/// `ShouldAllContainersRestart`, for the reported status.
fn all_containers_restart(pod: &Pod, status: &ApiPodStatus) -> bool {
    if restarts_all_containers(status) {
        return true;
    }
    pod.all_containers().any(|container| {
        let statuses = status
            .init_container_statuses
            .iter()
            .chain(&status.container_statuses);
        let mut named = statuses.flatten().filter(|status| status.name == container.name);
        // Regular containers come last and take precedence.
        let end = named
            .next_back()
            .and_then(|status| status.state.as_ref()?.terminated.as_ref());
        end.is_some_and(|end| asks_to_restart_all_containers(container, end.exit_code))
    })
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
