//! Reads one manifest file, and never waits for one.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

use crate::manifest::MAX_CONFIG_LENGTH;

/// Why a file was not read.
pub(super) enum ReadError {
    /// It is not there (any more).
    Gone,
    /// It is there but cannot be read, or should not be.
    Bad(String),
}

/// Reads a regular file, through links.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, ReadError> {
    // Before it is opened, since some devices act on that; and after, since it may have been replaced.
    check(&std::fs::metadata(path).map_err(|error| missing_or(path, error))?)?;
    let file = open(path).map_err(|error| missing_or(path, error))?;
    check(&file.metadata().map_err(|error| missing_or(path, error))?)?;
    let mut text = Vec::new();
    let mut limited = file.take(MAX_CONFIG_LENGTH as u64);
    limited
        .read_to_end(&mut text)
        .map_err(|error| missing_or(path, error))?;
    if limited.limit() == 0 {
        return Err(too_large());
    }
    Ok(text)
}

/// Opens a file so that a pipe without a writer, come at the last moment, is not waited for.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed());
    }
    options.open(path)
}

fn check(metadata: &Metadata) -> Result<(), ReadError> {
    if metadata.is_dir() {
        return Err(ReadError::Bad(
            "is a folder; folders within are not entered".into(),
        ));
    }
    if !metadata.is_file() {
        return Err(ReadError::Bad(format!(
            "is not a regular file but a {}",
            kind(metadata)
        )));
    }
    if metadata.len() >= MAX_CONFIG_LENGTH as u64 {
        return Err(too_large());
    }
    Ok(())
}

fn kind(metadata: &Metadata) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        let kind = metadata.file_type();
        if kind.is_fifo() {
            return "FIFO";
        }
        if kind.is_socket() {
            return "socket";
        }
    }
    let _ = metadata;
    "device"
}

fn too_large() -> ReadError {
    ReadError::Bad(format!(
        "is too large: a manifest is smaller than {MAX_CONFIG_LENGTH} bytes"
    ))
}

/// A link that leads nowhere is there all the same.
fn missing_or(path: &Path, error: io::Error) -> ReadError {
    if error.kind() != io::ErrorKind::NotFound {
        return ReadError::Bad(format!("cannot be read: {error}"));
    }
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => ReadError::Bad("is a broken link".into()),
        _ => ReadError::Gone,
    }
}
