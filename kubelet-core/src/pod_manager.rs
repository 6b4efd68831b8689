//! The pods that the sources list: what should run, and the mirrors of static pods.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use crate::annotations::{CONFIG_HASH, CONFIG_MIRROR};
use crate::changes::Changes;
use crate::dirty_pods::{DirtyPods, Subscriptions};
use crate::{PodExt, PodKey, PodUid};

/// The desired pods by UID and by name, as the sync loop has received them. A cheap handle; only the sync loop changes
/// it.
///
/// A *mirror pod* represents a static pod on the API server: it has the same name and another UID, and is never run.
/// Answers to the kubelet's `pod.Manager`.
#[derive(Clone, Debug, Default)]
pub struct PodManager {
    inner: Arc<RwLock<Inner>>,
    changes: Changes,
}

#[derive(Debug, Default)]
struct Inner {
    pods: FxHashMap<PodUid, Arc<Pod>>,
    by_key: FxHashMap<PodKey, PodUid>,
    mirrors: FxHashMap<PodUid, Arc<Pod>>,
    mirrors_by_key: FxHashMap<PodKey, PodUid>,
    subscriptions: Subscriptions,
}

impl PodManager {
    /// An empty manager.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or updates a pod (`AddPod`, `UpdatePod`). Mirror pods are recognised by their annotation.
    pub fn set_pod(&self, pod: Arc<Pod>) {
        let (uid, key) = (pod.uid(), pod.key());
        let mut inner = self.inner.write();
        let inner = &mut *inner;
        let (pods, by_key) = match pod.is_mirror() {
            true => (&mut inner.mirrors, &mut inner.mirrors_by_key),
            false => (&mut inner.pods, &mut inner.by_key),
        };
        if pods.get(&uid).is_none_or(|before| place(before) != place(&pod)) {
            self.changes.note();
        }
        let is_mirror = pod.is_mirror();
        // All maps share one UID text.
        let uid = pods.get_key_value(&uid).map_or(uid, |(uid, _)| uid.clone());
        by_key.insert(key, uid.clone());
        pods.insert(uid.clone(), pod);
        if !is_mirror {
            inner.subscriptions.push(&uid);
        }
    }

    /// Removes a pod that is gone from its source (`RemovePod`).
    pub fn remove_pod(&self, pod: &Pod) {
        let (uid, key) = (pod.uid(), pod.key());
        let mut inner = self.inner.write();
        self.changes.note();
        let inner = &mut *inner;
        let (pods, by_key) = match pod.is_mirror() {
            true => (&mut inner.mirrors, &mut inner.mirrors_by_key),
            false => (&mut inner.pods, &mut inner.by_key),
        };
        pods.remove(&uid);
        // The name may belong to another pod by now.
        if by_key.get(&key) == Some(&uid) {
            by_key.remove(&key);
        }
        if !pod.is_mirror() {
            inner.subscriptions.push(&uid);
        }
    }

    /// The set of changed pods, for one more watcher. It begins with all pods.
    pub(crate) fn subscribe(&self) -> Arc<DirtyPods> {
        let mut inner = self.inner.write();
        let inner = &mut *inner;
        inner.subscriptions.add(inner.pods.keys())
    }

    /// Counts changes of the set of pods, and of everything that housekeeping depends on; mirrors included.
    pub(crate) fn changes(&self) -> &Changes {
        &self.changes
    }

    /// The pod with this UID (`GetPodByUID`), not a mirror.
    pub fn pod(&self, uid: &PodUid) -> Option<Arc<Pod>> {
        self.inner.read().pods.get(uid).cloned()
    }

    /// The latest pod with this name (`GetPodByFullName`).
    pub fn pod_by_key(&self, key: &PodKey) -> Option<Arc<Pod>> {
        let inner = self.inner.read();
        inner.pods.get(inner.by_key.get(key)?).cloned()
    }

    /// All pods except mirrors (`GetPods`).
    pub fn pods(&self) -> Vec<Arc<Pod>> {
        self.inner.read().pods.values().cloned().collect()
    }

    /// The UIDs of all pods except mirrors.
    pub(crate) fn uids(&self) -> HashSet<PodUid> {
        self.inner.read().pods.keys().cloned().collect()
    }

    /// The number of pods, without mirrors.
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

    /// The static pod of this mirror (`GetPodByMirrorPod`).
    pub fn pod_of_mirror(&self, mirror: &Pod) -> Option<Arc<Pod>> {
        self.pod_by_key(&mirror.key())
    }

    /// All mirrors, also those without a static pod.
    pub fn mirrors(&self) -> Vec<Arc<Pod>> {
        self.inner.read().mirrors.values().cloned().collect()
    }

    /// The mirrors of static pods that no source lists any more, sorted by name (`GetPodsAndMirrorPods`).
    pub fn orphaned_mirrors(&self) -> Vec<Arc<Pod>> {
        let inner = self.inner.read();
        let orphans = inner.mirrors.values();
        let mut orphans: Vec<Arc<Pod>> = orphans
            .filter(|mirror| !inner.by_key.contains_key(&mirror.key()))
            .cloned()
            .collect();
        orphans.sort_by_cached_key(|mirror| (mirror.key(), mirror.uid()));
        orphans
    }

    /// The UID under which the pod runs: for a mirror, that of its static pod; for others, the same UID
    /// (`TranslatePodUID`).
    pub fn translate_pod_uid(&self, uid: &PodUid) -> PodUid {
        let inner = self.inner.read();
        let translated = inner
            .mirrors
            .get(uid)
            .and_then(|mirror| inner.by_key.get(&mirror.key()));
        translated.unwrap_or(uid).clone()
    }

    /// Maps the UID of each static pod to the UID of its mirror, if it has one (`GetUIDTranslations`).
    pub fn uid_translations(&self) -> FxHashMap<PodUid, Option<PodUid>> {
        let inner = self.inner.read();
        let static_pods = inner.pods.iter().filter(|(_, pod)| pod.is_static());
        static_pods
            .map(|(uid, pod)| (uid.clone(), inner.mirrors_by_key.get(&pod.key()).cloned()))
            .collect()
    }
}

/// Everything of a pod or mirror that housekeeping depends on.
fn place(pod: &Pod) -> impl PartialEq + '_ {
    let ephemeral = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.ephemeral_containers.as_ref());
    (
        (&pod.metadata.namespace, &pod.metadata.name),
        pod.is_deleting(),
        pod.is_terminal_phase(),
        (pod.is_static(), pod.annotation(CONFIG_HASH)),
        pod.annotation(CONFIG_MIRROR),
        ephemeral.map_or(0, Vec::len),
    )
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

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
    fn the_uid_of_a_mirror_is_translated_whoever_comes_first() {
        let fixed = pod("web", "static", Some((annotations::CONFIG_SOURCE, "file")));
        let mirror = pod("web", "mirror", Some((annotations::CONFIG_MIRROR, "hash")));
        let of_api = pod("api", "api", Some((annotations::CONFIG_SOURCE, "api")));
        for order in [[&fixed, &mirror, &of_api], [&of_api, &mirror, &fixed]] {
            let manager = PodManager::new();
            order.into_iter().for_each(|pod| manager.set_pod(pod.clone()));
            for (uid, translated) in [
                ("mirror", "static"),
                ("static", "static"),
                ("api", "api"),
                ("", ""),
            ] {
                assert_eq!(manager.translate_pod_uid(&uid.into()).as_str(), translated);
            }
            let translations = manager.uid_translations();
            assert_eq!(translations.len(), 1, "only static pods have a mirror");
            assert_eq!(translations.get("static"), Some(&Some("mirror".into())));

            manager.remove_pod(&mirror);
            assert_eq!(manager.translate_pod_uid(&"mirror".into()).as_str(), "mirror");
            assert_eq!(manager.uid_translations().get("static"), Some(&None));
        }
    }

    #[test]
    fn a_mirror_is_an_orphan_while_no_pod_bears_its_name() {
        let manager = PodManager::new();
        let fixed = pod("web", "static", Some((annotations::CONFIG_SOURCE, "file")));
        let mirror = pod("web", "mirror", Some((annotations::CONFIG_MIRROR, "hash")));
        let other = pod("db", "other", Some((annotations::CONFIG_MIRROR, "hash")));
        for pod in [&fixed, &mirror, &other] {
            manager.set_pod(pod.clone());
        }
        assert_eq!(manager.orphaned_mirrors(), std::slice::from_ref(&other));
        manager.remove_pod(&fixed);
        assert_eq!(manager.orphaned_mirrors(), [other, mirror]);
        assert_eq!(manager.mirrors().len(), 2);
    }

    #[test]
    fn changes_are_of_what_housekeeping_goes_by() {
        fn phase(pod: &mut Pod, phase: &str) {
            pod.status.get_or_insert_default().phase = Some(phase.into());
        }
        let manager = PodManager::new();
        let web = pod("web", "1", None);
        let with = |change: fn(&mut Pod)| {
            let mut pod = Pod::clone(&web);
            change(&mut pod);
            Arc::new(pod)
        };
        let changes = manager.changes().clone();
        let mut before = changes.count();
        for (pod, is_change) in [
            (web.clone(), true),
            (web.clone(), false),
            (with(|pod| phase(pod, "Running")), false),
            (
                with(|pod| pod.metadata.labels = Some([("a".into(), "b".into())].into())),
                false,
            ),
            (with(|pod| phase(pod, "Failed")), true),
            (with(|pod| phase(pod, "Succeeded")), false),
            (
                with(|pod| pod.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH))),
                true,
            ),
            (web.clone(), true),
        ] {
            manager.set_pod(pod.clone());
            assert_eq!(changes.count() > before, is_change, "{pod:?}");
            before = changes.count();
        }
        manager.remove_pod(&web);
        assert!(changes.count() > before);
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
