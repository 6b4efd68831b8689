//! The pods that the sources list: what should run, and the mirrors of static pods.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use crate::{PodExt, PodKey, PodUid};

/// The desired pods by UID and by name, as the sync loop last heard of them. A cheap handle; only the sync
/// loop changes it.
///
/// A *mirror pod* is the API server's image of a static pod: it bears the same name, another UID, and is
/// never run. Answers to the kubelet's `pod.Manager`.
#[derive(Clone, Debug, Default)]
pub struct PodManager {
    inner: Arc<RwLock<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    pods: FxHashMap<PodUid, Arc<Pod>>,
    by_key: FxHashMap<PodKey, PodUid>,
    mirrors: FxHashMap<PodUid, Arc<Pod>>,
    mirrors_by_key: FxHashMap<PodKey, PodUid>,
}

impl PodManager {
    /// No pod is known.
    pub fn new() -> Self {
        Self::default()
    }

    /// The pod is new or has changed (`AddPod`, `UpdatePod`). Mirror pods are told by their annotation.
    pub fn set_pod(&self, pod: Arc<Pod>) {
        let (uid, key) = (pod.uid(), pod.key());
        let mut inner = self.inner.write();
        let inner = &mut *inner;
        let (pods, by_key) = match pod.is_mirror() {
            true => (&mut inner.mirrors, &mut inner.mirrors_by_key),
            false => (&mut inner.pods, &mut inner.by_key),
        };
        by_key.insert(key, uid.clone());
        pods.insert(uid, pod);
    }

    /// The pod is gone from its source (`RemovePod`).
    pub fn remove_pod(&self, pod: &Pod) {
        let (uid, key) = (pod.uid(), pod.key());
        let mut inner = self.inner.write();
        let inner = &mut *inner;
        let (pods, by_key) = match pod.is_mirror() {
            true => (&mut inner.mirrors, &mut inner.mirrors_by_key),
            false => (&mut inner.pods, &mut inner.by_key),
        };
        pods.remove(&uid);
        // The name may be another pod's by now.
        if by_key.get(&key) == Some(&uid) {
            by_key.remove(&key);
        }
    }

    /// The pod of this UID (`GetPodByUID`); mirrors are not looked at.
    pub fn pod(&self, uid: &PodUid) -> Option<Arc<Pod>> {
        self.inner.read().pods.get(uid).cloned()
    }

    /// The pod that last came under this name (`GetPodByFullName`).
    pub fn pod_by_key(&self, key: &PodKey) -> Option<Arc<Pod>> {
        let inner = self.inner.read();
        inner.pods.get(inner.by_key.get(key)?).cloned()
    }

    /// All pods but the mirrors (`GetPods`).
    pub fn pods(&self) -> Vec<Arc<Pod>> {
        self.inner.read().pods.values().cloned().collect()
    }

    /// How many pods there are, mirrors not counted.
    pub fn len(&self) -> usize {
        self.inner.read().pods.len()
    }

    /// Whether there is no pod.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The mirror of a static pod (`GetMirrorPodByPod`).
    pub fn mirror_of(&self, pod: &Pod) -> Option<Arc<Pod>> {
        let inner = self.inner.read();
        inner.mirrors.get(inner.mirrors_by_key.get(&pod.key())?).cloned()
    }

    /// The static pod that this mirror shows (`GetPodByMirrorPod`).
    pub fn pod_of_mirror(&self, mirror: &Pod) -> Option<Arc<Pod>> {
        self.pod_by_key(&mirror.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations;

    fn pod(name: &str, uid: &str, annotation: Option<(&str, &str)>) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.namespace = Some("ns".into());
        pod.metadata.name = Some(name.into());
        pod.metadata.uid = Some(uid.into());
        pod.metadata.annotations =
            annotation.map(|(key, value)| [(key.to_owned(), value.to_owned())].into_iter().collect());
        Arc::new(pod)
    }

    #[test]
    fn a_mirror_is_found_by_its_pod_and_never_among_the_pods() {
        let manager = PodManager::new();
        let fixed = pod("web", "static", Some((annotations::CONFIG_SOURCE, "file")));
        let mirror = pod("web", "mirror", Some((annotations::CONFIG_MIRROR, "hash")));
        manager.set_pod(mirror.clone());
        assert!(manager.is_empty() && manager.pod_of_mirror(&mirror).is_none());
        manager.set_pod(fixed.clone());
        assert_eq!(manager.pods(), std::slice::from_ref(&fixed));
        assert_eq!(manager.mirror_of(&fixed), Some(mirror.clone()));
        assert_eq!(manager.pod_of_mirror(&mirror), Some(fixed.clone()));
        manager.remove_pod(&mirror);
        assert_eq!((manager.len(), manager.mirror_of(&fixed)), (1, None));
    }

    #[test]
    fn removing_a_former_pod_leaves_the_next_of_its_name() {
        let manager = PodManager::new();
        let (old, new) = (pod("web", "1", None), pod("web", "2", None));
        manager.set_pod(old.clone());
        manager.set_pod(new.clone());
        manager.remove_pod(&old);
        assert_eq!(manager.pod_by_key(&new.key()), Some(new));
        assert!(manager.pod(&old.uid()).is_none());
    }
}
