//! Pods of an old list, until they are freed.

use std::future::pending;
use std::sync::Arc;

use kubelet_core::runtime::RuntimePod;
use tokio::task::yield_now;

/// So many pods are freed in one go.
const AT_ONCE: usize = 256;

/// The pods of a list whose places a newer list took.
///
/// A pod is a dozen or more allocations, so freeing it takes several times as long as comparing it. Nothing waits for
/// that, so it happens after the events of the list are published, some pods at a time, when there is nothing else to do.
#[derive(Default)]
pub(crate) struct Replaced(Vec<Arc<RuntimePod>>);

impl Replaced {
    /// Takes the pods of one more list. Those of an older one are freed now: never more than one list is kept.
    pub(crate) fn put(&mut self, pods: Vec<Arc<RuntimePod>>) {
        // An empty list may have room for all pods, and nothing would free it.
        self.0 = if pods.is_empty() { Vec::new() } else { pods };
    }

    /// Lets other tasks run, then frees some pods. Waits for ever if there are none.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(crate) async fn free_some(&mut self) {
        if self.0.is_empty() {
            pending::<()>().await;
        }
        yield_now().await;
        self.0.truncate(self.0.len().saturating_sub(AT_ONCE));
        if self.0.is_empty() {
            self.0 = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use kubelet_core::PodKey;

    use super::*;

    #[tokio::test]
    async fn all_are_freed_after_others_had_their_turn() {
        let pod = Arc::new(RuntimePod::empty("u".into(), PodKey::new("default", "p")));
        let mut replaced = Replaced::default();
        assert!(replaced.free_some().now_or_never().is_none(), "there are none");
        replaced.put(vec![pod.clone(); 2 * AT_ONCE + 1]);
        assert!(replaced.free_some().now_or_never().is_none(), "others come first");
        for left in [AT_ONCE + 1, 1, 0] {
            replaced.free_some().await;
            assert_eq!(Arc::strong_count(&pod), 1 + left);
        }
        assert!(replaced.free_some().now_or_never().is_none());
    }
}
