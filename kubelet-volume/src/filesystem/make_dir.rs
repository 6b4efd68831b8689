//! Creates folders with exact permissions.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use super::path_error::path_io_error;

/// Creates the folder and its parents. Only the umask limits their mode. The error names the folder that cannot be
/// created, or the parent that is no folder (Go's `os.MkdirAll`).
pub(crate) fn make_dirs(dir: &Path, mode: u32) -> io::Result<()> {
    match fs::metadata(dir) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => {
            let no_folder = io::Error::from_raw_os_error(rustix::io::Errno::NOTDIR.raw_os_error());
            return Err(path_io_error("mkdir", dir, &no_folder));
        }
        Err(_) => {}
    }
    if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        make_dirs(parent, mode)?;
    }
    match DirBuilder::new().mode(mode).create(dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        made => made.map_err(|error| path_io_error("mkdir", dir, &error)),
    }
}

/// Creates the folder, whose permissions the umask does not limit, and its parents. Other bits of the mode belong to the
/// file system or to the pod's group, and stay (`emptyDir.setupDir`).
pub(crate) fn make_volume_dir(dir: &Path, permissions: u32) -> io::Result<()> {
    make_dirs(dir, permissions)?;
    match fs::symlink_metadata(dir)?.permissions().mode() & 0o777 == permissions {
        true => Ok(()),
        false => fs::set_permissions(dir, Permissions::from_mode(permissions)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_parent_that_is_no_folder() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        let error = make_dirs(&file.join("a/b"), 0o755).unwrap_err();
        let expected = format!("mkdir {}: not a directory", file.display());
        assert_eq!(error.to_string(), expected);
        make_dirs(&root.path().join("a/b"), 0o755).unwrap();
        make_dirs(&root.path().join("a/b"), 0o755).unwrap();
    }
}
