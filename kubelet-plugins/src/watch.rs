//! Wakes the engine when something below the folder may have changed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::event::{EventKind, ModifyKind, RenameMode};
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher as _};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The events of inotify. They only say when to look: what is there, the listing of the folder finds out.
pub(crate) struct Watch {
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    changed: Notify,
    /// Paths that were removed: a socket there is a new one, though it may look the same.
    removed: Mutex<BTreeSet<PathBuf>>,
}

impl Watch {
    pub(crate) fn new() -> Self {
        let shared = Arc::<Shared>::default();
        let seen = shared.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| seen.note(event));
        let watcher = watcher
            .inspect_err(
                |error| tracing::warn!(%error, "cannot watch the folder of plugins, listing it regularly"),
            )
            .ok();
        Self {
            watcher,
            watched: BTreeSet::new(),
            shared,
        }
    }

    /// Waits until something changed. Cancel safe.
    pub(crate) async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    /// The paths removed since the last call.
    pub(crate) fn take_removed(&self) -> BTreeSet<PathBuf> {
        std::mem::take(&mut *self.shared.removed.lock())
    }

    /// Watches these folders, and no others; those in `removed` anew. Returns whether each is watched, and whether any
    /// watch is new: its folder must then be listed again, because a socket may have come before the watch.
    pub(crate) fn folders(&mut self, folders: &[PathBuf], removed: &BTreeSet<PathBuf>) -> Watched {
        let Some(watcher) = &mut self.watcher else {
            return Watched::default();
        };
        let mut outcome = Watched {
            all: true,
            new: false,
        };
        // The kernel forgets a watch when its folder goes, even if one of the same name comes.
        self.watched
            .retain(|path| match folders.contains(path) && !removed.contains(path) {
                true => true,
                false => {
                    let _ = watcher.unwatch(path);
                    false
                }
            });
        for folder in folders {
            if self.watched.contains(folder) {
                continue;
            }
            match watcher.watch(folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.watched.insert(folder.clone());
                    outcome.new = true;
                }
                Err(error) => {
                    tracing::debug!(folder = %folder.display(), %error, "cannot watch a folder of plugins");
                    outcome.all = false;
                }
            }
        }
        outcome
    }

    /// The folder itself cannot be listed: what was watched is gone.
    pub(crate) fn forget(&mut self, root: &Path) {
        if let Some(watcher) = &mut self.watcher {
            for path in std::mem::take(&mut self.watched) {
                let _ = watcher.unwatch(&path);
            }
        }
        tracing::debug!(folder = %root.display(), "no longer watched");
    }
}

/// The result of [`Watch::folders`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Watched {
    pub(crate) all: bool,
    pub(crate) new: bool,
}

impl Shared {
    fn note(&self, event: notify::Result<Event>) {
        match event {
            Ok(event) => match event.kind {
                EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From)) => {
                    self.removed.lock().extend(event.paths);
                }
                // Reading the folder is an event, too: to list it then would never end.
                EventKind::Access(_) | EventKind::Modify(ModifyKind::Data(_) | ModifyKind::Metadata(_)) => {
                    return;
                }
                _ => {}
            },
            Err(error) => tracing::debug!(%error, "an event of the folder of plugins was lost"),
        }
        self.changed.notify_one();
    }
}
