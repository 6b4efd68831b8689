//! Explains the state of a pod's worker.

use tokio::time::Instant;

use super::record::PodRecord;
use super::registry::Registry;
use super::{PodWorkerState, PodWorkersHandle};
use crate::explain::Step;
use crate::{PodCache, PodExt, PodUid};

impl PodWorkersHandle {
    /// What the pod waits for in its worker; empty if no worker knows it.
    pub(crate) fn explain(&self, uid: &PodUid) -> Vec<Step> {
        let registry = self.shared.registry.lock();
        let Some(record) = registry.record(uid) else {
            return Vec::new();
        };
        steps(&registry, uid, record, &self.shared.cache)
    }
}

fn steps(registry: &Registry, uid: &PodUid, record: &PodRecord, cache: &PodCache) -> Vec<Step> {
    if record.finished {
        return vec![Step::Finished];
    }
    let mut steps = Vec::new();
    if record.state() == PodWorkerState::Terminating {
        steps.push(Step::Terminating {
            grace_period: record.grace_period(),
        });
    }
    let turn = waits_for_turn(registry, uid, record);
    match (record.began_at, record.wake_at) {
        (None, _) if registry.awaits_first_list(record) => {
            steps.push(Step::WaitsForStatus { newer_than: None })
        }
        (Some(since), _) if has_newer_status(record, uid, cache) => steps.push(Step::Working {
            state: record.state(),
            since,
        }),
        (Some(_), _) => steps.push(Step::WaitsForStatus {
            newer_than: record.synced_at,
        }),
        (None, _) if record.queued => steps.push(Step::Queued),
        (None, _) if turn.is_some() => steps.extend(turn),
        (None, Some(at)) => steps.push(match record.last_error.clone() {
            Some(error) => Step::RetriesAt { at, error },
            None => Step::LooksAgainAt { at },
        }),
        (None, None) => {}
    }
    steps
}

fn has_newer_status(record: &PodRecord, uid: &PodUid, cache: &PodCache) -> bool {
    let observed: Option<Instant> = cache.observed_at(uid);
    observed.is_some_and(|observed| record.synced_at.is_none_or(|synced| observed > synced))
}

fn waits_for_turn(registry: &Registry, uid: &PodUid, record: &PodRecord) -> Option<Step> {
    let waits =
        !record.started && record.pending.is_some() && record.pod().is_some_and(|pod| pod.is_static());
    let of = registry
        .started_uid(&record.key)
        .filter(|of| waits && *of != uid)?;
    Some(Step::WaitsForTurn { of: of.clone() })
}
