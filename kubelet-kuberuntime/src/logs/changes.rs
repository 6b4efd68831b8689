//! Waits until something in a folder changes.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::event::ModifyKind;
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use parking_lot::Mutex;
use tokio::sync::watch;

/// Watches the folders of all logs that are followed, with one inotify instance and one thread, because a system allows
/// a user few of them (128 by default). Clones share them. They end with the last follower.
#[derive(Clone, Default)]
pub struct LogWatcher {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// `None` as long as nothing is watched.
    watcher: Mutex<Option<RecommendedWatcher>>,
    /// Locked after `watcher`. The watcher's thread locks only this.
    folders: Arc<Mutex<Folders>>,
}

/// The followed folders. The value counts the changes after which a name may have another file.
type Folders = HashMap<PathBuf, watch::Sender<u64>>;

/// A watch on a folder. It ends when it is dropped.
pub(super) struct Changes {
    folder: PathBuf,
    /// `None` while it is dropped.
    changed: Option<watch::Receiver<u64>>,
    /// How many changes of names were returned.
    names: u64,
    shared: Arc<Shared>,
}

impl LogWatcher {
    /// Watches a folder from now on. Fails if the system allows no more watches.
    pub(super) fn watch(&self, folder: &Path) -> notify::Result<Changes> {
        let mut watcher = self.shared.watcher.lock();
        if watcher.is_none() {
            let folders = self.shared.folders.clone();
            *watcher = Some(notify::recommended_watcher(move |event| wake(&folders, event))?);
        }
        let changed = {
            let mut folders = self.shared.folders.lock();
            folders.entry(folder.to_owned()).or_default().subscribe()
        };
        let names = *changed.borrow();
        let changes = Changes {
            folder: folder.to_owned(),
            changed: Some(changed),
            names,
            shared: self.shared.clone(),
        };
        // Again for each follower: a folder may have been removed and made again.
        let watched = match &mut *watcher {
            Some(watcher) => watcher.watch(folder, RecursiveMode::NonRecursive),
            None => Ok(()),
        };
        drop(watcher);
        watched.map(|()| changes)
    }
}

fn wake(folders: &Mutex<Folders>, event: notify::Result<Event>) {
    let folders = folders.lock();
    match event {
        // A read does not count as a change, because otherwise each read would cause the next one.
        Ok(event) if event.kind.is_access() => {}
        Ok(event) if !event.need_rescan() => {
            let content = matches!(event.kind, EventKind::Modify(ModifyKind::Data(_)));
            for path in &event.paths {
                let of_file = path.parent().and_then(|folder| folders.get(folder));
                for folder in [of_file, folders.get(path)].into_iter().flatten() {
                    folder.send_modify(|names| *names += u64::from(!content));
                }
            }
        }
        // Events were lost.
        Ok(_) | Err(_) => folders.values().for_each(|folder| {
            folder.send_modify(|names| *names += 1);
        }),
    }
}

impl Changes {
    /// Waits until something has changed since this was last called. Returns whether more than the content of files has
    /// changed. May be dropped at any time.
    pub(super) async fn changed(&mut self) -> bool {
        let Some(changed) = &mut self.changed else {
            return true;
        };
        // The sender lives as long as its receivers.
        let _ = changed.changed().await;
        let names = *changed.borrow_and_update();
        std::mem::replace(&mut self.names, names) != names
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        let mut watcher = self.shared.watcher.lock();
        let (unused, none_left) = {
            let mut folders = self.shared.folders.lock();
            self.changed = None;
            let unused = folders
                .get(&self.folder)
                .is_some_and(|folder| folder.receiver_count() == 0);
            if unused {
                folders.remove(&self.folder);
            }
            (unused, folders.is_empty())
        };
        if none_left {
            *watcher = None;
        } else if unused && let Some(watcher) = &mut *watcher {
            // It fails if the folder was removed.
            let _ = watcher.unwatch(&self.folder);
        }
    }
}

impl fmt::Debug for LogWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let folders = self.shared.folders.lock().len();
        f.debug_struct("LogWatcher").field("folders", &folders).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_watcher_serves_all_and_ends_with_the_last() {
        let dirs: Vec<_> = (0..300).map(|_| tempfile::tempdir().unwrap()).collect();
        let watcher = LogWatcher::default();
        let mut watches: Vec<_> = dirs
            .iter()
            .chain(&dirs[..1])
            .map(|dir| watcher.watch(dir.path()).unwrap())
            .collect();
        for (dir, changes) in dirs.iter().zip(&mut watches) {
            std::fs::write(dir.path().join("0.log"), "x").unwrap();
            changes.changed().await;
        }
        let mut second_of_first = watches.pop().unwrap();
        second_of_first.changed().await;
        watches.clear();
        assert_eq!(watcher.shared.folders.lock().len(), 1, "{watcher:?}");
        std::fs::write(dirs[0].path().join("0.log"), "y").unwrap();
        second_of_first.changed().await;
        drop(second_of_first);
        assert!(watcher.shared.watcher.lock().is_none());
        assert!(watcher.shared.folders.lock().is_empty());
    }

    #[tokio::test]
    async fn a_folder_that_does_not_exist_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let watcher = LogWatcher::default();
        assert!(watcher.watch(&dir.path().join("none")).is_err());
        assert!(watcher.shared.watcher.lock().is_none());
    }
}
