//! What the PLEG keeps of one pod: what it told, what it saw since, and how the reading of its status goes.

use std::sync::Arc;
use std::time::Duration;

use futures::future::AbortHandle;
use kubelet_core::runtime::{PodStatus, RuntimePod};
use kubelet_core::{ContainerId, PodLifecycleEvent, PodLifecycleEventType, PodLifecycleEvents};
use tokio::time::Instant;

use crate::transition;

/// A pod that cannot be read is tried at least this often, as long as lists come that often.
const MAX_BACK_OFF: Duration = Duration::from_secs(10);

/// One pod's record (`podRecord`). The pod as listed last stands beside it, in [`ListedPods`](crate::listed_pods::ListedPods):
/// who calls hands it in as `listed`.
#[derive(Debug)]
pub(crate) struct Record {
    told: Told,
    /// When it was listed alone, or first, or otherwise than before.
    pub(crate) listed_at: Instant,
    /// Whether the pod as listed last has something that was not told.
    differs: bool,
    /// Containers that came and went since events were told: neither record has them, and yet they have ended.
    missed: Vec<ContainerId>,
    /// Somebody asked for an inspection.
    pub(crate) reinspect: bool,
    /// The inspection under way.
    pub(crate) inspection: Option<AbortHandle>,
    /// How many inspections failed since the last that did not.
    failures: u32,
    /// When to try again.
    retry_at: Option<Instant>,
    /// What was read last, while the cache has an error: no error takes it away.
    pub(crate) last_status: Option<Arc<PodStatus>>,
}

/// The pod as it was when its events were last told. It stays as long as the status cannot be read, so that what
/// happened meanwhile is told later.
#[derive(Debug)]
enum Told {
    Nothing,
    AsListed,
    Before(Arc<RuntimePod>),
}

impl Told {
    fn pod<'a>(&'a self, listed: &'a RuntimePod) -> Option<&'a RuntimePod> {
        match self {
            Told::Nothing => None,
            Told::AsListed => Some(listed),
            Told::Before(pod) => Some(pod),
        }
    }
}

impl Record {
    pub(crate) fn new(listed: &RuntimePod, listed_at: Instant) -> Self {
        Self {
            told: Told::Nothing,
            differs: transition::differ(None, Some(listed)),
            listed_at,
            missed: Vec::new(),
            reinspect: false,
            inspection: None,
            failures: 0,
            retry_at: None,
            last_status: None,
        }
    }

    /// The pod is listed otherwise than `before`; says whether that is a change.
    pub(crate) fn list_again(&mut self, before: &Arc<RuntimePod>, listed: &RuntimePod) -> bool {
        if !transition::differ(Some(before), Some(listed)) {
            return false;
        }
        if let Told::AsListed = self.told {
            self.told = Told::Before(before.clone());
            self.differs = true;
        } else {
            self.miss(before, Some(listed));
            self.compare_with_told(listed);
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

    /// Whether all that was listed is told.
    pub(crate) fn is_settled(&self) -> bool {
        self.inspection.is_none() && self.failures == 0
    }

    /// The status of the pod was read, which was listed like `read` then: the events that may be told now.
    pub(crate) fn inspected(
        &mut self,
        read: Arc<RuntimePod>,
        listed: &Arc<RuntimePod>,
    ) -> PodLifecycleEvents {
        if Arc::ptr_eq(&read, listed) {
            return self.inspected_as_listed(listed);
        }
        let events = transition::events(self.told.pod(listed), Some(&read));
        // What the inspected record has is told by comparison, now and later.
        self.missed
            .retain(|container| !transition::has(Some(&read), container));
        self.told = Told::Before(read);
        self.compare_with_told(listed);
        self.settled(events)
    }

    /// As [`inspected`](Self::inspected), of the pod as it was listed last.
    pub(crate) fn inspected_as_listed(&mut self, listed: &RuntimePod) -> PodLifecycleEvents {
        let events = transition::events(self.told.pod(listed), Some(listed));
        self.missed
            .retain(|container| !transition::has(Some(listed), container));
        self.told = Told::AsListed;
        self.differs = false;
        self.settled(events)
    }

    fn settled(&mut self, mut events: PodLifecycleEvents) -> PodLifecycleEvents {
        self.inspection = None;
        self.failures = 0;
        self.retry_at = None;
        self.tell_missed(&mut events);
        if events.is_empty() {
            events.push(POD_SYNC);
        }
        events
    }

    /// The status could not be read: everything stays as it is, to be told later.
    pub(crate) fn failed(&mut self, now: Instant, relist_period: Duration) {
        self.inspection = None;
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now + back_off(self.failures, relist_period));
    }

    /// The runtime does not have the pod any more: the last events.
    pub(crate) fn gone(mut self, listed: &RuntimePod) -> PodLifecycleEvents {
        let owes_sync = !self.is_settled() || self.reinspect;
        if let Some(inspection) = self.inspection.take() {
            inspection.abort();
        }
        let mut events = transition::events(self.told.pod(listed), None);
        self.miss(listed, None);
        self.tell_missed(&mut events);
        if events.is_empty() && owes_sync {
            events.push(POD_SYNC);
        }
        events
    }

    fn compare_with_told(&mut self, listed: &RuntimePod) {
        self.differs = transition::differ(self.told.pod(listed), Some(listed));
        if let (false, Told::Before(_)) = (self.differs, &self.told) {
            // No second one is kept.
            self.told = Told::AsListed;
        }
    }

    /// Remembers what `before`, the pod as listed last until now, had and neither what was told nor `now` has.
    fn miss(&mut self, before: &RuntimePod, now: Option<&RuntimePod>) {
        for container in transition::members(before) {
            if !transition::has(self.told.pod(before), container)
                && !transition::has(now, container)
                && !self.missed.contains(container)
            {
                self.missed.push(container.clone());
            }
        }
    }

    fn tell_missed(&mut self, events: &mut PodLifecycleEvents) {
        for container in self.missed.drain(..) {
            for event_type in [
                PodLifecycleEventType::ContainerDied,
                PodLifecycleEventType::ContainerRemoved,
            ] {
                events.push(PodLifecycleEvent {
                    event_type,
                    container: Some(container.clone()),
                });
            }
        }
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

const POD_SYNC: PodLifecycleEvent = PodLifecycleEvent {
    event_type: PodLifecycleEventType::PodSync,
    container: None,
};

#[cfg(test)]
mod tests {
    use kubelet_core::PodKey;
    use kubelet_core::runtime::{Sandbox, SandboxState};

    use super::*;

    #[tokio::test]
    async fn no_second_pod_is_kept_that_says_the_same() {
        let listed = |state| {
            let mut pod = RuntimePod::empty("u".into(), PodKey::new("default", "p"));
            let sandbox = ContainerId::new("fake", "1");
            pod.sandboxes.push(Sandbox::new(sandbox, state));
            Arc::new(pod)
        };
        let (ready, ended) = (listed(SandboxState::Ready), listed(SandboxState::NotReady));
        let mut record = Record::new(&ready, Instant::now());
        // Read as it was listed before, which was the same.
        let same = listed(SandboxState::Ready);
        record.list_again(&ready, &same);
        record.inspected(ready.clone(), &same);
        assert!(matches!(record.told, Told::AsListed) && !record.needs_inspection());
        assert_eq!(Arc::strong_count(&ready), 1);
        // It ends, and is as it was before that is told.
        assert!(record.list_again(&ready, &ended));
        assert!(matches!(record.told, Told::Before(_)) && record.needs_inspection());
        assert!(record.list_again(&ended, &ready));
        assert!(matches!(record.told, Told::AsListed) && !record.needs_inspection());
        assert_eq!(Arc::strong_count(&ready), 1);
        assert!(record.list_again(&ready, &ended) && !record.inspected_as_listed(&ended).is_empty());
    }

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
