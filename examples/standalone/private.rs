//! Folders and files that another user of this machine must not have made: a folder for temporary files is open to all users.

use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

use crate::agent::Error;

/// Who may use a folder besides its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Others {
    /// Nobody: it has secrets.
    Nothing,
    /// They may look into it, as the processes of a pod with another user must.
    Read,
}

/// Creates a folder, or checks the one that is there: it must belong to this user.
pub(crate) fn folder(dir: &Path, others: Others) -> Result<(), Error> {
    let (mode, forbidden) = match others {
        Others::Nothing => (0o700, 0o077),
        Others::Read => (0o755, 0o022),
    };
    let failed = |error: io::Error| format!("{}: {error}", dir.display());
    DirBuilder::new().recursive(true).mode(mode).create(dir).map_err(failed)?;
    // The link itself, if it is one, and where it leads.
    let (link, metadata) = (dir.symlink_metadata().map_err(failed)?, dir.metadata().map_err(failed)?);
    is_own(dir, &link)?;
    is_own(dir, &metadata)?;
    if metadata.mode() & forbidden != 0 {
        let mode = metadata.mode() & 0o777;
        let (dir, may) = (dir.display(), if others == Others::Nothing { "use" } else { "write to" });
        return Err(format!(
            "{dir}: other users can {may} this folder (its mode is {mode:o}): check what is in it, then run chmod 700 {dir}, or \
             choose another folder with --root-dir"
        )
        .into());
    }
    Ok(())
}

/// Checks a file, if it is there: it must be a file that belongs to this user.
#[cfg(feature = "api")]
pub(crate) fn file(path: &Path) -> Result<(), Error> {
    let metadata = match path.symlink_metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("{}: {error}", path.display()).into()),
    };
    if !metadata.is_file() {
        return Err(format!("{}: it must be a regular file", path.display()).into());
    }
    is_own(path, &metadata)
}

fn is_own(path: &Path, metadata: &Metadata) -> Result<(), Error> {
    let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner == user {
        return Ok(());
    }
    let path = path.display();
    Err(format!(
        "{path} belongs to the user {owner}, not to the user {user} of this process: choose another folder with --root-dir"
    )
    .into())
}
