//! Waits until something in a folder changes.

use std::path::Path;
use std::sync::Arc;

use notify::{Event, RecursiveMode, Watcher};
use tokio::sync::Notify;

/// A watch on a folder. Its thread ends when it is dropped.
pub(super) struct Changes {
    changed: Arc<Notify>,
    _watcher: notify::RecommendedWatcher,
}

impl Changes {
    /// Watches a folder from now on. Fails if the system allows no more watches.
    pub(super) fn of(folder: &Path) -> notify::Result<Self> {
        let changed = Arc::new(Notify::new());
        let wake = changed.clone();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // A read does not count as a change, because otherwise each read would cause the next one. An error may
            // mean lost events.
            if event.map_or(true, |event| !event.kind.is_access()) {
                wake.notify_one();
            }
        })?;
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
        Ok(Self {
            changed,
            _watcher: watcher,
        })
    }

    /// Waits until something has changed since this was last called. May be dropped at any time.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}
