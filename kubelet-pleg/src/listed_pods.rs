//! The pods of the runtime, in the order in which it listed them last, each with its record.

use std::sync::Arc;

use kubelet_core::PodUid;
use kubelet_core::runtime::RuntimePod;
use rustc_hash::FxHashMap;

use crate::record::Record;

/// The pods that the runtime has. The next list mostly has the same pods in the same order, so lists are compared place by
/// place, without a look-up. That reads the pods but not their records, so each has an array of its own.
#[derive(Default)]
pub(crate) struct ListedPods {
    pods: Vec<Arc<RuntimePod>>,
    /// The records, each at the place of its pod.
    records: Vec<Record>,
    places: FxHashMap<PodUid, usize>,
}

impl ListedPods {
    pub(crate) fn len(&self) -> usize {
        self.pods.len()
    }

    pub(crate) fn record(&self, uid: &PodUid) -> Option<&Record> {
        self.records.get(*self.places.get(uid)?)
    }

    pub(crate) fn get_mut(&mut self, uid: &PodUid) -> Option<(&mut Arc<RuntimePod>, &mut Record)> {
        let place = *self.places.get(uid)?;
        self.pods.get_mut(place).zip(self.records.get_mut(place))
    }

    /// The pods in their order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&mut Arc<RuntimePod>, &mut Record)> {
        self.pods.iter_mut().zip(&mut self.records)
    }

    /// Appends a pod that is not there yet.
    pub(crate) fn push(&mut self, pod: Arc<RuntimePod>, record: Record) {
        self.places.insert(pod.uid.clone(), self.pods.len());
        self.pods.push(pod);
        self.records.push(record);
    }

    /// Removes a pod. The last one moves to its place.
    pub(crate) fn remove(&mut self, uid: &PodUid) -> Option<(Arc<RuntimePod>, Record)> {
        let place = self.places.remove(uid)?;
        let removed = (self.pods.swap_remove(place), self.records.swap_remove(place));
        if let Some(moved) = self.pods.get(place) {
            self.places.insert(moved.uid.clone(), place);
        }
        Some(removed)
    }

    /// Takes out all pods from this place on, for the rest of a list in another order, of `count` pods. Each pod of that
    /// list is then [found](Self::find) and [put back](Self::put_back), or [pushed](Self::push) if it is new. The pods
    /// that are left are [gone](Self::gone).
    pub(crate) fn take_from(&mut self, first: usize, count: usize) -> Taken {
        let pods = self.pods.split_off(first);
        let records = self.records.split_off(first);
        // Exactly, because this memory is kept.
        self.pods.reserve_exact(count);
        self.records.reserve_exact(count);
        Taken {
            first,
            pods: pods.into_iter().zip(records).map(Some).collect(),
        }
    }

    /// Looks for a pod among those that were taken out.
    pub(crate) fn find(&mut self, uid: &PodUid, taken: &mut Taken) -> Found {
        let Some(place) = self.places.get_mut(uid) else {
            return Found::New;
        };
        let stood = place.checked_sub(taken.first);
        let stood = stood.and_then(|stood| taken.pods.get_mut(stood));
        // A pod that was put back has the number of its new place, where another one may have stood.
        let stood = stood.and_then(|stood| stood.take_if(|(pod, _)| pod.uid == *uid));
        match stood {
            Some((pod, record)) => {
                *place = self.pods.len();
                Found::Known(pod, record)
            }
            None => Found::Twice,
        }
    }

    /// Appends a pod that was just [found](Self::find).
    pub(crate) fn put_back(&mut self, pod: Arc<RuntimePod>, record: Record) {
        self.pods.push(pod);
        self.records.push(record);
    }

    /// Those that were taken out and are not in the list.
    pub(crate) fn gone(&mut self, taken: Taken) -> Vec<(Arc<RuntimePod>, Record)> {
        let gone: Vec<_> = taken.pods.into_iter().flatten().collect();
        for (pod, _) in &gone {
            self.places.remove(&pod.uid);
        }
        gone
    }
}

/// Pods that were taken out, each until it is found.
pub(crate) struct Taken {
    first: usize,
    pods: Vec<Option<(Arc<RuntimePod>, Record)>>,
}

/// What a pod of a list is.
pub(crate) enum Found {
    New,
    /// It was listed before: like this.
    Known(Arc<RuntimePod>, Record),
    /// It was found already.
    Twice,
}
