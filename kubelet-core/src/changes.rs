//! A counter of changes, for periodic work that can be skipped while nothing changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Counts changes and wakes the one waiter for the next change. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes(Arc<Counted>);

#[derive(Debug, Default)]
struct Counted {
    count: AtomicU64,
    changed: Notify,
}

impl Changes {
    /// Something changed.
    pub(crate) fn note(&self) {
        self.0.count.fetch_add(1, Ordering::Release);
        self.0.changed.notify_one();
    }

    /// How many changes there were so far.
    pub(crate) fn count(&self) -> u64 {
        self.0.count.load(Ordering::Acquire)
    }

    /// Waits until the count differs from this one. Supports one waiter at a time.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(crate) async fn other_than(&self, seen: u64) {
        while self.count() == seen {
            self.0.changed.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn what_changed_since_it_was_counted_is_no_news_only_once() {
        let changes = Changes::default();
        changes.note();
        let seen = changes.count();
        assert!(changes.other_than(seen).now_or_never().is_none());
        tokio::join!(changes.other_than(seen), async { changes.clone().note() });
        assert!(changes.other_than(seen).now_or_never().is_some());
        assert!(changes.other_than(changes.count()).now_or_never().is_none());
    }
}
