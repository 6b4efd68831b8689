//! In-memory file systems, for files that must not be written to a disk (`StorageMediumMemory`).

use std::io;
use std::path::Path;

/// Mounts a tmpfs on the folder, with a size limit, and without swap if the kernel supports that
/// (`emptyDir.setupTmpfs`). Returns whether the files are in memory: without the permission to mount they are on the
/// disk, and existing files stay there.
#[cfg(target_os = "linux")]
pub(crate) fn mount(folder: &Path, size: Option<u64>) -> io::Result<bool> {
    use std::ffi::CString;

    use rustix::io::Errno;
    use rustix::mount::{MountFlags, mount};

    if is_mounted(folder)? {
        return Ok(true);
    }
    if std::fs::read_dir(folder)?.next().is_some() {
        return Ok(false);
    }
    let size = size.map(|bytes| format!("size={bytes}"));
    let with = |swap: Option<&str>| {
        let options: Vec<&str> = size.as_deref().into_iter().chain(swap).collect();
        let options = CString::new(options.join(",")).map_err(|_| Errno::INVAL)?;
        mount("tmpfs", folder, "tmpfs", MountFlags::empty(), options.as_c_str())
    };
    let mounted = match with(Some("noswap")) {
        Err(Errno::INVAL) => with(None),
        mounted => mounted,
    };
    match mounted {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::ACCESS | Errno::NODEV) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether the folder is on another file system than its parent.
#[cfg(target_os = "linux")]
pub(crate) fn is_mounted(folder: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;

    let device = |path: &Path| path.symlink_metadata().map(|metadata| metadata.dev());
    let parent = folder.parent().unwrap_or(folder);
    Ok(device(folder)? != device(parent)?)
}

/// Unmounts whatever is mounted on the folder of a volume, by this agent or by a kubelet that ran here before.
#[cfg(target_os = "linux")]
pub(crate) fn unmount(folder: &Path) -> io::Result<()> {
    use rustix::io::Errno;
    use rustix::mount::{UnmountFlags, unmount};

    match unmount(folder, UnmountFlags::empty()) {
        // Nothing is mounted there, or this process has no permission to mount.
        Ok(()) | Err(Errno::INVAL | Errno::PERM) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn mount(_: &Path, _: Option<u64>) -> io::Result<bool> {
    Ok(false)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn is_mounted(_: &Path) -> io::Result<bool> {
    Ok(false)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn unmount(_: &Path) -> io::Result<()> {
    Ok(())
}
