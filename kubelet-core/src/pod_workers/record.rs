//! The record of one pod: its state on the way sync → terminating → terminated.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::update::{KillPod, Target, UpdatePod};
use crate::pod_syncer::{PodStatusFn, SyncPodType};
use crate::{PodExt, PodKey};

/// The state of a pod's worker (`PodWorkerState`). It never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PodWorkerState {
    /// The pod should be started and running.
    Sync,
    /// No container is started any more; some may still run.
    Terminating,
    /// No container runs or will run; the pod's resources are being released.
    Terminated,
}

/// The work that was requested last.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) update_type: SyncPodType,
    pub(super) target: Target,
    pub(super) mirror: Option<Arc<Pod>>,
}

/// All that the workers keep of one UID (`podSyncStatus`).
pub(super) struct PodRecord {
    pub(super) key: PodKey,
    /// Requested, but not started. A newer request replaces it.
    pub(super) pending: Option<Request>,
    /// Started last; a resync repeats it.
    pub(super) active: Option<Request>,
    /// Whether a sync is running.
    pub(super) in_flight: Option<CancellationToken>,
    /// When it started.
    pub(super) began_at: Option<Instant>,
    /// The error of the last sync, if it failed.
    pub(super) last_error: Option<String>,
    /// Whether it is in the queue.
    pub(super) queued: bool,
    /// The time of the next sync without a change.
    pub(super) wake_at: Option<Instant>,
    /// When the last sync ended. The next sync needs a newer status.
    pub(super) synced_at: Option<Instant>,
    /// The arrival time of the oldest pending update.
    pub(super) updated_at: Option<Instant>,
    /// The worker has allowed the pod to start.
    pub(super) started: bool,
    pub(super) termination_requested: bool,
    /// The worker has seen the request to terminate: it starts no more containers.
    pub(super) termination_started: bool,
    pub(super) terminated: bool,
    /// Everything is done; the record only marks that this UID has run.
    pub(super) finished: bool,
    /// Its source no longer lists it, or has marked it for deletion.
    pub(super) deleted: bool,
    pub(super) evicted: bool,
    /// A pod with the same UID was added while this one was ending.
    pub(super) restart_requested: bool,
    /// The runtime has containers of it: it must be terminated even if this agent never started it.
    pub(super) observed_runtime: bool,
    /// In whole seconds, at least one after termination was requested.
    pub(super) grace_period: Option<i64>,
    pub(super) completed: Vec<oneshot::Sender<()>>,
    pub(super) status_fn: Option<PodStatusFn>,
}

/// The effect of an update on a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// No work.
    Ignored,
    /// There is work.
    Pending,
    /// There is work, and the running sync must be cancelled.
    Interrupts,
}

impl PodRecord {
    pub(super) fn new(key: PodKey) -> Self {
        Self {
            key,
            pending: None,
            active: None,
            in_flight: None,
            began_at: None,
            last_error: None,
            queued: false,
            wake_at: None,
            synced_at: None,
            updated_at: None,
            started: false,
            termination_requested: false,
            termination_started: false,
            terminated: false,
            finished: false,
            deleted: false,
            evicted: false,
            restart_requested: false,
            observed_runtime: false,
            grace_period: None,
            completed: Vec::new(),
            status_fn: None,
        }
    }

    /// A pod that ended before the agent started: it only needs its clean-up.
    pub(super) fn already_terminated(key: PodKey) -> Self {
        Self {
            termination_requested: true,
            termination_started: true,
            terminated: true,
            ..Self::new(key)
        }
    }

    pub(super) fn state(&self) -> PodWorkerState {
        match (self.terminated, self.termination_requested) {
            (true, _) => PodWorkerState::Terminated,
            (false, true) => PodWorkerState::Terminating,
            (false, false) => PodWorkerState::Sync,
        }
    }

    /// Everything of a record that housekeeping depends on.
    pub(super) fn place(&self) -> impl PartialEq + use<> {
        (
            self.state(),
            self.finished,
            self.restart_requested,
            self.pod().map(|pod| pod.is_static()),
        )
    }

    /// The grace period of its containers.
    pub(super) fn grace_period(&self) -> Option<Duration> {
        let seconds = |seconds: i64| Duration::from_secs(u64::try_from(seconds).unwrap_or(1));
        self.grace_period.map(seconds)
    }

    /// The latest requested pod.
    pub(super) fn pod(&self) -> Option<&Arc<Pod>> {
        [&self.pending, &self.active]
            .into_iter()
            .flatten()
            .find_map(|request| request.target.pod())
    }

    /// Whether it is a static pod that has not started and still should.
    pub(super) fn waits_to_start_static(&self) -> bool {
        let is_static = || self.pod().is_some_and(|pod| pod.is_static());
        !self.started && !self.termination_requested && self.pending.is_some() && is_static()
    }

    /// Applies an update (`UpdatePod`). `first`: the UID was unknown before.
    pub(super) fn update(&mut self, update: UpdatePod, first: bool, now: Instant) -> Effect {
        let UpdatePod {
            update_type,
            mut target,
            mirror,
            kill,
        } = update;
        let runtime_only = matches!(target, Target::Runtime(_));
        if runtime_only {
            if update_type != SyncPodType::Kill {
                return Effect::Ignored;
            }
            self.observed_runtime = true;
            if let Some(pod) = self.pod() {
                target = Target::Pod(pod.clone());
            }
        }
        if !first && self.termination_requested && update_type == SyncPodType::Create {
            self.restart_requested = true;
            return Effect::Ignored;
        }
        if self.finished {
            return Effect::Ignored;
        }

        let mut kill = kill.unwrap_or_default();
        let became_terminating =
            !self.termination_requested && self.must_end(&target, runtime_only, update_type);
        if became_terminating {
            self.termination_requested = true;
            self.evicted |= update_type == SyncPodType::Kill && kill.evict;
        }
        if self.terminated && runtime_only {
            // The list that contained it is older than its end.
            return Effect::Ignored;
        }
        let mut shortened = false;
        if self.terminated || !self.termination_requested {
            let _ = kill.completed.take().map(|completed| completed.send(()));
        } else {
            shortened = self.take_kill(kill, target.pod());
        }

        self.updated_at.get_or_insert(now);
        self.pending = Some(Request {
            update_type,
            target,
            mirror,
        });
        if became_terminating || shortened {
            Effect::Interrupts
        } else {
            Effect::Pending
        }
    }

    /// Whether this update terminates the pod.
    fn must_end(&mut self, target: &Target, runtime_only: bool, update_type: SyncPodType) -> bool {
        let deleted = runtime_only || target.pod().is_some_and(|pod| pod.is_deleting());
        self.deleted |= deleted;
        let over = target.pod().is_some_and(|pod| pod.is_terminal_phase());
        deleted || over || update_type == SyncPodType::Kill
    }

    /// Applies how the pod is to end. Returns whether the grace period became shorter.
    fn take_kill(&mut self, kill: KillPod, pod: Option<&Arc<Pod>>) -> bool {
        self.completed.extend(kill.completed);
        if kill.status_fn.is_some() {
            self.status_fn = kill.status_fn;
        }
        self.shrink_grace_period(pod, kill.grace_period)
    }

    /// The grace period only becomes shorter, and is at least a second (`calculateEffectiveGracePeriod`). Returns
    /// whether it was longer before.
    pub(super) fn shrink_grace_period(&mut self, pod: Option<&Arc<Pod>>, asked: Option<Duration>) -> bool {
        let before = self.grace_period;
        let by_api = pod.and_then(|pod| pod.metadata.deletion_grace_period_seconds);
        let asked = asked.map(|asked| i64::try_from(asked.as_secs()).unwrap_or(i64::MAX));
        let own = || pod.and_then(|pod| pod.spec.as_ref()?.termination_grace_period_seconds);
        let shortest = before.into_iter().chain(by_api).chain(asked).min();
        let grace_period = shortest.or_else(own).unwrap_or(1).max(1);
        self.grace_period = Some(grace_period);
        before.is_some_and(|before| before != grace_period)
    }

    /// Requests the last work again, unless newer work is pending (`requeueLastPodUpdate`). Returns whether there is
    /// work now.
    pub(super) fn repeat(&mut self) -> bool {
        if self.pending.is_none() {
            self.pending = self.active.as_ref().map(|active| Request {
                update_type: SyncPodType::Sync,
                ..active.clone()
            });
        }
        self.pending.is_some()
    }

    /// The containers have ended (`completeTerminating`).
    pub(super) fn complete_terminating(&mut self) {
        self.terminated = true;
        self.status_fn = None;
        for completed in self.completed.drain(..) {
            // The receiver may be gone.
            let _ = completed.send(());
        }
    }
}
