//! Removes a folder with all that containers left in it.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::RenameFlags;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, openat, renameat_with, unlinkat};
use rustix::io::Errno;

/// Removes the folder and everything in it; nothing if it does not exist. It follows no link, and needs neither a deep
/// stack nor many open files, however deeply a container nested its folders: it moves nested folders up.
pub(crate) fn remove_all(dir: &Path) -> io::Result<()> {
    let top = match openat(CWD, dir, FOLDER, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        // A file or a link.
        Err(Errno::NOTDIR | Errno::LOOP) => return ignore_missing(unlinkat(CWD, dir, AtFlags::empty())),
        top => top?,
    };
    let mut moved = 0u64;
    loop {
        let names = names(&top)?;
        if names.is_empty() {
            break;
        }
        for name in names {
            if !unlink(&top, &name)? {
                empty(&top, &name, &mut moved)?;
            }
        }
    }
    ignore_missing(unlinkat(CWD, dir, AtFlags::REMOVEDIR))
}

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Empties a folder: its sub-folders become folders of `top`. Then removes it.
fn empty(top: &OwnedFd, name: &CStr, moved: &mut u64) -> io::Result<()> {
    let dir = match openat(top, name, FOLDER, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        dir => dir?,
    };
    for inner in names(&dir)? {
        if unlink(&dir, &inner)? {
            continue;
        }
        loop {
            *moved += 1;
            let free = CString::new(format!("..removing-{moved}"))?;
            match renameat_with(&dir, &inner, top, &free, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                moved => break moved?,
            }
        }
    }
    ignore_missing(unlinkat(top, name, AtFlags::REMOVEDIR))
}

/// Removes a file, a link or an empty folder. Returns whether it is gone.
fn unlink(dir: &OwnedFd, name: &CStr) -> io::Result<bool> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(true),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    match unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn names(dir: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

fn ignore_missing(removed: rustix::io::Result<()>) -> io::Result<()> {
    match removed {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_and_their_targets_are_told_apart() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("precious"), "").unwrap();
        let dir = root.path().join("volume");
        fs::create_dir_all(dir.join("a/b/c")).unwrap();
        fs::write(dir.join("a/b/file"), "").unwrap();
        fs::write(dir.join("..removing-1"), "").unwrap();
        symlink(outside.path(), dir.join("a/b/link")).unwrap();
        remove_all(&dir).unwrap();
        assert!(!dir.exists() && outside.path().join("precious").exists());
        remove_all(&dir).unwrap();
        symlink(outside.path(), &dir).unwrap();
        remove_all(&dir).unwrap();
        assert!(dir.symlink_metadata().is_err() && outside.path().join("precious").exists());
    }

    #[test]
    fn the_depth_of_folders_does_not_matter() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("volume");
        fs::create_dir(&dir).unwrap();
        let mut deepest = openat(CWD, &dir, FOLDER, Mode::empty()).unwrap();
        for _ in 0..3_000 {
            rustix::fs::mkdirat(&deepest, "d", Mode::RWXU).unwrap();
            deepest = openat(&deepest, "d", FOLDER, Mode::empty()).unwrap();
        }
        remove_all(&dir).unwrap();
        assert!(!dir.exists());
    }
}
