//! Folders and files that only the user of the agent may use: they have keys and secrets.

use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

use kubelet_core::files::Replace;

use crate::error::{Error, Result};

/// Creates a folder, or checks the one that is there: it must belong to this user, and no other may use it.
pub(super) fn folder(dir: &Path) -> Result<()> {
    let failed = |source| cannot_use(dir, source);
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(failed)?;
    // The link itself, if it is one, and where it leads.
    let (link, metadata) = (
        dir.symlink_metadata().map_err(failed)?,
        dir.metadata().map_err(failed)?,
    );
    is_own(dir, &link)?;
    is_own(dir, &metadata)?;
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        let dir_shown = dir.display();
        return Err(not_private(
            dir,
            format!(
                "other users can use this folder (its mode is {mode:o}): check what is in it, then run chmod 700 {dir_shown}, or \
                 choose another folder"
            ),
        ));
    }
    Ok(())
}

/// Checks a file, if it is there: it must be a file that belongs to this user.
pub(super) fn file(path: &Path) -> Result<()> {
    let metadata = match path.symlink_metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(cannot_use(path, error)),
    };
    if !metadata.is_file() {
        return Err(not_private(path, "it must be a regular file".to_owned()));
    }
    is_own(path, &metadata)
}

/// Replaces a file by one that only this user can read.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    let private = Replace {
        private: true,
        durable: false,
    };
    private.write(path, &path.with_extension("new"), text.as_bytes())
}

fn is_own(path: &Path, metadata: &Metadata) -> Result<()> {
    let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
    match owner == user {
        true => Ok(()),
        false => {
            let problem = format!(
                "it belongs to the user {owner}, not to the user {user} of this process: choose another folder"
            );
            Err(not_private(path, problem))
        }
    }
}

fn not_private(path: &Path, problem: String) -> Error {
    Error::NotPrivate {
        path: path.to_owned(),
        problem,
    }
}

fn cannot_use(path: &Path, source: io::Error) -> Error {
    Error::Io {
        what: path.display().to_string(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_folder_that_others_can_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("a/b");
        folder(&own).unwrap();
        assert_eq!(own.metadata().unwrap().mode() & 0o777, 0o700);
        folder(&own).unwrap();
        std::fs::set_permissions(&own, Permissions::from_mode(0o750)).unwrap();
        let refused = folder(&own).unwrap_err().to_string();
        assert!(refused.contains("its mode is 750"), "{refused}");
    }

    #[test]
    fn a_link_is_no_file_for_secrets() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.redb");
        file(&path).unwrap();
        symlink("elsewhere", &path).unwrap();
        let refused = file(&path).unwrap_err();
        assert!(matches!(refused, Error::NotPrivate { .. }), "{refused}");
    }

    #[test]
    fn what_a_killed_agent_left_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        std::fs::write(path.with_extension("new"), "half").unwrap();
        write(&path, "whole").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "whole");
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
    }
}
