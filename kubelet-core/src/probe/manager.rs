//! The engine: schedules probes and reports their results.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::handle::{ProbeManagerHandle, Shared};
use super::prober::{ProbeTarget, probe_with_retries};
use super::table::WorkerId;
use super::updates::ProbeUpdates;
use super::worker::{Look, Times};
use super::{ProbeOutcome, ProbeResult, ProbeResultCache, Prober, metrics};
use crate::{Clock, Event, EventRecorder, EventType, Jitter, LogEvents, PodExt, PodStatusReporter};

/// Probes the containers of its pods, each probe in its own period, and stores the results in a [`ProbeResultCache`]. A
/// changed result is reported to the status manager at once, and its pod is queued for a sync ([`ProbeUpdates`]).
/// Answers to the kubelet's `prober.Manager`.
///
/// A waiting probe takes an entry in a table, a running one takes a task, and a pod without probes takes nothing. A
/// probe that hangs delays only itself, and ends with its pod.
///
/// [`Kubelet`](crate::Kubelet) creates one if it has a [`Prober`]. It also works alone:
///
/// ```
/// # use std::sync::Arc;
/// # use kubelet_core::*;
/// # async fn example(prober: impl Prober, statuses: Arc<dyn PodStatusReporter>, pod: Arc<k8s_openapi::api::core::v1::Pod>) {
/// let results = ProbeResultCache::new();
/// let manager = ProbeManager::new(prober, results.clone(), statuses, ProbeManagerConfig::default());
/// let (handle, mut updates) = (manager.handle(), manager.updates());
/// let shutdown = tokio_util::sync::CancellationToken::new();
/// let running = tokio::spawn(manager.run(shutdown.clone()));
///
/// handle.add_pod(&pod);
/// let changed = updates.next().await; // sync this pod: its `results` or its status changed
/// # let _ = (changed, running, results);
/// # }
/// ```
pub struct ProbeManager {
    prober: Arc<dyn Prober>,
    recorder: Arc<dyn EventRecorder>,
    handle: ProbeManagerHandle,
}

/// The configuration of a [`ProbeManager`].
#[derive(Clone)]
#[non_exhaustive]
pub struct ProbeManagerConfig {
    /// The clock for initial delays. It must be the clock of the runtime's timestamps.
    pub clock: Clock,
    /// Spreads the first probes after a start of the agent over their periods.
    pub jitter: Jitter,
    /// Records events about failed probes; by default they are logged.
    pub recorder: Arc<dyn EventRecorder>,
}

impl Default for ProbeManagerConfig {
    fn default() -> Self {
        Self {
            clock: Clock::system(),
            jitter: Jitter::default(),
            recorder: Arc::new(LogEvents),
        }
    }
}

crate::impl_debug!(ProbeManagerConfig: clock);

impl ProbeManager {
    /// A manager that probes with `prober`, writes `results` and reports to `statuses`. The agent counts as started
    /// now: a container that started earlier is not reported as unready before its first probe.
    pub fn new(
        prober: impl Prober,
        results: ProbeResultCache,
        statuses: Arc<dyn PodStatusReporter>,
        config: ProbeManagerConfig,
    ) -> Self {
        let shared = Shared {
            state: Mutex::default(),
            due_changed: Notify::new(),
            results,
            statuses,
            updates: Arc::default(),
            started: (config.clock.now(), Instant::now()),
            clock: config.clock,
            jitter: config.jitter,
        };
        Self {
            prober: Arc::new(prober),
            recorder: config.recorder,
            handle: ProbeManagerHandle(Arc::new(shared)),
        }
    }

    /// The handle for other parts. It also works before the manager runs and after it ended; nothing is probed then.
    pub fn handle(&self) -> ProbeManagerHandle {
        self.handle.clone()
    }

    /// The pods to sync. There is only one set: several consumers would share it.
    pub fn updates(&self) -> ProbeUpdates {
        ProbeUpdates(self.handle.0.updates.clone())
    }

    /// Probes until `shutdown`. Running attempts are dropped then; all tasks have ended when it returns.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future aborts running attempts. Results stay in the cache.
    pub async fn run(self, shutdown: CancellationToken) {
        let shared = &*self.handle.0;
        let mut acts: JoinSet<Act> = JoinSet::new();
        loop {
            let next = shared.state.lock().due.first().map(|(at, _)| *at);
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(ended) = acts.join_next() => match ended {
                    Ok(act) => self.finish(act),
                    Err(error) => shared.lost(&error),
                },
                () = shared.due_changed.notified() => {}
                () = sleep_until(next) => self.start_due(&mut acts),
            }
        }
        acts.shutdown().await;
    }

    /// Checks every probe that is due, and starts those that must run.
    fn start_due(&self, acts: &mut JoinSet<Act>) {
        let shared = &*self.handle.0;
        let now = Instant::now();
        loop {
            // Locked again for each probe, so that adding and removing pods does not wait for all of them.
            let mut state = shared.state.lock();
            let Some(id) = state.take_due(now) else {
                return;
            };
            let Some(entry) = state.workers.get_mut(&id) else {
                continue;
            };
            entry.take_tick(now);
            let status = shared.statuses.pod_status(&entry.uid);
            let worker = &mut entry.worker;
            let times = Times {
                now: shared.clock.now(),
                agent_started: shared.started.0,
            };
            match worker.look(status.as_deref(), times, shared) {
                Look::Wait => state.schedule_next(id, now),
                Look::End => {
                    worker.forget(&shared.results);
                    entry.ended = true;
                }
                Look::Probe => {
                    let (Some(status), Some(container)) = (status, worker.container_id.clone()) else {
                        state.schedule_next(id, now);
                        continue;
                    };
                    let pod = worker.pod.clone();
                    let target = ProbeTarget::at(worker.kind, pod, status, worker.place, container);
                    let prober = self.prober.clone();
                    entry.act = Some(acts.spawn(async move {
                        let outcome = probe_with_retries(&*prober, &target).await;
                        let took = now.elapsed();
                        Act {
                            worker: id,
                            target,
                            outcome,
                            took,
                        }
                    }));
                }
            }
        }
    }

    /// Applies and reports the result of a probe.
    fn finish(&self, act: Act) {
        let shared = &*self.handle.0;
        let mut state = shared.state.lock();
        let Some(entry) = state.workers.get_mut(&act.worker) else {
            return;
        };
        entry.act = None;
        if let Some(result) = self.tell(&act, entry.worker.failed_last()) {
            let name = entry.worker.container_name();
            metrics::probed(act.target.kind, &act.target.pod, name, result, act.took);
            entry.worker.judge(result, shared);
        }
        state.schedule_next(act.worker, Instant::now());
    }

    /// The result and the event of one probe; none if there is no result. A failure that follows a failure is logged for whoever
    /// looks closely.
    fn tell(&self, act: &Act, failed_last: bool) -> Option<ProbeResult> {
        let target = &act.target;
        let (kind, pod) = (target.kind, &target.pod);
        let name = target.container().map_or("", |container| &container.name);
        let (uid, key) = (pod.uid_str(), pod.key());
        let warn = |reason, message| {
            self.recorder.record(Event {
                pod,
                field_path: Some(target.field_path()),
                event_type: EventType::Warning,
                reason,
                message,
            });
        };
        match &act.outcome {
            ProbeOutcome::Success => {
                tracing::trace!(pod = %key, uid, container = name, %kind, "Probe succeeded");
                Some(ProbeResult::Success)
            }
            ProbeOutcome::Warning { output } => {
                tracing::debug!(pod = %key, uid, container = name, %kind, output, "Probe succeeded with a warning");
                warn("ProbeWarning", format!("{kind} probe warning: {output}"));
                Some(ProbeResult::Success)
            }
            ProbeOutcome::Failure { output } => {
                match failed_last {
                    false => tracing::info!(pod = %key, uid, container = name, %kind, output, "Probe failed"),
                    true => {
                        tracing::debug!(pod = %key, uid, container = name, %kind, output, "Probe failed again")
                    }
                }
                warn("Unhealthy", format!("{kind} probe failed: {output}"));
                Some(ProbeResult::Failure)
            }
            ProbeOutcome::Errored { result, error } => {
                tracing::info!(pod = %key, uid, container = name, %kind, error, "Probe errored");
                let state = match result {
                    ProbeResult::Success => "success",
                    ProbeResult::Failure => "failure",
                    ProbeResult::Unknown => "unknown",
                };
                let message = format!("{kind} probe errored and resulted in {state} state: {error}");
                warn("Unhealthy", message);
                None
            }
        }
    }
}

impl fmt::Debug for ProbeManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProbeManager").field(&self.handle).finish()
    }
}

/// A probe that has run.
struct Act {
    worker: WorkerId,
    target: ProbeTarget,
    outcome: ProbeOutcome,
    took: Duration,
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
#[path = "manager_tests.rs"]
mod tests;
