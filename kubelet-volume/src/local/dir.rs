//! Creates folders with exact permissions.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Creates the folder and its parents; the umask has no effect.
pub(crate) fn make_dir(dir: &Path, mode: u32) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    // Other bits of the mode belong to the file system or to the pod's group.
    match fs::metadata(dir)?.permissions().mode() & 0o777 == mode {
        true => Ok(()),
        false => fs::set_permissions(dir, Permissions::from_mode(mode)),
    }
}
