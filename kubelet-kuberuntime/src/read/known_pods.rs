//! Builds pods from a list of sandboxes and a list of containers. Pods that did not change are reused from the last
//! lists.

use std::sync::Arc;

use kubelet_core::runtime::{Container, RuntimePod, Sandbox};
use kubelet_core::{ContainerId, PodKey, PodUid, labels};
use rustc_hash::FxHashMap;

use crate::config::CONTAINER_HASH;
use crate::read::{container_state, sandbox_state, timestamp};
use kubelet_cri::{ListedContainer, ListedSandbox};

/// The pods of the last list.
///
/// A pod that did not change keeps its `Arc`. The comparison allocates nothing, and a later comparison, as in a PLEG,
/// only compares pointers.
#[derive(Default)]
pub(crate) struct KnownPods {
    pods: FxHashMap<PodUid, Known>,
    sorted: Vec<Arc<RuntimePod>>,
    /// The number of lists.
    list: u64,
}

/// A pod, and its entries in the present list.
struct Known {
    pod: Arc<RuntimePod>,
    /// The number of the last list that had it.
    list: u64,
    /// Which members were listed unchanged, one bit each: first the sandboxes, then the containers.
    as_before: u64,
    differs: bool,
}

impl KnownPods {
    /// Pods newest first, by the creation time of their first listed sandbox. In each pod, sandboxes and containers are
    /// newest first. Sandboxes and containers without the kubelet's labels are skipped.
    ///
    /// Runtimes list in any order. Each pod is sorted by itself, which moves less than sorting everything.
    pub(crate) fn take_in(
        &mut self,
        runtime: &str,
        sandboxes: &[ListedSandbox],
        containers: &[ListedContainer],
    ) -> Vec<Arc<RuntimePod>> {
        self.list += 1;
        for sandbox in sandboxes {
            if let Some(uid) = of_kubelet_sandbox(sandbox) {
                self.see(uid, |known| known.see_sandbox(sandbox));
            }
        }
        for container in containers {
            if let Some(uid) = of_kubelet_container(container) {
                self.see(uid, |known| known.see_container(container));
            }
        }
        let (list, before) = (self.list, self.pods.len());
        self.pods.retain(|_, known| known.list == list);
        let mut differs = self.pods.len() != before;
        for known in self.pods.values_mut() {
            known.differs |= !known.is_whole();
            if known.differs {
                differs = true;
                known.pod = Arc::new(RuntimePod::empty(known.pod.uid.clone(), PodKey::new("", "")));
            }
        }
        if differs {
            self.build(runtime, sandboxes, containers);
        }
        self.sorted.clone()
    }

    fn see(&mut self, uid: &str, see: impl FnOnce(&mut Known)) {
        let list = self.list;
        if let Some(known) = self.pods.get_mut(uid) {
            if known.list != list {
                known.list = list;
                known.as_before = 0;
                known.differs = false;
            }
            see(known);
            return;
        }
        let uid = PodUid::new(uid);
        let known = Known {
            pod: Arc::new(RuntimePod::empty(uid.clone(), PodKey::new("", ""))),
            list,
            as_before: 0,
            differs: true,
        };
        self.pods.insert(uid, known);
    }

    /// Rebuilds the pods that differ.
    fn build(&mut self, runtime: &str, sandboxes: &[ListedSandbox], containers: &[ListedContainer]) {
        let mut rebuilt: FxHashMap<&PodUid, RuntimePod> = FxHashMap::default();
        for sandbox in sandboxes {
            let Some(uid) = of_kubelet_sandbox(sandbox) else {
                continue;
            };
            let key = || PodKey::new(sandbox.namespace(), sandbox.name());
            if let Some((uid, known)) = self.pods.get_key_value(uid)
                && known.differs
            {
                let pod = rebuilt
                    .entry(uid)
                    .or_insert_with(|| RuntimePod::empty(uid.clone(), key()));
                pod.sandboxes.push(Sandbox {
                    id: ContainerId::new(runtime, sandbox.id()),
                    state: sandbox_state(sandbox.state()),
                    attempt: sandbox.attempt(),
                    created_at: timestamp(sandbox.created_at()),
                });
            }
        }
        for container in containers {
            let Some(uid) = of_kubelet_container(container) else {
                continue;
            };
            if let Some((uid, known)) = self.pods.get_key_value(uid)
                && known.differs
            {
                let pod = rebuilt
                    .entry(uid)
                    .or_insert_with(|| RuntimePod::empty(uid.clone(), labelled_key(container)));
                pod.containers.push(to_container(runtime, container));
            }
        }
        let rebuilt: Vec<_> = rebuilt
            .into_values()
            .map(|mut pod| {
                in_order(&mut pod);
                pod.sandboxes.shrink_to_fit();
                pod.containers.shrink_to_fit();
                Arc::new(pod)
            })
            .collect();
        for pod in rebuilt {
            if let Some(known) = self.pods.get_mut(&pod.uid) {
                known.pod = pod;
            }
        }
        self.sorted.clear();
        self.sorted
            .extend(self.pods.values().map(|known| known.pod.clone()));
        self.sorted
            .sort_by(|a, b| b.created_at.cmp(&a.created_at).then_with(|| a.uid.cmp(&b.uid)));
    }
}

impl Known {
    fn see_sandbox(&mut self, sandbox: &ListedSandbox) {
        let key = &self.pod.key;
        let same_key = *key.namespace == *sandbox.namespace() && *key.name == *sandbox.name();
        let as_before = self
            .pod
            .sandboxes
            .iter()
            .position(|known| known.id.id() == sandbox.id())
            .filter(|at| {
                let known = &self.pod.sandboxes[*at];
                known.state == sandbox_state(sandbox.state())
                    && known.attempt == sandbox.attempt()
                    && known.created_at == timestamp(sandbox.created_at())
            });
        self.see(as_before.filter(|_| same_key));
    }

    fn see_container(&mut self, container: &ListedContainer) {
        let as_before = self
            .pod
            .containers
            .iter()
            .position(|known| known.id.id() == container.id())
            .filter(|at| is_as_before(&self.pod.containers[*at], container))
            .map(|at| self.pod.sandboxes.len() + at);
        self.see(as_before.filter(|_| is_key_of(&self.pod.key, container)));
    }

    /// A member counts as unchanged if it was listed before, is listed once only, and is equal.
    fn see(&mut self, as_before: Option<usize>) {
        let bit = as_before.and_then(|member| 1u64.checked_shl(u32::try_from(member).ok()?));
        match bit {
            Some(bit) if self.as_before & bit == 0 => self.as_before |= bit,
            _ => self.differs = true,
        }
    }

    /// Whether every member was listed.
    fn is_whole(&self) -> bool {
        self.as_before.count_ones() as usize == self.pod.sandboxes.len() + self.pod.containers.len()
    }
}

fn is_as_before(known: &Container, listed: &ListedContainer) -> bool {
    known.state == container_state(listed.state())
        && listed.name() == Some(known.name.as_str())
        && listed.image() == Some(known.image.as_str())
        && known.image_id == image_id(listed)
        && known.image_ref == listed.image_ref()
        && known.image_runtime_handler == listed.image_runtime_handler()
        && known.hash == container_hash(listed)
        && known.sandbox_id == listed.pod_sandbox_id()
        && known.created_at == timestamp(listed.created_at())
}

/// The pod's UID of a sandbox that a kubelet created.
fn of_kubelet_sandbox(sandbox: &ListedSandbox) -> Option<&str> {
    let is_labelled = sandbox.label(labels::POD_UID).is_some();
    sandbox.uid().filter(|_| is_labelled && !sandbox.id().is_empty())
}

/// The pod's UID of a container that a kubelet created.
fn of_kubelet_container(container: &ListedContainer) -> Option<&str> {
    let uid = container.label(labels::POD_UID)?;
    let is_told = container.name().is_some() && container.image().is_some();
    (is_told && !container.id().is_empty()).then_some(uid)
}

fn labelled_key(container: &ListedContainer) -> PodKey {
    let label = |key| container.label(key).unwrap_or_default();
    PodKey::new(label(labels::POD_NAMESPACE), label(labels::POD_NAME))
}

fn is_key_of(key: &PodKey, container: &ListedContainer) -> bool {
    let label = |key| container.label(key).unwrap_or_default();
    *key.namespace == *label(labels::POD_NAMESPACE) && *key.name == *label(labels::POD_NAME)
}

fn to_container(runtime: &str, container: &ListedContainer) -> Container {
    Container {
        id: ContainerId::new(runtime, container.id()),
        state: container_state(container.state()),
        name: container.name().unwrap_or_default().to_owned(),
        image: container.image().unwrap_or_default().to_owned(),
        image_id: image_id(container).to_owned(),
        image_ref: container.image_ref().to_owned(),
        image_runtime_handler: container.image_runtime_handler().to_owned(),
        hash: container_hash(container),
        sandbox_id: container.pod_sandbox_id().to_owned(),
        created_at: timestamp(container.created_at()),
    }
}

fn in_order(pod: &mut RuntimePod) {
    pod.sandboxes.sort_by(|a, b| {
        let newest_first = (b.attempt, b.created_at).cmp(&(a.attempt, a.created_at));
        newest_first.then_with(|| a.id.cmp(&b.id))
    });
    pod.containers
        .sort_by(|a, b| b.created_at.cmp(&a.created_at).then_with(|| a.id.cmp(&b.id)));
    pod.created_at = pod.sandboxes.last().and_then(|first| first.created_at);
}

/// The only annotation that a list needs; 0 if it is missing or cannot be read.
fn container_hash(container: &ListedContainer) -> u64 {
    let Some(hash) = container.annotation(CONTAINER_HASH) else {
        return 0;
    };
    u64::from_str_radix(hash, 16)
        .inspect_err(|error| tracing::error!(annotation = CONTAINER_HASH, value = hash, %error, "cannot read an annotation"))
        .unwrap_or(0)
}

/// Runtimes before v1.30 of CRI report no id.
fn image_id(container: &ListedContainer) -> &str {
    match container.image_id() {
        "" => container.image_ref(),
        id => id,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use kubelet_cri::v1;

    fn labels_of(uid: u8) -> BTreeMap<String, String> {
        let label = |key: &str, value: String| (key.to_owned(), value);
        [
            label(labels::POD_UID, format!("uid-{uid}")),
            label(labels::POD_NAME, format!("pod-{uid}")),
            label(labels::POD_NAMESPACE, "default".to_owned()),
        ]
        .into()
    }

    fn sandbox(pod: u8, id: u8, state: v1::PodSandboxState) -> ListedSandbox {
        v1::PodSandbox {
            id: format!("sandbox-{id}"),
            metadata: Some(v1::PodSandboxMetadata {
                name: format!("pod-{pod}"),
                uid: format!("uid-{pod}"),
                namespace: "default".to_owned(),
                attempt: u32::from(id),
            }),
            state: state as i32,
            created_at: i64::from(id) + 1,
            labels: labels_of(pod),
            ..Default::default()
        }
        .into()
    }

    fn container(pod: u8, id: u8, hash: u8, state: v1::ContainerState) -> ListedContainer {
        v1::Container {
            id: format!("container-{id}"),
            pod_sandbox_id: "sandbox".to_owned(),
            metadata: Some(v1::ContainerMetadata {
                name: format!("c-{id}"),
                attempt: 0,
            }),
            image: Some(v1::ImageSpec {
                image: "busybox:1.36".to_owned(),
                ..Default::default()
            }),
            state: state as i32,
            created_at: i64::from(id) + 1,
            labels: labels_of(pod),
            annotations: [(CONTAINER_HASH.to_owned(), format!("{hash:x}"))].into(),
            ..Default::default()
        }
        .into()
    }

    fn listed() -> impl Strategy<Value = (Vec<ListedSandbox>, Vec<ListedContainer>)> {
        let state = prop_oneof![
            4 => Just(v1::PodSandboxState::SandboxReady),
            1 => Just(v1::PodSandboxState::SandboxNotready),
        ];
        let sandboxes = vec((0..4u8, 0..3u8, state), 0..6).prop_map(|all| {
            all.into_iter()
                .map(|(pod, id, state)| sandbox(pod, id, state))
                .collect()
        });
        let state = prop_oneof![
            4 => Just(v1::ContainerState::ContainerRunning),
            1 => Just(v1::ContainerState::ContainerExited),
        ];
        let containers = vec((0..4u8, 0..3u8, 0..2u8, state), 0..8).prop_map(|all| {
            let container = |(pod, id, hash, state)| container(pod, id, hash, state);
            all.into_iter().map(container).collect()
        });
        (sandboxes, containers)
    }

    proptest! {
        /// Includes runtimes that list a container twice, or in two pods.
        #[test]
        fn they_are_what_the_lists_have(lists in vec(listed(), 1..8)) {
            let mut known = KnownPods::default();
            for (sandboxes, containers) in lists {
                let pods = known.take_in("fake", &sandboxes, &containers);
                prop_assert_eq!(&pods, &KnownPods::default().take_in("fake", &sandboxes, &containers));
            }
        }
    }

    #[test]
    fn who_did_not_change_is_the_same() {
        use v1::{ContainerState::*, PodSandboxState::*};
        let mut known = KnownPods::default();
        let mut sandboxes = vec![sandbox(1, 0, SandboxReady), sandbox(2, 0, SandboxReady)];
        let mut containers: Vec<_> = (1..=2)
            .flat_map(|pod| [0, 1].map(|id| container(pod, id, 7, ContainerRunning)))
            .collect();
        let before = known.take_in("fake", &sandboxes, &containers);
        sandboxes.reverse();
        containers.reverse();
        let after = known.take_in("fake", &sandboxes, &containers);
        assert!(
            before
                .iter()
                .zip(&after)
                .all(|(before, after)| Arc::ptr_eq(before, after))
        );

        // A container of the first pod changes; then it is removed.
        containers[3] = container(1, 0, 7, ContainerExited);
        let changed = known.take_in("fake", &sandboxes, &containers);
        assert!(!Arc::ptr_eq(&changed[0], &after[0]) && Arc::ptr_eq(&changed[1], &after[1]));
        containers.pop();
        let fewer = known.take_in("fake", &sandboxes, &containers);
        assert_eq!(fewer[0].containers.len(), 1);
        assert!(Arc::ptr_eq(&fewer[1], &after[1]));

        let none = known.take_in("fake", &[], &[]);
        assert!(none.is_empty() && known.pods.is_empty());
    }

    #[test]
    fn a_pod_of_very_many_members_is_made_anew() {
        let mut known = KnownPods::default();
        let containers: Vec<_> = (0..70)
            .map(|id| container(1, id, 7, v1::ContainerState::ContainerRunning))
            .collect();
        for _ in 0..2 {
            assert_eq!(known.take_in("fake", &[], &containers)[0].containers.len(), 70);
        }
    }
}
