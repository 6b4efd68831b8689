//! Walks over the files of a volume. Containers may change the files meanwhile, so the walk follows no link, and a folder
//! that was replaced by a link leads nowhere.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, openat, openat2, statat};
use rustix::io::Errno;

/// The state of a walk, shared between the thread that walks and the task that waits for it.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    cancelled: AtomicBool,
    files: AtomicU64,
}

impl Progress {
    /// The walk ends with an error at the next file.
    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// How many files and folders it has visited.
    pub(crate) fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Counts one file.
    pub(crate) fn step(&self) -> io::Result<()> {
        self.files.fetch_add(1, Ordering::Relaxed);
        match self.cancelled.load(Ordering::Relaxed) {
            true => Err(io::Error::new(
                io::ErrorKind::Interrupted,
                "the walk was cancelled",
            )),
            false => Ok(()),
        }
    }
}

/// Cancels the walk when the task that waits for it is dropped.
pub(crate) struct CancelOnDrop<'a>(pub(crate) &'a Progress);

impl Drop for CancelOnDrop<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// A file or folder that the walk found.
pub(crate) struct Found<'a> {
    /// The folder it is in.
    pub(crate) dir: BorrowedFd<'a>,
    /// Its name in the folder.
    pub(crate) name: &'a CStr,
    /// What it was when it was found. It may be something else by now.
    pub(crate) stat: Stat,
}

/// Whether a folder's content is visited too.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Visit,
    Skip,
}

/// Visits everything below `root`, each folder before its content, but not `root` itself. What vanishes meanwhile is
/// left out. It keeps two folders open, however deep they are; paths longer than the kernel's limit are an error.
pub(crate) fn walk(
    root: &Path,
    progress: &Progress,
    mut visit: impl FnMut(&Found<'_>) -> io::Result<Content>,
) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = openat(CWD, root, flags, Mode::empty())?;
    let mut pending = vec![PathBuf::from(".")];
    while let Some(path) = pending.pop() {
        let opened = match open_below(&root, &path, flags) {
            // It was removed, or replaced by something else.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
            opened => opened?,
        };
        let mut entries = Dir::read_from(&opened)?;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            progress.step()?;
            let stat = match statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => continue,
                stat => stat?,
            };
            let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            let found = Found {
                dir: std::os::fd::AsFd::as_fd(&opened),
                name,
                stat,
            };
            if visit(&found)? == Content::Visit && is_dir {
                pending.push(path.join(OsStr::from_bytes(name.to_bytes())));
            }
        }
    }
    Ok(())
}

/// Opens a path below a folder, without links.
fn open_below(root: &OwnedFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match openat2(root, path, flags, Mode::empty(), within) {
        // Before Linux 5.6: one folder after the other.
        Err(Errno::NOSYS) => {
            let mut opened = openat(root, ".", flags, Mode::empty())?;
            for name in path {
                opened = openat(&opened, name, flags, Mode::empty())?;
            }
            Ok(opened)
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(root: &Path) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        walk(root, &Progress::default(), |found| {
            names.insert(found.name.to_string_lossy().into_owned());
            Ok(Content::Visit)
        })
        .unwrap();
        names
    }

    #[test]
    fn a_walk_follows_no_link() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("precious"), "").unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        fs::write(root.path().join("a/b/c"), "").unwrap();
        symlink(outside.path(), root.path().join("link")).unwrap();
        let expected = ["a", "b", "c", "link"].map(str::to_owned);
        assert_eq!(names(root.path()), BTreeSet::from(expected));
        assert!(
            walk(&root.path().join("link"), &Progress::default(), |_| Ok(
                Content::Visit
            ))
            .is_err()
        );
    }

    #[test]
    fn a_folder_that_becomes_a_link_leads_nowhere() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("precious"), "").unwrap();
        let inner = root.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let mut names = Vec::new();
        walk(root.path(), &Progress::default(), |found| {
            names.push(found.name.to_owned());
            fs::remove_dir(&inner).unwrap();
            symlink(outside.path(), &inner).unwrap();
            Ok(Content::Visit)
        })
        .unwrap();
        assert_eq!(names, [c"inner".to_owned()]);
    }

    #[test]
    fn a_cancelled_walk_ends() {
        let root = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            fs::write(root.path().join(name), "").unwrap();
        }
        let progress = Progress::default();
        let mut visited = 0;
        let error = walk(root.path(), &progress, |_| {
            visited += 1;
            progress.cancel();
            Ok(Content::Visit)
        });
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::Interrupted);
        assert_eq!((visited, progress.files()), (1, 2));
    }
}
