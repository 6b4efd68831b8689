//! The cgroups of a host.

mod at_rest;
mod blkio;
mod creation;
mod mounts;
mod own;
mod round;
mod v1;
mod v2;

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kubelet_core::Clock;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, openat, statat};
use rustix::io::Errno;

pub use self::own::own_cgroup;
pub use self::round::Round;
pub use self::v1::CgroupsV1;
pub use self::v2::CgroupsV2;
use super::{Cgroups, Listed};
use crate::{Error, Result};

/// The cgroups of this host: version 2 if `/sys/fs/cgroup` is one, version 1 otherwise.
///
/// # Errors
///
/// If no cgroups are mounted.
pub fn host_cgroups(clock: Clock) -> Result<Arc<dyn Cgroups>> {
    let boot = boot_time(Path::new("/proc"), clock);
    let unified = Path::new("/sys/fs/cgroup");
    if unified.join("cgroup.controllers").exists() {
        return Ok(Arc::new(CgroupsV2::new(unified, Path::new("/proc"), boot)));
    }
    let mountinfo = Path::new("/proc/self/mountinfo");
    let text = std::fs::read_to_string(mountinfo).map_err(|error| Error::read(mountinfo, error))?;
    let controllers = mounts::controllers(&text);
    if controllers.is_empty() {
        return Err(Error::format(mountinfo, "failed to find cgroup mounts"));
    }
    Ok(Arc::new(CgroupsV1::new(controllers, boot)))
}

/// The minute in which the machine was started. cAdvisor shows no cgroup as older.
pub fn boot_time(proc: &Path, clock: Clock) -> Option<Timestamp> {
    let text = std::fs::read_to_string(proc.join("uptime")).ok()?;
    let seconds = text.split(['.', ' ']).next()?.parse::<i64>().ok()?;
    let boot = clock.now().as_second().checked_sub(seconds)?;
    Timestamp::from_second(boot - boot.rem_euclid(60)).ok()
}

/// The folder of cgroup `name` below the mountpoint `root`.
fn folder(root: &Path, name: &str) -> std::path::PathBuf {
    match name.trim_start_matches('/') {
        "" => root.to_owned(),
        relative => root.join(relative),
    }
}

/// The kernel accepts no path of so many bytes (`PATH_MAX`).
const LONGEST_PATH: usize = 4096;

/// Adds the names of all cgroups below `name`. One that cannot be listed is left out, with those below it.
fn list_below(root: &Path, name: &str, listed: &mut Listed) -> Result<()> {
    list_in(CWD, &folder(root, name), root, name, listed)
}

/// `path` is that of the cgroup, from the folder `above` on.
fn list_in(above: impl AsFd, path: &Path, root: &Path, name: &str, listed: &mut Listed) -> Result<()> {
    let failed = |error: Errno| Error::read(folder(root, name), error.into());
    if root.as_os_str().len() + name.len() >= LONGEST_PATH {
        return Err(failed(Errno::NAMETOOLONG));
    }
    let stat = statat(&above, path, AtFlags::empty()).map_err(failed)?;
    listed.names.push(name.to_owned());
    // The entries of the folder itself: it has no folders.
    if stat.st_nlink == 2 {
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(above, path, flags, Mode::empty()).map_err(failed)?;
    for child in folders_in(&opened).map_err(failed)? {
        let child_name = format!("{}/{child}", name.trim_end_matches('/'));
        match list_in(&opened, Path::new(&child), root, &child_name, listed) {
            Err(error) if !error.is_gone() => {
                tracing::warn!(%error, cgroup = %child_name, "list a cgroup: those below it are left out");
                listed.left_out.push(child_name);
            }
            _ => {}
        }
    }
    Ok(())
}

/// The folders directly in a folder that may be cgroups.
fn folders_in(opened: &OwnedFd) -> Result<Vec<String>, Errno> {
    let mut entries = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(opened, &mut entries);
    let mut folders = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let is_folder = match entry.file_type() {
            FileType::Unknown => statat(opened, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir()),
            kind => kind.is_dir(),
        };
        match entry.file_name().to_str() {
            Ok(name) if is_folder && !matches!(name, "." | "..") && !name.ends_with(".mount") => {
                folders.push(name.to_owned());
            }
            _ => {}
        }
    }
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_that_cannot_be_listed_hides_no_other() {
        let root = tempfile::tempdir().unwrap();
        // The path of the deepest folder is longer than the kernel accepts.
        let long = "x".repeat(250);
        let mut folder = root.path().join("pods/long");
        std::fs::create_dir_all(root.path().join("pods/poda")).unwrap();
        std::fs::create_dir_all(&folder).unwrap();
        let mut inside = rustix::fs::open(
            &folder,
            rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY,
            rustix::fs::Mode::empty(),
        )
        .unwrap();
        for _ in 0..17 {
            rustix::fs::mkdirat(&inside, &*long, rustix::fs::Mode::RWXU).unwrap();
            inside = rustix::fs::openat(
                &inside,
                &*long,
                rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY,
                rustix::fs::Mode::empty(),
            )
            .unwrap();
            folder.push(&long);
        }
        let mut listed = Listed::default();
        list_below(root.path(), "/pods", &mut listed).unwrap();
        assert!(listed.names.iter().any(|name| name == "/pods/poda"));
        assert_eq!(listed.left_out.len(), 1, "{:?}", listed.names.len());
    }
}
