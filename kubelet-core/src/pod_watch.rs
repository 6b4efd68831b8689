//! The desired pods as they change, for any number of local subscribers.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{PodManager, PodUid};

/// Tells which desired pods came, changed or went; first of all that there were when it was made
/// ([`PodManager::watch`]).
///
/// A pod stands in the queue once, however often it changed: a slow subscriber misses steps in between and never the
/// last one, and what waits for it is bounded by what there is.
#[derive(Debug)]
pub struct PodWatch {
    pods: PodManager,
    subscription: Arc<Subscription>,
}

impl PodWatch {
    pub(crate) fn new(pods: PodManager, subscription: Arc<Subscription>) -> Self {
        Self { pods, subscription }
    }

    /// Waits for the next change: the UID, and the pod as it is now, or `None` if it is not desired any more.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn next(&mut self) -> (PodUid, Option<Arc<Pod>>) {
        loop {
            let next = self.subscription.pending.lock().pop();
            match next {
                Some(uid) => {
                    let pod = self.pods.pod(&uid);
                    return (uid, pod);
                }
                None => self.subscription.changed.notified().await,
            }
        }
    }

    /// How many pods wait to be told of.
    pub fn len(&self) -> usize {
        self.subscription.pending.lock().queue.len()
    }

    /// Whether all was told.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One subscriber's queue.
#[derive(Debug, Default)]
pub(crate) struct Subscription {
    pending: Mutex<Pending>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Pending {
    queue: VecDeque<PodUid>,
    queued: HashSet<PodUid>,
}

impl Pending {
    fn push(&mut self, uid: &PodUid) {
        if self.queued.insert(uid.clone()) {
            self.queue.push_back(uid.clone());
        }
    }

    fn pop(&mut self) -> Option<PodUid> {
        let uid = self.queue.pop_front()?;
        self.queued.remove(&uid);
        Some(uid)
    }
}

/// All who watch; those who are gone are passed over.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    subscribers: Vec<Weak<Subscription>>,
}

impl Subscriptions {
    /// A new one, to which these pods are news.
    pub(crate) fn add<'a>(&mut self, pods: impl Iterator<Item = &'a PodUid>) -> Arc<Subscription> {
        let subscription = Arc::new(Subscription::default());
        let mut uids: Vec<&PodUid> = pods.collect();
        // In one order in every run.
        uids.sort_unstable();
        for uid in uids {
            subscription.pending.lock().push(uid);
        }
        self.subscribers.push(Arc::downgrade(&subscription));
        subscription
    }

    pub(crate) fn tell(&mut self, uid: &PodUid) {
        self.subscribers.retain(|subscriber| {
            let Some(subscription) = subscriber.upgrade() else {
                return false;
            };
            subscription.pending.lock().push(uid);
            subscription.changed.notify_one();
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PodExt;
    use futures::FutureExt;

    fn pod(uid: &str, generation: i64) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.name = Some(uid.into());
        pod.metadata.uid = Some(uid.into());
        pod.metadata.generation = Some(generation);
        Arc::new(pod)
    }

    fn told(watch: &mut PodWatch) -> Option<(String, Option<i64>)> {
        let (uid, pod) = watch.next().now_or_never()?;
        Some((uid.to_string(), pod.and_then(|pod| pod.metadata.generation)))
    }

    #[test]
    fn each_subscriber_hears_of_each_pod_once_and_of_its_last_state() {
        let pods = PodManager::new();
        pods.set_pod(pod("b", 1));
        pods.set_pod(pod("a", 1));
        let (mut quick, mut slow) = (pods.watch(), pods.watch());
        assert_eq!(told(&mut quick), Some(("a".into(), Some(1))));
        assert_eq!(told(&mut quick), Some(("b".into(), Some(1))));
        assert_eq!(told(&mut quick), None);

        (2..1000).for_each(|generation| pods.set_pod(pod("b", generation)));
        pods.remove_pod(&pod("a", 1));
        pods.set_pod(pod("c", 1));
        assert_eq!((quick.len(), slow.len()), (3, 3));
        assert_eq!(told(&mut slow), Some(("a".into(), None)));
        assert_eq!(told(&mut slow), Some(("b".into(), Some(999))));
        assert_eq!(told(&mut slow), Some(("c".into(), Some(1))));
        assert!(slow.is_empty());
        assert_eq!(told(&mut quick), Some(("b".into(), Some(999))));
    }

    #[tokio::test]
    async fn who_waits_is_woken_and_mirrors_are_no_news() {
        let pods = PodManager::new();
        let mut watch = pods.watch();
        let mut mirror = Pod::clone(&pod("mirror", 1));
        mirror.metadata.annotations = Some([("kubernetes.io/config.mirror".into(), "h".into())].into());
        pods.set_pod(Arc::new(mirror));
        let (told, ()) = tokio::join!(watch.next(), async { pods.set_pod(pod("a", 1)) });
        assert_eq!(told.0.as_str(), "a");
        assert_eq!(told.1.map(|pod| pod.uid()), Some("a".into()));
    }
}
