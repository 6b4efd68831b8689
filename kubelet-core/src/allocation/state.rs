//! The allocations of all pods (`pkg/kubelet/allocation/state`).

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::resources::{Allocation, InPlaceResize};
use crate::{PodExt, PodUid};

/// The resources that each pod was admitted with, or last resized to. A cheap handle; clones share the state.
///
/// The node, the runtime and the status use what a pod was allocated, not what its spec requests by now. So code that
/// works on a pod gets it from [`update_pod_from_allocation`](Self::update_pod_from_allocation): usually the same pod,
/// and a changed copy only while its spec and its allocation differ.
#[derive(Clone, Default)]
pub struct AllocationState(Arc<Inner>);

#[derive(Default)]
struct Inner {
    settings: InPlaceResize,
    pods: Mutex<FxHashMap<PodUid, Entry>>,
}

struct Entry {
    allocation: Arc<Allocation>,
    /// Boxed: a hash map has spare capacity for entries, and few pods differ.
    differing: Option<Box<Differing>>,
}

struct Differing {
    /// The pod with other requests.
    desired: Arc<Pod>,
    /// The same pod with its allocation.
    allocated: Arc<Pod>,
}

impl AllocationState {
    /// Without allocations.
    pub fn new(settings: InPlaceResize) -> Self {
        Self(Arc::new(Inner {
            settings,
            pods: Mutex::default(),
        }))
    }

    pub(crate) fn settings(&self) -> &InPlaceResize {
        &self.0.settings
    }

    /// The pod with its allocated resources (`UpdatePodFromAllocation`): the same `Arc` if its spec requests the same,
    /// or nothing was allocated.
    pub fn update_pod_from_allocation(&self, pod: &Arc<Pod>) -> Arc<Pod> {
        let mut pods = self.0.pods.lock();
        let Some(entry) = pods.get_mut(pod.uid_str()) else {
            return pod.clone();
        };
        if let Some(differing) = &entry.differing
            && Arc::ptr_eq(&differing.desired, pod)
        {
            return differing.allocated.clone();
        }
        if entry.allocation.is_of(pod, &self.0.settings) {
            return pod.clone();
        }
        let allocated = Arc::new(entry.allocation.applied_to(pod, &self.0.settings));
        entry.differing = Some(Box::new(Differing {
            desired: pod.clone(),
            allocated: allocated.clone(),
        }));
        allocated
    }

    /// Whether the pod's spec requests other resources than it was allocated.
    pub fn differs(&self, pod: &Arc<Pod>) -> bool {
        !Arc::ptr_eq(&self.update_pod_from_allocation(pod), pod)
    }

    /// Allocates what the pod's spec requests (`SetAllocatedResources`).
    pub fn set_allocated_resources(&self, pod: &Pod) {
        let mut pods = self.0.pods.lock();
        let allocated = pods.get(pod.uid_str());
        if allocated
            .is_some_and(|entry| entry.differing.is_none() && entry.allocation.is_of(pod, &self.0.settings))
        {
            return;
        }
        let allocation = Arc::new(Allocation::of(pod, &self.0.settings));
        pods.insert(pod.uid(), Entry::new(allocation));
    }

    /// The same, for a pod without an allocation.
    pub(crate) fn set_if_absent(&self, pod: &Pod) {
        if !self.keeps(pod.uid_str()) {
            self.set_allocated_resources(pod);
        }
    }

    /// Removes the pod's allocation (`RemovePod`).
    pub fn remove_pod(&self, uid: &PodUid) {
        self.0.pods.lock().remove(uid);
    }

    /// Removes the allocations of all other pods (`RemoveOrphanedPods`).
    pub fn remove_orphaned_pods(&self, remaining: &HashSet<PodUid>) {
        self.0.pods.lock().retain(|uid, _| remaining.contains(uid));
    }

    /// Whether the pod has an allocation.
    pub(crate) fn keeps(&self, uid: &str) -> bool {
        self.0.pods.lock().contains_key(uid)
    }

    /// The pod's allocation, for its record.
    pub(crate) fn allocation(&self, uid: &PodUid) -> Option<Arc<Allocation>> {
        let pods = self.0.pods.lock();
        pods.get(uid).map(|entry| entry.allocation.clone())
    }

    /// Those of all pods.
    pub(crate) fn all(&self) -> BTreeMap<PodUid, Arc<Allocation>> {
        let pods = self.0.pods.lock();
        let all = pods.iter();
        all.map(|(uid, entry)| (uid.clone(), entry.allocation.clone()))
            .collect()
    }

    /// Restores the allocations of the previous run of the agent.
    pub(crate) fn restore(&self, recorded: impl IntoIterator<Item = (PodUid, Arc<Allocation>)>) {
        let entries = recorded
            .into_iter()
            .map(|(uid, allocation)| (uid, Entry::new(allocation)));
        self.0.pods.lock().extend(entries);
    }
}

impl Entry {
    fn new(allocation: Arc<Allocation>) -> Self {
        Self {
            allocation,
            differing: None,
        }
    }
}

impl fmt::Debug for AllocationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllocationState")
            .field("pods", &self.0.pods.lock().len())
            .finish_non_exhaustive()
    }
}
