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

/// The followed folders.
type Folders = HashMap<PathBuf, Folder>;

#[derive(Default)]
struct Folder {
    /// Counts the changes after which a name may have another file.
    names: watch::Sender<u64>,
    /// Whether the system reports its changes. A folder that is removed and made again is another one.
    is_watched: bool,
}

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
        let (changed, is_watched) = {
            let mut folders = self.shared.folders.lock();
            let known = folders.entry(folder.to_owned()).or_default();
            // Said before the watch begins: what removes the folder after it says the opposite.
            let is_watched = std::mem::replace(&mut known.is_watched, true);
            (known.names.subscribe(), is_watched)
        };
        let names = *changed.borrow();
        let changes = Changes {
            folder: folder.to_owned(),
            changed: Some(changed),
            names,
            shared: self.shared.clone(),
        };
        // The watcher's thread does it, which costs more than all the rest.
        let watched = match &mut *watcher {
            Some(watcher) if !is_watched => watcher.watch(folder, RecursiveMode::NonRecursive),
            _ => Ok(()),
        };
        if watched.is_err()
            && let Some(known) = self.shared.folders.lock().get_mut(folder)
        {
            known.is_watched = false;
        }
        drop(watcher);
        watched.map(|()| changes)
    }
}

fn wake(folders: &Mutex<Folders>, event: notify::Result<Event>) {
    let mut folders = folders.lock();
    match event {
        // A read does not count as a change, because otherwise each read would cause the next one.
        Ok(event) if event.kind.is_access() => {}
        Ok(event) if !event.need_rescan() => {
            let content = matches!(event.kind, EventKind::Modify(ModifyKind::Data(_)));
            let gone = matches!(
                event.kind,
                EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(_))
            );
            for path in &event.paths {
                if let Some(folder) = folders.get_mut(path) {
                    folder.is_watched &= !gone;
                    folder.changed(!content);
                }
                if let Some(folder) = path.parent().and_then(|folder| folders.get(folder)) {
                    folder.changed(!content);
                }
            }
        }
        // Events were lost.
        Ok(_) | Err(_) => folders.values_mut().for_each(|folder| {
            folder.is_watched = false;
            folder.changed(true);
        }),
    }
}

impl Folder {
    /// Wakes the followers.
    fn changed(&self, names: bool) {
        self.names.send_modify(|count| *count += u64::from(names));
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
                .is_some_and(|folder| folder.names.receiver_count() == 0);
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
    async fn a_folder_that_was_made_again_is_watched_again() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("logs");
        std::fs::create_dir(&folder).unwrap();
        let watcher = LogWatcher::default();
        let mut first = watcher.watch(&folder).unwrap();
        std::fs::remove_dir(&folder).unwrap();
        while watcher.shared.folders.lock()[&folder].is_watched {
            first.changed().await;
        }
        std::fs::create_dir(&folder).unwrap();
        let mut second = watcher.watch(&folder).unwrap();
        std::fs::write(folder.join("0.log"), "x").unwrap();
        assert!(second.changed().await);
    }

    #[tokio::test]
    async fn a_folder_that_does_not_exist_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let watcher = LogWatcher::default();
        assert!(watcher.watch(&dir.path().join("none")).is_err());
        assert!(watcher.shared.watcher.lock().is_none());
    }
}
