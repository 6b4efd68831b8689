//! Mounts on the folder of a volume.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::in_tree::Host;
use crate::filesystem::make_dir::make_dirs;
use crate::{Error, Result};

/// The permissions of folders that something is mounted on.
const PERMISSIONS: u32 = 0o750;

/// Mounts on a folder, which is created. If that fails, nothing is left of it.
pub(super) async fn mount(
    host: &Host,
    source: &str,
    dir: &Path,
    fs_type: &str,
    options: &[String],
) -> Result<()> {
    let made = dir.to_owned();
    host.run(move || make_dirs(&made, PERMISSIONS)).await?;
    let mounted = host.mounter.mount(source, dir, fs_type, options).await;
    if mounted.is_err()
        && let Err(error) = clean_up(host, dir).await
    {
        tracing::error!(dir = %dir.display(), %error, "Cannot remove a mount that failed");
    }
    mounted
}

/// Unmounts what is on the folder, and removes the folder. Files that lie under the mount stay: then it fails
/// (`CleanupMountPoint`).
pub(super) async fn clean_up(host: &Host, dir: &Path) -> Result<()> {
    if host.mounter.is_mount_point(dir).await? {
        host.mounter.unmount(dir).await?;
        if host.mounter.is_mount_point(dir).await? {
            let dir = dir.display();
            return Err(Error::failed(format!("failed to cleanup mount point {dir}")));
        }
    }
    let dir = dir.to_owned();
    host.run(move || match fs::remove_dir(&dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(
            crate::filesystem::path_error::path_io_error("remove", &dir, &error),
        ),
        _ => Ok(()),
    })
    .await
}
