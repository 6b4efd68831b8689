//! What the PLEG keeps of one pod: what it published, what changed since, and the state of its inspection.

use std::sync::Arc;
use std::time::Duration;

use futures::future::AbortHandle;
use kubelet_core::runtime::{PodStatus, RuntimePod};
use kubelet_core::{ContainerId, PodLifecycleEvent, PodLifecycleEventType, PodLifecycleEvents};
use tokio::time::Instant;

use crate::transition;

/// The longest wait before the status of a pod that could not be read is tried again.
const MAX_BACK_OFF: Duration = Duration::from_secs(10);

/// The record of one pod (`podRecord`). [`ListedPods`](crate::listed_pods::ListedPods) keeps the pod as listed last beside
/// it; the methods get that pod as `listed`.
#[derive(Debug)]
pub(crate) struct Record {
    published: Published,
    /// When it was listed alone, or first, or otherwise than before.
    pub(crate) listed_at: Instant,
    /// Whether the pod as listed last differs from what was published.
    differs: bool,
    /// Containers that came and went since the last events: no list that is kept has them, but they have ended.
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

/// The pod as it was when its events were last published. It stays as it is while the status cannot be read, so that the
/// changes of that time are published later.
#[derive(Debug)]
enum Published {
    Nothing,
    AsListed,
    Before(Arc<RuntimePod>),
}

impl Published {
    fn pod<'a>(&'a self, listed: &'a RuntimePod) -> Option<&'a RuntimePod> {
        match self {
            Published::Nothing => None,
            Published::AsListed => Some(listed),
            Published::Before(pod) => Some(pod),
        }
    }
}

impl Record {
    pub(crate) fn new(listed: &RuntimePod, listed_at: Instant) -> Self {
        Self {
            published: Published::Nothing,
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
        if let Published::AsListed = self.published {
            self.published = Published::Before(before.clone());
            self.differs = true;
        } else {
            self.miss(before, Some(listed));
            self.compare_with_published(listed);
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

    /// Whether no inspection is under way and the last one did not fail.
    pub(crate) fn is_settled(&self) -> bool {
        self.inspection.is_none() && self.failures == 0
    }

    /// The status of the pod was read, which was listed like `read` then: returns the events that are due now.
    pub(crate) fn inspected(
        &mut self,
        read: Arc<RuntimePod>,
        listed: &Arc<RuntimePod>,
    ) -> PodLifecycleEvents {
        if Arc::ptr_eq(&read, listed) {
            return self.inspected_as_listed(listed);
        }
        let events = transition::events(self.published.pod(listed), Some(&read));
        // The comparison finds what happens to the containers of this pod, now and later.
        self.missed
            .retain(|container| !transition::has(Some(&read), container));
        self.published = Published::Before(read);
        self.compare_with_published(listed);
        self.settled(events)
    }

    /// As [`inspected`](Self::inspected), of the pod as it was listed last.
    pub(crate) fn inspected_as_listed(&mut self, listed: &RuntimePod) -> PodLifecycleEvents {
        let events = transition::events(self.published.pod(listed), Some(listed));
        self.missed
            .retain(|container| !transition::has(Some(listed), container));
        self.published = Published::AsListed;
        self.differs = false;
        self.settled(events)
    }

    fn settled(&mut self, mut events: PodLifecycleEvents) -> PodLifecycleEvents {
        self.inspection = None;
        self.failures = 0;
        self.retry_at = None;
        self.add_missed(&mut events);
        if events.is_empty() {
            events.push(POD_SYNC);
        }
        events
    }

    /// The status could not be read: everything stays as it is, and is published later.
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
        let mut events = transition::events(self.published.pod(listed), None);
        self.miss(listed, None);
        self.add_missed(&mut events);
        if events.is_empty() && owes_sync {
            events.push(POD_SYNC);
        }
        events
    }

    fn compare_with_published(&mut self, listed: &RuntimePod) {
        self.differs = transition::differ(self.published.pod(listed), Some(listed));
        if let (false, Published::Before(_)) = (self.differs, &self.published) {
            // No second one is kept.
            self.published = Published::AsListed;
        }
    }

    /// Remembers the containers of `before`, the pod as listed last until now, that neither what was published nor `now`
    /// has.
    fn miss(&mut self, before: &RuntimePod, now: Option<&RuntimePod>) {
        for container in transition::members(before) {
            if !transition::has(self.published.pod(before), container)
                && !transition::has(now, container)
                && !self.missed.contains(container)
            {
                self.missed.push(container.clone());
            }
        }
    }

    fn add_missed(&mut self, events: &mut PodLifecycleEvents) {
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
        assert!(matches!(record.published, Published::AsListed) && !record.needs_inspection());
        assert_eq!(Arc::strong_count(&ready), 1);
        // It ends, and is as it was before that is told.
        assert!(record.list_again(&ready, &ended));
        assert!(matches!(record.published, Published::Before(_)) && record.needs_inspection());
        assert!(record.list_again(&ended, &ready));
        assert!(matches!(record.published, Published::AsListed) && !record.needs_inspection());
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
