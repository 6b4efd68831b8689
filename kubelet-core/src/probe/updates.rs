//! The pods to sync because of their probes.

use std::sync::Arc;

use crate::PodUid;
use crate::dirty_pods::DirtyPods;

/// The pods with a changed result: a set, so it can neither overflow nor go stale.
pub struct ProbeUpdates(pub(super) Arc<DirtyPods>);

impl ProbeUpdates {
    /// Waits for a pod to sync because of its probes. Pods come in the order of their changes.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is taken until it is returned.
    pub async fn next(&mut self) -> PodUid {
        self.0.next().await
    }
}

crate::impl_debug!(ProbeUpdates);
