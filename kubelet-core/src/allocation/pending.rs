//! The pending resizes, and their order.

use std::cmp::Reverse;

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::jiff::Timestamp;

use crate::{PodUid, QosClass, qos_class};

const PENDING: &str = "PodResizePending";

/// The pods with pending resizes, in this order.
#[derive(Debug, Default)]
pub(super) struct PendingResizes(Vec<PodUid>);

impl PendingResizes {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn uids(&self) -> Vec<PodUid> {
        self.0.clone()
    }

    pub(super) fn remove(&mut self, uid: &PodUid) {
        self.0.retain(|waiting| waiting != uid);
    }

    /// Adds a pod and sorts all. Pods that are gone (`None`) are dropped.
    pub(super) fn push(&mut self, uid: &PodUid, order: impl Fn(&PodUid) -> Option<Order>) {
        if self.0.contains(uid) {
            return;
        }
        let all = self.0.drain(..).chain([uid.clone()]);
        let mut ordered: Vec<(Order, PodUid)> = all.filter_map(|uid| Some((order(&uid)?, uid))).collect();
        ordered.sort_by_key(|(order, _)| *order);
        self.0 = ordered.into_iter().map(|(_, uid)| uid).collect();
    }
}

/// The order: resizes that need no more resources, higher priority, guaranteed pods, longest wait
/// (`sortPendingResizes`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order {
    increases: bool,
    priority: Reverse<i32>,
    not_guaranteed: bool,
    /// Resizes that were not refused yet come last.
    is_new: bool,
    since: Option<Timestamp>,
}

impl Order {
    /// The sort key of a pod with these resize conditions.
    pub(super) fn of(pod: &Pod, increases: bool, conditions: &[PodCondition]) -> Self {
        let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
        let since = pending(conditions).and_then(|condition| condition.last_transition_time.as_ref());
        if !increases {
            // They need no free resources, so their order does not matter.
            return Self {
                increases,
                priority: Reverse(0),
                not_guaranteed: false,
                is_new: false,
                since: None,
            };
        }
        Self {
            increases,
            priority: Reverse(priority),
            not_guaranteed: qos_class(pod) != QosClass::Guaranteed,
            is_new: since.is_none(),
            since: since.map(|since| since.0),
        }
    }
}

/// `IsPodResizeDeferred`
pub(super) fn is_deferred(conditions: &[PodCondition]) -> bool {
    pending(conditions).is_some_and(|condition| condition.reason.as_deref() == Some("Deferred"))
}

fn pending(conditions: &[PodCondition]) -> Option<&PodCondition> {
    conditions.iter().find(|condition| condition.type_ == PENDING)
}
