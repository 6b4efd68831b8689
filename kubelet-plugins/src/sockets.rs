//! Which sockets a folder has, and which of them are new.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What makes a socket another one although its path is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    /// Not all file systems have it.
    created: Option<SystemTime>,
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            created: metadata.created().ok(),
        }
    }
}

/// The sockets and folders below a folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub(crate) sockets: BTreeMap<PathBuf, Identity>,
    /// The folder itself and those below it: each is watched.
    pub(crate) folders: Vec<PathBuf>,
    /// What exists and could not be read: nothing is known of the sockets there.
    pub(crate) unread: Vec<PathBuf>,
}

/// Lists the sockets, after making the folder if it is missing. Blocks.
///
/// Names that start with `.` are left out. A symbolic link to a socket counts as a socket; a link to a folder is not
/// followed, so the walk stays below `root`.
pub(crate) fn list(root: &Path) -> io::Result<Found> {
    fs::create_dir_all(root)?;
    let mut found = Found::default();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if folder == root => return Err(error),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(folder = %folder.display(), %error, "cannot list a folder of plugins");
                    found.unread.push(folder.clone());
                    found.folders.push(folder);
                }
                continue;
            }
        };
        for entry in entries.flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(path),
                // Follows a link.
                Ok(_) => match fs::metadata(&path) {
                    Ok(metadata) if metadata.file_type().is_socket() => {
                        found.sockets.insert(path, Identity::of(&metadata));
                    }
                    Err(error) if error.kind() != io::ErrorKind::NotFound => found.unread.push(path),
                    _ => {}
                },
                Err(_) => found.unread.push(path),
            }
        }
        found.folders.push(folder);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn sockets_are_found_in_folders_and_through_links_but_hidden_ones_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("plugins_registry");
        let elsewhere = dir.path().join("elsewhere");
        fs::create_dir_all(root.join("below")).unwrap();
        fs::create_dir_all(root.join(".hidden")).unwrap();
        fs::create_dir_all(&elsewhere).unwrap();
        for path in [
            "a.sock",
            "below/b.sock",
            ".c.sock",
            ".hidden/d.sock",
            "../elsewhere/e.sock",
        ] {
            drop(UnixListener::bind(root.join(path)).unwrap());
        }
        fs::write(root.join("file.sock"), "no socket").unwrap();
        symlink(elsewhere.join("e.sock"), root.join("linked.sock")).unwrap();
        symlink(&elsewhere, root.join("linked")).unwrap();
        symlink("/nowhere", root.join("dangling.sock")).unwrap();
        let found = list(&root).unwrap();
        let names: Vec<_> = found
            .sockets
            .keys()
            .map(|path| path.strip_prefix(&root).unwrap().to_str().unwrap())
            .collect();
        assert_eq!(names, ["a.sock", "below/b.sock", "linked.sock"]);
        assert_eq!(found.folders, [root.clone(), root.join("below")]);
    }

    #[test]
    fn the_folder_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("a/b");
        assert!(list(&root).unwrap().sockets.is_empty());
        assert!(root.is_dir());
    }
}
