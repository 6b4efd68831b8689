//! Which pods are to be synced because of their probes.

use std::fmt;
use std::sync::Arc;

use crate::PodUid;
use crate::dirty_pods::DirtyPods;

/// The pods of which some result changed: a set, so that it can be neither full nor out of date.
pub struct ProbeUpdates(pub(super) Arc<DirtyPods>);

impl ProbeUpdates {
    /// Waits for a pod that is to be synced because of its probes, in the order in which they changed.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is taken until it is returned.
    pub async fn next(&mut self) -> PodUid {
        self.0.next().await
    }
}

impl fmt::Debug for ProbeUpdates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProbeUpdates").finish_non_exhaustive()
    }
}
