//! What the PLEG keeps of one pod: what it told, what it saw since, and how the reading of its status goes.

use std::sync::Arc;
use std::time::Duration;

use futures::future::AbortHandle;
use kubelet_core::runtime::{PodStatus, RuntimePod, SandboxState};
use kubelet_core::{ContainerId, PodLifecycleEvent, PodLifecycleEventType, PodUid};
use tokio::time::Instant;

use crate::transition;

/// A pod that cannot be read is tried at least this often, as long as lists come that often.
const MAX_BACK_OFF: Duration = Duration::from_secs(10);

/// One pod's record (`podRecord`).
#[derive(Debug)]
pub(crate) struct Record {
    /// The pod as it was when its events were last told. It stays as long as the status cannot be read, so
    /// that what happened meanwhile is told later.
    told: Option<Arc<RuntimePod>>,
    /// The pod as last listed.
    pub(crate) listed: Arc<RuntimePod>,
    /// When it was listed alone, or first.
    pub(crate) listed_at: Instant,
    /// The list that had it last, by number.
    pub(crate) list: u64,
    /// Whether `listed` has something that `told` has not.
    differs: bool,
    /// Containers that came and went since `told`: neither record has them, and yet they have ended.
    missed: Vec<ContainerId>,
    /// Somebody asked for an inspection.
    pub(crate) reinspect: bool,
    /// The inspection under way.
    pub(crate) inspection: Option<AbortHandle>,
    /// How many inspections failed since the last that did not.
    failures: u32,
    /// When to try again.
    retry_at: Option<Instant>,
    /// What was read last; no error takes it away.
    last_status: Option<Arc<PodStatus>>,
}

impl Record {
    pub(crate) fn new(listed: Arc<RuntimePod>, listed_at: Instant, list: u64) -> Self {
        Self {
            told: None,
            listed,
            listed_at,
            list,
            differs: true,
            missed: Vec::new(),
            reinspect: false,
            inspection: None,
            failures: 0,
            retry_at: None,
            last_status: None,
        }
    }

    /// Takes in the pod as listed now; says whether that differs from what was listed before.
    pub(crate) fn list_again(&mut self, pod: &Arc<RuntimePod>) -> bool {
        let before = std::mem::replace(&mut self.listed, pod.clone());
        let as_told = self.told.as_ref().is_some_and(|told| Arc::ptr_eq(told, &before));
        if !transition::differ(Some(&before), Some(pod)) {
            if self.is_settled() && !self.differs {
                self.told = Some(pod.clone());
            }
            return false;
        }
        if as_told {
            self.differs = true;
        } else {
            self.miss(&before, Some(pod));
            self.differs = self.differs_from_told();
        }
        self.retry_at = None;
        true
    }

    /// Whether the pod's status should be read now.
    pub(crate) fn needs_inspection(&self) -> bool {
        if self.inspection.is_some() {
            return false;
        }
        if self.failures > 0 {
            return self.reinspect || self.retry_at.is_none_or(|retry_at| retry_at <= Instant::now());
        }
        self.differs || self.reinspect || !self.missed.is_empty()
    }

    fn differs_from_told(&self) -> bool {
        transition::differ(self.told.as_deref(), Some(&self.listed))
    }

    /// Whether all that was listed is told.
    pub(crate) fn is_settled(&self) -> bool {
        self.inspection.is_none() && self.failures == 0
    }

    /// The status of the pod, listed as `inspected`, was read: keeps it, and returns it for the cache with
    /// the events that may be told now.
    pub(crate) fn inspected(
        &mut self,
        inspected: Arc<RuntimePod>,
        mut status: PodStatus,
    ) -> (Arc<PodStatus>, Vec<PodLifecycleEvent>) {
        self.inspection = None;
        self.failures = 0;
        self.retry_at = None;
        keep_ips(&mut status, self.last_status.as_deref());
        let status = Arc::new(status);
        self.last_status = Some(status.clone());
        let mut events = transition::events(&inspected.uid, self.told.as_deref(), Some(&inspected));
        // What the inspected record has is told by comparison, now and later.
        self.missed
            .retain(|container| !transition::has(Some(&inspected), container));
        self.tell_missed(&inspected.uid, &mut events);
        if events.is_empty() {
            events.push(pod_sync(&inspected.uid));
        }
        let is_newest = Arc::ptr_eq(&inspected, &self.listed);
        self.told = Some(inspected);
        self.differs = !is_newest && self.differs_from_told();
        (status, events)
    }

    /// The status could not be read: everything stays as it is, to be told later.
    pub(crate) fn failed(&mut self, now: Instant, relist_period: Duration) {
        self.inspection = None;
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now + back_off(self.failures, relist_period));
    }

    /// The runtime does not have the pod any more: the last events.
    pub(crate) fn gone(mut self) -> Vec<PodLifecycleEvent> {
        let owes_sync = !self.is_settled() || self.reinspect;
        if let Some(inspection) = self.inspection.take() {
            inspection.abort();
        }
        let listed = self.listed.clone();
        let mut events = transition::events(&listed.uid, self.told.as_deref(), None);
        self.miss(&listed, None);
        self.tell_missed(&listed.uid, &mut events);
        if events.is_empty() && owes_sync {
            events.push(pod_sync(&listed.uid));
        }
        events
    }

    /// Remembers what `before` had and neither what was told nor `now` has.
    fn miss(&mut self, before: &RuntimePod, now: Option<&RuntimePod>) {
        for container in transition::members(before) {
            if !transition::has(self.told.as_deref(), container)
                && !transition::has(now, container)
                && !self.missed.contains(container)
            {
                self.missed.push(container.clone());
            }
        }
    }

    fn tell_missed(&mut self, uid: &PodUid, events: &mut Vec<PodLifecycleEvent>) {
        for container in self.missed.drain(..) {
            for event_type in [
                PodLifecycleEventType::ContainerDied,
                PodLifecycleEventType::ContainerRemoved,
            ] {
                events.push(PodLifecycleEvent {
                    uid: uid.clone(),
                    event_type,
                    container: Some(container.clone()),
                });
            }
        }
    }
}

/// A pod whose sandboxes all ended has no IPs any more, but the API expects those that it had
/// (`GenericPLEG.getPodIPs`).
fn keep_ips(status: &mut PodStatus, last: Option<&PodStatus>) {
    let is_ready = status
        .sandboxes
        .iter()
        .any(|sandbox| sandbox.state == SandboxState::Ready);
    if let Some(last) = last
        && status.ips.is_empty()
        && !is_ready
    {
        status.ips.clone_from(&last.ips);
    }
}

/// The first failure is tried again by the next relist, the further ones rarer and rarer.
fn back_off(failures: u32, relist_period: Duration) -> Duration {
    match failures.checked_sub(2) {
        None => Duration::ZERO,
        Some(doublings) => relist_period
            .saturating_mul(2u32.saturating_pow(doublings))
            .min(MAX_BACK_OFF),
    }
}

fn pod_sync(uid: &PodUid) -> PodLifecycleEvent {
    PodLifecycleEvent {
        uid: uid.clone(),
        event_type: PodLifecycleEventType::PodSync,
        container: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_grows_to_its_cap() {
        let period = Duration::from_secs(1);
        let seconds: Vec<u64> = (1..9)
            .map(|failures| back_off(failures, period).as_secs())
            .collect();
        assert_eq!(seconds, [0, 1, 2, 4, 8, 10, 10, 10]);
        assert_eq!(back_off(u32::MAX, period), MAX_BACK_OFF);
    }
}
