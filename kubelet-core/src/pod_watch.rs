//! Watches of the desired pods, for local subscribers.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use crate::dirty_pods::DirtyPods;
use crate::{PodManager, PodUid};

/// Reports which desired pods were added, changed or removed. It starts with all pods that exist when it is created
/// ([`PodManager::watch`]).
///
/// A pod is queued once, however often it changed: a slow subscriber may miss intermediate states but never the last
/// one, and its queue is bounded by the number of pods.
#[derive(Debug)]
pub struct PodWatch {
    pods: PodManager,
    changed: Arc<DirtyPods>,
}

impl PodWatch {
    /// Waits for the next change: the UID, and the current pod, or `None` if it was removed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn next(&mut self) -> (PodUid, Option<Arc<Pod>>) {
        let uid = self.changed.next().await;
        let pod = self.pods.pod(&uid);
        (uid, pod)
    }

    /// The number of queued pods.
    pub fn len(&self) -> usize {
        self.changed.len()
    }

    /// Whether no pod is queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl PodManager {
    /// Watches the desired pods: all current pods first, then each change; without mirrors. Any number of watches may
    /// exist, each at its own pace.
    pub fn watch(&self) -> PodWatch {
        PodWatch {
            pods: self.clone(),
            changed: self.subscribe(),
        }
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
