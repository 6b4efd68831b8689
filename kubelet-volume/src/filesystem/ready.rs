//! Marks a volume as set up (`volumeutil.SetReady`).

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;

use super::make_dir::make_dirs;

const READY: &str = "ready";

/// Whether the folder has the mark (`IsReady`).
pub(crate) fn is_ready(dir: &Path) -> bool {
    fs::metadata(dir.join(READY)).is_ok_and(|found| found.is_file())
}

/// Creates the mark. A failure is logged: the volume is then set up again (`SetReady`).
pub(crate) fn set_ready(dir: &Path) {
    let made = make_dirs(dir, 0o750).and_then(|()| File::create(dir.join(READY)));
    if let Err(error) = made {
        tracing::error!(dir = %dir.display(), %error, "Cannot mark a volume as ready");
    }
}

/// Removes the folder with the mark.
pub(crate) fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
