//! Notices changes in a folder through inotify.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use notify::event::{AccessKind, AccessMode, ModifyKind, RenameMode};
use notify::{Event, EventKind, RecursiveMode, Watcher};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// What the watches of a folder noticed since it was read last.
#[derive(Default)]
pub(super) struct Noticed {
    changed: Notify,
    /// The names that were removed or renamed. Something else may have these names by now.
    removed: Mutex<BTreeSet<OsString>>,
}

impl Noticed {
    /// Waits for a change. Cancel safe: a change that nobody waited for is kept for the next call.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The names that were removed since the last call.
    pub(super) fn take_removed(&self) -> BTreeSet<OsString> {
        std::mem::take(&mut *self.removed.lock())
    }

    fn note(&self, event: notify::Result<Event>, folder: &Path) {
        match event {
            Ok(event) if !is_change(&event.kind) => return,
            Ok(event) if is_removal(&event.kind) => {
                // The folder reports its own end, too, under its own path.
                let within = event
                    .paths
                    .iter()
                    .filter_map(|path| path.strip_prefix(folder).ok());
                let names = within.map(|name| name.as_os_str().to_owned());
                self.removed.lock().extend(names.filter(|name| !name.is_empty()));
            }
            // An error may stand for lost events: look rather once too often.
            Ok(_) | Err(_) => {}
        }
        self.changed.notify_one();
    }
}

/// A watch on one folder. Its thread ends when it is dropped.
pub(super) struct Watch {
    _watcher: notify::RecommendedWatcher,
    folder: PathBuf,
    identity: Option<Identity>,
    /// Whether the folder was removed or renamed. A new one may have its identity.
    ended: Arc<AtomicBool>,
}

/// Which folder a path means at a time.
pub(super) type Identity = (u64, u64);

impl Watch {
    /// Watches a folder, and notes in `noticed` what changes in it.
    pub(super) fn new(
        folder: &Path,
        identity: Option<Identity>,
        noticed: Arc<Noticed>,
    ) -> notify::Result<Self> {
        let (within, ended) = (folder.to_owned(), Arc::new(AtomicBool::new(false)));
        let ends = ended.clone();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let is_end = |event: &Event| is_removal(&event.kind) && event.paths.contains(&within);
            if event.as_ref().is_ok_and(is_end) {
                ends.store(true, Ordering::Release);
            }
            noticed.note(event, &within);
        })?;
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
        Ok(Self {
            _watcher: watcher,
            folder: folder.to_owned(),
            identity,
            ended,
        })
    }

    /// Whether it still watches what lies at this path.
    pub(super) fn is_of(&self, folder: &Path, identity: Option<Identity>) -> bool {
        self.folder == folder && self.identity == identity && !self.ended.load(Ordering::Acquire)
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

/// Whether a name is gone. A file that is renamed over another removes only its own name.
fn is_removal(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From))
    )
}
