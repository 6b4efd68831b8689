//! Compresses a log that was rotated.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::super::files::{COMPRESSED, TEMPORARY, with_suffix};

/// Compresses a file to `<file>.gz` and removes it. There is a file of that name only when it is whole, and the file goes
/// only then (`compressLog`).
pub(super) fn compress(path: &Path) -> io::Result<()> {
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
