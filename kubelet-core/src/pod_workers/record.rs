//! The one record of a pod: where it is on its way sync → terminating → terminated.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::update::{KillPod, Target, UpdatePod};
use crate::pod_syncer::{PodStatusFn, SyncPodType};
use crate::{PodExt, PodKey};

/// The phase of a pod's worker (`PodWorkerState`). It never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PodWorkerState {
    /// The pod is expected to be started and running.
    Sync,
    /// Nothing more is started; some containers may still run.
    Terminating,
    /// No container runs or will; what the pod held is given back.
    Terminated,
}

/// What a worker is to do next, as it was last asked.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) update_type: SyncPodType,
    pub(super) target: Target,
    pub(super) mirror: Option<Arc<Pod>>,
}

/// All that the workers keep of one UID (`podSyncStatus`).
pub(super) struct PodRecord {
    pub(super) key: PodKey,
    /// Asked for and not begun. A newer request replaces it: only the latest matters.
    pub(super) pending: Option<Request>,
    /// Begun last: what a resync does again.
    pub(super) active: Option<Request>,
    /// A sync runs now.
    pub(super) in_flight: Option<CancellationToken>,
    /// When that began.
    pub(super) began_at: Option<Instant>,
    /// Why the last one failed, if it did.
    pub(super) last_error: Option<String>,
    /// Stands in the queue of those to begin.
    pub(super) queued: bool,
    /// Look at the pod again then.
    pub(super) wake_at: Option<Instant>,
    /// When the last sync ended: the next one needs a status that is newer.
    pub(super) synced_at: Option<Instant>,
    /// When the oldest update not yet acted on came.
    pub(super) updated_at: Option<Instant>,
    /// The worker let the pod start.
    pub(super) started: bool,
    pub(super) termination_requested: bool,
    /// The worker has seen the request: no container will be started any more.
    pub(super) termination_started: bool,
    pub(super) terminated: bool,
    /// All is done; the record only remembers that this UID ran.
    pub(super) finished: bool,
    /// Its source does not list it any more, or has marked it for deletion.
    pub(super) deleted: bool,
    pub(super) evicted: bool,
    /// A pod of the same UID came while this one was ending.
    pub(super) restart_requested: bool,
    /// The runtime had something of it: it must be terminated even if it was never started here.
    pub(super) observed_runtime: bool,
    /// In whole seconds, at least one once termination was requested.
    pub(super) grace_period: Option<i64>,
    pub(super) completed: Vec<oneshot::Sender<()>>,
    pub(super) status_fn: Option<PodStatusFn>,
}

/// What an update did to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Nothing is to be done.
    Ignored,
    /// There is work.
    Pending,
    /// There is work, and the sync that runs is in its way.
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

    /// A pod that had ended before the agent started: only its clean-up is left.
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

    /// Whatever housekeeping goes by.
    pub(super) fn place(&self) -> impl PartialEq + use<> {
        (
            self.state(),
            self.finished,
            self.restart_requested,
            self.pod().map(|pod| pod.is_static()),
        )
    }

    /// What its containers are given to end.
    pub(super) fn grace_period(&self) -> Option<Duration> {
        let seconds = |seconds: i64| Duration::from_secs(u64::try_from(seconds).unwrap_or(1));
        self.grace_period.map(seconds)
    }

    /// The newest pod asked for.
    pub(super) fn pod(&self) -> Option<&Arc<Pod>> {
        [&self.pending, &self.active]
            .into_iter()
            .flatten()
            .find_map(|request| request.target.pod())
    }

    /// Takes in an update (`UpdatePod`). `first` says that the UID was not known before.
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
            // The list that named it is older than its end.
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

    /// Whether this update is the one that ends the pod.
    fn must_end(&mut self, target: &Target, runtime_only: bool, update_type: SyncPodType) -> bool {
        let deleted = runtime_only || target.pod().is_some_and(|pod| pod.is_deleting());
        self.deleted |= deleted;
        let over = target.pod().is_some_and(|pod| pod.is_terminal_phase());
        deleted || over || update_type == SyncPodType::Kill
    }

    /// Notes how the pod is to end; whether that is sooner than it was before.
    fn take_kill(&mut self, kill: KillPod, pod: Option<&Arc<Pod>>) -> bool {
        self.completed.extend(kill.completed);
        if kill.status_fn.is_some() {
            self.status_fn = kill.status_fn;
        }
        self.shrink_grace_period(pod, kill.grace_period)
    }

    /// The grace period only shrinks, and never below a second (`calculateEffectiveGracePeriod`). Returns
    /// whether there was a longer one before.
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

    /// Asks for the last request once more, unless a newer one waits (`requeueLastPodUpdate`). Whether there
    /// is work now.
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
            // Who asked may have stopped listening.
            let _ = completed.send(());
        }
    }
}
