//! `--run-once`: waits until each pod is running or has ended, and reports the result (the kubelet's former
//! `--runonce`).

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use kubelet_core::{KubeletHandle, PodExt};
use kubelet_status::MemorySink;
use tokio::time::{Instant, sleep_until, timeout};

use crate::agent::Problems;
use crate::show;
use crate::table::Row;

/// The result.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) rows: Vec<Row>,
    pub(crate) problems: Vec<String>,
    failed: bool,
}

impl Verdict {
    pub(crate) fn failed(&self) -> bool {
        self.failed
    }
}

/// The state of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    NotYet,
    Well,
    Failed,
}

/// The result is final once nothing has changed for this long: enough to list the runtime twice.
const SETTLED: Duration = Duration::from_secs(2);

/// Waits until each pod of the manifests is running or has ended, at most for `patience`.
pub(crate) async fn wait(
    handle: &KubeletHandle,
    statuses: &MemorySink,
    problems: &Problems,
    patience: Duration,
) -> Verdict {
    let deadline = Instant::now() + patience;
    let mut changes = statuses.watch();
    let mut ready = tokio::time::interval(Duration::from_millis(50));
    loop {
        let desired = handle.pods().pods();
        let states: Vec<State> = desired
            .iter()
            .map(|pod| statuses.get(&pod.uid()).map_or(State::NotYet, |status| state(&status)))
            .collect();
        let on_their_way = !handle.sources().all_ready() || states.contains(&State::NotYet);
        let in_time = Instant::now() < deadline;
        if !on_their_way || !in_time {
            // A container may run for a moment before it fails.
            if in_time && timeout(SETTLED, changes.changed()).await.is_ok() {
                continue;
            }
            let mut problems = problems.all();
            let late = desired.iter().zip(&states).filter(|(_, state)| **state == State::NotYet);
            let seconds = patience.as_secs();
            problems.extend(
                late.map(|(pod, _)| format!("{}: not running and not ended after {seconds} s", pod.key())),
            );
            let failed = desired.iter().zip(&states).filter(|(_, state)| **state == State::Failed);
            problems.extend(failed.filter_map(|(pod, _)| {
                let status = statuses.get(&pod.uid())?;
                let why = why(&status)?;
                Some(format!("{}: {why}", pod.key()))
            }));
            let failed = on_their_way || states.contains(&State::Failed) || !problems.is_empty();
            return Verdict { rows: show::rows(statuses), problems, failed };
        }
        tokio::select! {
            _ = changes.changed() => {}
            () = sleep_until(deadline) => {}
            // A source that becomes ready changes no status.
            _ = ready.tick(), if !handle.sources().all_ready() || desired.is_empty() => {}
        }
    }
}

fn state(status: &PodStatus) -> State {
    match status.phase.as_deref() {
        Some("Succeeded") => return State::Well,
        Some("Failed") => return State::Failed,
        _ => {}
    }
    let containers = || status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    if containers().any(stuck) {
        return State::Failed;
    }
    let ready = status.conditions.iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True");
    if ready { State::Well } else { State::NotYet }
}

/// Why a pod failed, as far as its status contains it.
fn why(status: &PodStatus) -> Option<String> {
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let of_a_container = |container: &ContainerStatus| {
        let state = container.state.as_ref()?;
        let waiting = state.waiting.as_ref().and_then(|waiting| waiting.message.clone());
        let ended = state.terminated.as_ref().filter(|ended| ended.exit_code != 0);
        let ended = || ended.map(|ended| format!("ended with {}", ended.exit_code));
        Some(format!("container {}: {}", container.name, waiting.or_else(ended)?))
    };
    status.message.clone().or_else(|| containers.filter_map(of_a_container).next())
}

/// The container failed and waits for its next attempt.
fn stuck(container: &ContainerStatus) -> bool {
    let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
    let reason = waiting.and_then(|waiting| waiting.reason.as_deref()).unwrap_or_default();
    !matches!(reason, "" | "ContainerCreating" | "PodInitializing")
}
