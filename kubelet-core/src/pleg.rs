//! Pod lifecycle events: what changed in the runtime, told as a set of pods and never as a queue.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{ContainerId, PodUid, Result};

/// Watches a runtime, writes the [`PodCache`](crate::PodCache) and tells which pods changed.
///
/// Answers to the kubelet's `pleg.PodLifecycleEventGenerator`.
#[async_trait]
pub trait PodLifecycleEventGenerator: Send + 'static {
    /// A handle for everyone else: subscribe, ask for a relist, ask for its health.
    fn handle(&self) -> Arc<dyn PlegHandle>;

    /// Watches until `shutdown`. All tasks that it started have ended when it returns.
    async fn run(self: Box<Self>, shutdown: CancellationToken);
}

/// What others may ask of a running PLEG.
pub trait PlegHandle: Send + Sync {
    /// A new subscription; it tells of what changes from now on.
    fn subscribe(&self) -> PlegEvents;

    /// Asks that this one pod be listed and inspected soon, without waiting for the next relist
    /// (`RequestRelist`).
    fn request_relist(&self, uid: &PodUid);

    /// Asks that the next relist inspect this pod even if nothing in the list changed
    /// (`RequestReinspect`).
    fn request_reinspect(&self, uid: &PodUid);

    /// Whether the runtime could be listed lately; the error says since when not.
    fn healthy(&self) -> Result<()>;
}

/// What happened to a container (`pleg.PodLifeCycleEventType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PodLifecycleEventType {
    /// It runs now.
    ContainerStarted,
    /// It has ended.
    ContainerDied,
    /// The runtime does not know it any more.
    ContainerRemoved,
    /// Its state cannot be told.
    ContainerChanged,
    /// The pod should be synced, for no container's sake.
    PodSync,
}

/// One change of one pod (`pleg.PodLifecycleEvent`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodLifecycleEvent {
    /// The pod.
    pub uid: PodUid,
    /// What happened.
    pub event_type: PodLifecycleEventType,
    /// The container or sandbox it happened to; `None` for [`PodSync`](PodLifecycleEventType::PodSync).
    pub container: Option<ContainerId>,
}

/// The sending end: hands each event to every subscription.
#[derive(Debug, Default)]
pub struct PlegPublisher {
    subscribers: Mutex<Vec<Weak<Subscription>>>,
}

impl PlegPublisher {
    /// A publisher with no subscriber yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A new subscription; it ends when it is dropped.
    pub fn subscribe(&self) -> PlegEvents {
        let subscription = Arc::new(Subscription::default());
        self.subscribers.lock().push(Arc::downgrade(&subscription));
        PlegEvents { subscription }
    }

    /// Tells every subscriber of these events. Never blocks and never drops: an event that a subscriber has
    /// not taken yet is not stored a second time, so that what is pending is bounded by what exists.
    pub fn publish(&self, events: Vec<PodLifecycleEvent>) {
        if events.is_empty() {
            return;
        }
        let mut subscribers = self.subscribers.lock();
        subscribers.retain(|subscriber| subscriber.strong_count() > 0);
        if let Some((last, others)) = subscribers.split_last() {
            for subscriber in others {
                tell(subscriber, events.clone());
            }
            tell(last, events);
        }
    }
}

fn tell(subscriber: &Weak<Subscription>, events: Vec<PodLifecycleEvent>) {
    let Some(subscription) = subscriber.upgrade() else {
        return;
    };
    let mut pending = subscription.pending.lock();
    // Whoever has something to take was woken already, and takes all there is.
    let wakes = pending.order.is_empty();
    pending.extend(events);
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

/// The receiving end: the pods that changed, each with its changes in their order.
#[derive(Debug)]
pub struct PlegEvents {
    subscription: Arc<Subscription>,
}

impl PlegEvents {
    /// Waits for the next pod that changed and takes its events; `None` when the PLEG has ended.
    ///
    /// A pod stands in the queue once, however much of it changed; pods come in the order in which they
    /// first changed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is taken until it is returned.
    pub async fn next(&mut self) -> Option<(PodUid, Vec<PodLifecycleEvent>)> {
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
        self.subscription.pending.lock().order.len()
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

#[derive(Debug, Default)]
struct Pending {
    order: VecDeque<PodUid>,
    events: FxHashMap<PodUid, Vec<PodLifecycleEvent>>,
    closed: bool,
}

impl Pending {
    /// They are mostly all of one pod, of which nothing is pending: then they are kept as they came.
    fn extend(&mut self, mut events: Vec<PodLifecycleEvent>) {
        let Some(uid) = events.first().map(|event| event.uid.clone()) else {
            return;
        };
        if events.iter().all(|event| event.uid == uid)
            && let Entry::Vacant(vacant) = self.events.entry(uid.clone())
        {
            self.order.push_back(uid);
            without_doubles(&mut events);
            vacant.insert(events);
            return;
        }
        for event in events {
            let of_pod = self.events.entry(event.uid.clone()).or_insert_with(|| {
                self.order.push_back(event.uid.clone());
                Vec::new()
            });
            if !of_pod.contains(&event) {
                of_pod.push(event);
            }
        }
    }

    fn pop(&mut self) -> Option<(PodUid, Vec<PodLifecycleEvent>)> {
        let uid = self.order.pop_front()?;
        let events = self.events.remove(&uid).unwrap_or_default();
        Some((uid, events))
    }
}

fn without_doubles(events: &mut Vec<PodLifecycleEvent>) {
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
    use super::*;

    fn event(uid: &str, event_type: PodLifecycleEventType) -> PodLifecycleEvent {
        PodLifecycleEvent {
            uid: uid.into(),
            event_type,
            container: Some(ContainerId::new("fake", "c")),
        }
    }

    #[tokio::test]
    async fn a_slow_subscriber_gets_every_pod_once_and_nothing_is_lost() {
        use PodLifecycleEventType::*;
        let publisher = PlegPublisher::new();
        let mut slow = publisher.subscribe();
        for _ in 0..10_000 {
            publisher.publish(vec![event("a", ContainerStarted), event("a", ContainerStarted)]);
            publisher.publish(vec![event("b", ContainerStarted), event("a", ContainerDied)]);
        }
        assert_eq!(slow.len(), 2);
        let (uid, events) = slow.next().await.unwrap();
        assert_eq!(uid.as_str(), "a");
        assert_eq!(events, [event("a", ContainerStarted), event("a", ContainerDied)]);
        assert_eq!(slow.next().await.unwrap().0.as_str(), "b");
        publisher.publish(vec![event("a", ContainerRemoved)]);
        drop(publisher);
        assert_eq!(slow.next().await.unwrap().1, [event("a", ContainerRemoved)]);
        assert!(slow.next().await.is_none());
    }
}
