//! Folders that another user of this machine must not have made: a folder for temporary files is open to all users.

use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

use crate::agent::Error;

/// Creates a folder, or checks the one that is there: it must belong to this user. Others may look into it, as the processes of a
/// pod with another user must.
pub(crate) fn folder(dir: &Path) -> Result<(), Error> {
    let failed = |error: io::Error| format!("{}: {error}", dir.display());
    DirBuilder::new().recursive(true).mode(0o755).create(dir).map_err(failed)?;
    // The link itself, if it is one, and where it leads.
    let (link, metadata) = (dir.symlink_metadata().map_err(failed)?, dir.metadata().map_err(failed)?);
    is_own(dir, &link)?;
    is_own(dir, &metadata)?;
    if metadata.mode() & 0o022 != 0 {
        let (mode, dir) = (metadata.mode() & 0o777, dir.display());
        return Err(format!(
            "{dir}: other users can write to this folder (its mode is {mode:o}): check what is in it, then run chmod 700 {dir}, or \
             choose another folder with --root-dir"
        )
        .into());
    }
    Ok(())
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
