//! Opens files below a folder, and never one outside of it.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

/// Opens a file for reading. Neither `..` nor a symbolic link leads out of the folder: the kernel sees to that.
pub(super) async fn open(root: &Path, name: &str) -> io::Result<tokio::fs::File> {
    let root = root.to_owned();
    // A name from the root of the logs is meant.
    let name = PathBuf::from(name.trim_start_matches('/'));
    let name = if name.as_os_str().is_empty() {
        PathBuf::from(".")
    } else {
        name
    };
    let opened = tokio::task::spawn_blocking(move || {
        let folder = OFlags::DIRECTORY | OFlags::PATH | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, &root, folder, Mode::empty())?;
        // Not blocking: a pipe would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        openat2(root, &name, flags, Mode::empty(), inside)
    });
    let file = opened.await.map_err(io::Error::other)??;
    Ok(tokio::fs::File::from_std(std::fs::File::from(file)))
}

/// What Go says of an error.
pub(super) fn explain(error: &io::Error) -> String {
    let known = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => "no such file or directory",
        Some(Errno::ACCESS) => "permission denied",
        Some(Errno::NOTDIR) => "not a directory",
        Some(Errno::LOOP) => "too many levels of symbolic links",
        Some(Errno::NAMETOOLONG) => "file name too long",
        Some(Errno::XDEV) => "path escapes from parent",
        _ => return error.to_string(),
    };
    known.to_owned()
}
