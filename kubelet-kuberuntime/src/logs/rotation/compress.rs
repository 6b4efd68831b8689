//! Compresses a rotated log.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::super::files::{COMPRESSED, TEMPORARY, with_suffix};

/// Compresses a file to `<file>.gz` and removes it. `<file>.gz` exists only when it is complete, and only then the file
/// is removed (`compressLog`).
pub(in super::super) fn compress(path: &Path) -> io::Result<()> {
    let mut from = File::open(path)?;
    let mode = from.metadata()?.permissions().mode();
    let temporary = with_suffix(path, TEMPORARY);
    let written = write(&mut from, &temporary, mode)
        .and_then(|()| fs::rename(&temporary, with_suffix(path, COMPRESSED)));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written?;
    fs::remove_file(path)
}

fn write(from: &mut File, to: &Path, mode: u32) -> io::Result<()> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(to)?;
    let mut encoder = GzEncoder::new(file, Compression::default());
    io::copy(from, &mut encoder)?;
    encoder.finish()?;
    Ok(())
}
