//! Notices changes in a folder through inotify.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecursiveMode, Watcher};
use tokio::sync::Notify;

/// A watch on one folder. Its thread ends when it is dropped.
pub(super) struct Watch {
    _watcher: notify::RecommendedWatcher,
    folder: PathBuf,
    identity: Option<Identity>,
}

/// Which folder a path means at a time.
pub(super) type Identity = (u64, u64);

impl Watch {
    /// Watches a folder, and wakes `changed` when something in it does.
    pub(super) fn new(
        folder: &Path,
        identity: Option<Identity>,
        changed: Arc<Notify>,
    ) -> notify::Result<Self> {
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // An error may stand for lost events: look rather once too often.
            if event.map_or(true, |event| is_change(&event.kind)) {
                changed.notify_one();
            }
        })?;
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
        Ok(Self {
            _watcher: watcher,
            folder: folder.to_owned(),
            identity,
        })
    }

    /// Whether it still watches what lies at this path.
    pub(super) fn is_of(&self, folder: &Path, identity: Option<Identity>) -> bool {
        self.folder == folder && self.identity == identity
    }
}

/// Reading is no change: else every read would cause the next.
fn is_change(kind: &EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        _ => true,
    }
}
