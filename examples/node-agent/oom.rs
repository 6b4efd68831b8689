//! Reports processes that the kernel has killed because memory was short.

use std::sync::Arc;

use kubelet_core::NodeEventRecorder;
use kubelet_eviction::oom::{Kmsg, OomWatcher};
use tokio_util::sync::CancellationToken;

/// The kernel's log.
const KMSG: &str = "/dev/kmsg";

/// Emits `SystemOOM` events until `shutdown`. Without the privilege to read the kernel's log there are none.
pub(crate) async fn watch(recorder: Arc<dyn NodeEventRecorder>, shutdown: CancellationToken) {
    match Kmsg::open(KMSG) {
        Ok(log) => OomWatcher::new(log, recorder).run(shutdown).await,
        Err(error) => tracing::warn!(%error, "cannot watch for OOM kills: there will be no SystemOOM events"),
    }
}
