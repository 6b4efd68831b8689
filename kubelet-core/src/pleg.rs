//! Pod lifecycle events: what changed in the runtime, as a set of pods rather than a queue.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{ContainerId, PodUid, Result};

/// Watches a runtime, writes the [`PodCache`](crate::PodCache) and publishes which pods changed.
///
/// Answers to the kubelet's `pleg.PodLifecycleEventGenerator`.
#[async_trait]
pub trait PodLifecycleEventGenerator: Send + 'static {
    /// A handle for other parts: to subscribe, request a relist, and check its health.
    fn handle(&self) -> Arc<dyn PlegHandle>;

    /// Watches until `shutdown`. All tasks that it spawned have ended when it returns.
    async fn run(self: Box<Self>, shutdown: CancellationToken);
}

/// What other parts can ask of a running PLEG.
pub trait PlegHandle: Send + Sync {
    /// A new subscription. It receives changes from now on.
    fn subscribe(&self) -> PlegEvents;

    /// Requests that this pod is listed and inspected soon, before the next relist (`RequestRelist`).
    fn request_relist(&self, uid: &PodUid);

    /// Asks that the next relist inspect this pod even if nothing in the list changed
    /// (`RequestReinspect`).
    fn request_reinspect(&self, uid: &PodUid);

    /// Whether the runtime was listed recently. The error says how long ago the last list was.
    fn healthy(&self) -> Result<()>;
}

/// What happened to a container (`pleg.PodLifeCycleEventType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PodLifecycleEventType {
    /// It runs now.
    ContainerStarted,
    /// It has ended.
    ContainerDied,
    /// The runtime no longer knows it.
    ContainerRemoved,
    /// Its state is unknown.
    ContainerChanged,
    /// The pod needs a sync for a reason other than a container.
    PodSync,
}

/// One change of a pod (`pleg.PodLifecycleEvent`), without the pod's UID.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodLifecycleEvent {
    /// What happened.
    pub event_type: PodLifecycleEventType,
    /// The container or sandbox it happened to; `None` for [`PodSync`](PodLifecycleEventType::PodSync).
    pub container: Option<ContainerId>,
}

/// The changes of one pod, in order. One or two changes need no allocation of their own. Dereferences to a slice.
pub type PodLifecycleEvents = SmallVec<[PodLifecycleEvent; 2]>;

/// The sending end: passes each event to every subscription.
#[derive(Debug, Default)]
pub struct PlegPublisher {
    subscribers: Mutex<Vec<Weak<Subscription>>>,
}

impl PlegPublisher {
    /// A publisher without subscribers.
    pub fn new() -> Self {
        Self::default()
    }

    /// A new subscription; it ends when it is dropped.
    pub fn subscribe(&self) -> PlegEvents {
        let subscription = Arc::new(Subscription::default());
        self.subscribers.lock().push(Arc::downgrade(&subscription));
        PlegEvents { subscription }
    }

    /// Passes these changes to every subscriber: each pod once, each of its events once. Leaves `changed` empty.
    ///
    /// Never blocks and never drops: an event that a subscriber has not taken yet is not stored twice, so the pending
    /// events are bounded by the number of pods.
    pub fn publish(&self, changed: &mut Vec<(PodUid, PodLifecycleEvents)>) {
        changed.retain(|(_, events)| !events.is_empty());
        if changed.is_empty() {
            return;
        }
        let mut subscribers = self.subscribers.lock();
        subscribers.retain(|subscriber| subscriber.strong_count() > 0);
        if let Some((last, others)) = subscribers.split_last() {
            for subscriber in others {
                tell(subscriber, &mut changed.clone());
            }
            tell(last, changed);
        }
        changed.clear();
    }
}

fn tell(subscriber: &Weak<Subscription>, changed: &mut Vec<(PodUid, PodLifecycleEvents)>) {
    let Some(subscription) = subscriber.upgrade() else {
        return;
    };
    let mut pending = subscription.pending.lock();
    // A subscriber with pending events has been woken already and takes all of them.
    let wakes = pending.queue.is_empty();
    pending.extend(changed);
    drop(pending);
    if wakes {
        subscription.changed.notify_one();
    }
}

/// Subscribers get what is pending, then `None`.
impl Drop for PlegPublisher {
    fn drop(&mut self) {
        for subscription in self
            .subscribers
            .get_mut()
            .drain(..)
            .filter_map(|subscriber| subscriber.upgrade())
        {
            subscription.pending.lock().closed = true;
            subscription.changed.notify_one();
        }
    }
}

/// The receiving end: the pods that changed, each with its changes in order.
#[derive(Debug)]
pub struct PlegEvents {
    subscription: Arc<Subscription>,
}

impl PlegEvents {
    /// Waits for the next pod that changed and takes its events; `None` when the PLEG has ended.
    ///
    /// A pod is queued once, however many changes it has. Pods come in the order of their first change.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is taken until it is returned.
    pub async fn next(&mut self) -> Option<(PodUid, PodLifecycleEvents)> {
        loop {
            {
                let mut pending = self.subscription.pending.lock();
                if let Some(next) = pending.pop() {
                    return Some(next);
                }
                if pending.closed {
                    return None;
                }
            }
            self.subscription.changed.notified().await;
        }
    }

    /// How many pods wait to be taken.
    pub fn len(&self) -> usize {
        self.subscription.pending.lock().queue.len()
    }

    /// Whether no pod waits to be taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[derive(Debug, Default)]
struct Subscription {
    pending: Mutex<Pending>,
    changed: Notify,
}

/// The capacity that is kept: at first all pods change at once, later only a few do.
const KEPT_ROOM: usize = 16;

/// The pods that changed and were not taken yet, each once, in the order of their first change.
#[derive(Debug, Default)]
struct Pending {
    queue: VecDeque<(PodUid, PodLifecycleEvents)>,
    /// The position of each pod in the queue, counted from the start of the subscription. Filled only while pods arrive
    /// at a queue that is not empty, so a subscriber that keeps up causes no look-ups.
    places: Option<FxHashMap<PodUid, usize>>,
    /// How many were taken.
    taken: usize,
    closed: bool,
}

impl Pending {
    fn extend(&mut self, changed: &mut Vec<(PodUid, PodLifecycleEvents)>) {
        if self.queue.is_empty() {
            self.places = None;
            // Moved as a whole. The memory of the old queue is reused for the next changes.
            let emptied = std::mem::replace(&mut self.queue, std::mem::take(changed).into());
            *changed = emptied.into();
            return;
        }
        let (queue, taken) = (&mut self.queue, self.taken);
        let places = self.places.get_or_insert_with(|| {
            let uids = queue.iter().map(|(uid, _)| uid.clone());
            uids.zip(taken..).collect()
        });
        for (uid, events) in changed.drain(..) {
            let place = *places.entry(uid.clone()).or_insert(taken + queue.len());
            if let Some((_, pending)) = queue.get_mut(place - taken) {
                pending.extend(events);
                without_doubles(pending);
            } else {
                queue.push_back((uid, events));
            }
        }
    }

    fn pop(&mut self) -> Option<(PodUid, PodLifecycleEvents)> {
        let next = self.queue.pop_front()?;
        self.taken += 1;
        if self.queue.is_empty() {
            self.queue.shrink_to(KEPT_ROOM);
        }
        if let Some(places) = &mut self.places {
            places.remove(&next.0);
        }
        Some(next)
    }
}

/// Removes duplicates; the first one stays.
fn without_doubles(events: &mut PodLifecycleEvents) {
    let mut index = 1;
    while index < events.len() {
        let (before, after) = events.split_at(index);
        if before.contains(&after[0]) {
            events.remove(index);
        } else {
            index += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use proptest::prelude::*;

    use super::*;

    fn event(container: &str, event_type: PodLifecycleEventType) -> PodLifecycleEvent {
        PodLifecycleEvent {
            event_type,
            container: Some(ContainerId::new("fake", container)),
        }
    }

    #[tokio::test]
    async fn a_slow_subscriber_gets_every_pod_once_and_nothing_is_lost() {
        use PodLifecycleEventType::*;
        let publisher = PlegPublisher::new();
        let publish = |changed: &[(&str, PodLifecycleEventType)]| {
            let changed = changed.iter();
            let mut changed = changed
                .map(|(uid, what)| ((*uid).into(), [event(uid, *what)].into_iter().collect()))
                .collect();
            publisher.publish(&mut changed);
            assert!(changed.is_empty());
        };
        let mut slow = publisher.subscribe();
        for _ in 0..10_000 {
            publish(&[("a", ContainerStarted)]);
            publish(&[("b", ContainerStarted), ("a", ContainerDied)]);
        }
        assert_eq!(slow.len(), 2);
        let (uid, events) = slow.next().await.unwrap();
        assert_eq!(uid.as_str(), "a");
        assert_eq!(*events, [event("a", ContainerStarted), event("a", ContainerDied)]);
        assert_eq!(slow.next().await.unwrap().0.as_str(), "b");
        publish(&[("a", ContainerRemoved)]);
        drop(publisher);
        assert_eq!(*slow.next().await.unwrap().1, [event("a", ContainerRemoved)]);
        assert!(slow.next().await.is_none());
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// Of so many pods, from this one on.
        Publish(u8, u8, PodLifecycleEventType),
        Take,
    }

    fn step() -> impl Strategy<Value = Step> {
        use PodLifecycleEventType::*;
        let event_type = prop_oneof![
            Just(ContainerStarted),
            Just(ContainerDied),
            Just(ContainerRemoved)
        ];
        prop_oneof![
            (0..6u8, 1..4u8, event_type).prop_map(|(first, count, what)| Step::Publish(first, count, what)),
            Just(Step::Take),
        ]
    }

    proptest! {
        /// However publishing and taking alternate: as if each event were looked for in all that is pending.
        #[test]
        fn what_is_pending_is_a_set_in_order(steps in prop::collection::vec(step(), 0..60)) {
            let (publisher, mut model) = (PlegPublisher::new(), Vec::<(PodUid, PodLifecycleEvents)>::new());
            let mut events = publisher.subscribe();
            for step in steps {
                match step {
                    Step::Publish(first, count, what) => {
                        let uids = (first..first + count).map(|uid| uid.to_string());
                        let mut changed: Vec<(PodUid, PodLifecycleEvents)> =
                            uids.map(|uid| (PodUid::from(&*uid), [event(&uid, what)].into_iter().collect())).collect();
                        for (uid, told) in &changed {
                            match model.iter_mut().find(|(pending, _)| pending == uid) {
                                Some((_, pending)) if pending.contains(&told[0]) => {}
                                Some((_, pending)) => pending.extend(told.iter().cloned()),
                                None => model.push((uid.clone(), told.clone())),
                            }
                        }
                        publisher.publish(&mut changed);
                    }
                    Step::Take => {
                        let taken = events.next().now_or_never();
                        let expected = (!model.is_empty()).then(|| Some(model.remove(0)));
                        prop_assert_eq!(taken, expected);
                    }
                }
                prop_assert_eq!(events.len(), model.len());
            }
        }
    }
}
