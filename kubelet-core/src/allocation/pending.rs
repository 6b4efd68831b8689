//! The resizes that wait, and which is decided first.

use std::cmp::Reverse;

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::jiff::Timestamp;

use crate::{PodUid, QosClass, qos_class};

const PENDING: &str = "PodResizePending";

/// The pods whose resizes are to be decided, in this order.
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

    /// Adds one, and puts all in order. Those that are no more, `None`, are dropped.
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

/// What comes first: what asks for no more than it has, a higher priority, a guaranteed pod, what waits longer
/// (`sortPendingResizes`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Order {
    increases: bool,
    priority: Reverse<i32>,
    not_guaranteed: bool,
    /// What was not refused yet comes last.
    is_new: bool,
    since: Option<Timestamp>,
}

impl Order {
    /// Of a pod that is said this to of its resizes.
    pub(super) fn of(pod: &Pod, increases: bool, conditions: &[PodCondition]) -> Self {
        let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
        let since = pending(conditions).and_then(|condition| condition.last_transition_time.as_ref());
        if !increases {
            // They take nothing from anybody: one is as good as the other.
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
