//! The PLEG that lists at a fixed period.

use std::sync::Arc;

use kubelet_core::{PodCache, RuntimeReader};

use crate::Pleg;
use crate::evented::Hints;

/// A PLEG that lists the pods of the runtime once a second. It compares each list with the one before, reads the
/// status of each pod that changed, stores the status in the [`PodCache`], and publishes the events.
///
/// Answers to the kubelet's `pleg.GenericPLEG`. Subscribe to the events with its [`handle`](Pleg::handle). The front
/// page of the [crate] says what a subscriber may rely on.
///
/// # What is listed, and when
///
/// The PLEG makes the first list at once, and each further list one period after it processed the last. A pod of a
/// [`request_relist`](kubelet_core::PlegHandle::request_relist) is listed alone, at once, unless a list of all pods
/// that began after the request has shown it already.
///
/// # When something fails
///
/// * A **list** fails: nothing changes. When there was no successful list for longer than the threshold, the PLEG is
///   not [healthy](kubelet_core::PlegHandle::healthy).
/// * The **status of a pod** cannot be read: the PLEG stores the error in the cache, so that those who wait for the pod
///   wake. It keeps the events of the pod until the status can be read. It retries at the next relist, then less and
///   less often, down to every 10 s. If the pod changes, it retries at once. The node stays healthy.
/// * The **status of a pod hangs**: all other pods go on. Those who wait for this pod wait until the deadline of the
///   call.
pub type GenericPleg = Pleg<NoHints>;

/// Marks a [`Pleg`] that does not use hints: a [`GenericPleg`].
#[derive(Clone, Copy, Debug)]
pub struct NoHints;

impl From<NoHints> for Option<Hints> {
    fn from(_: NoHints) -> Self {
        None
    }
}

impl GenericPleg {
    /// Returns a PLEG that watches `runtime` and writes `cache`. Nobody else may write that cache.
    pub fn new(runtime: Arc<dyn RuntimeReader>, cache: PodCache) -> Self {
        Self::with_hints(runtime, cache, NoHints)
    }
}
