//! A folder with exactly the permissions that are asked for.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Makes the folder and those above it, whatever the umask is.
pub(super) fn make_dir(dir: &Path, mode: u32) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    // What else the mode says is the file system's, or the pod's group's.
    match fs::metadata(dir)?.permissions().mode() & 0o777 == mode {
        true => Ok(()),
        false => fs::set_permissions(dir, Permissions::from_mode(mode)),
    }
}
