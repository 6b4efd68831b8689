//! The cgroups of a host.

mod creation;
mod mounts;
mod own;
mod v1;
mod v2;

use std::path::Path;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kubelet_core::Clock;

pub use self::own::own_cgroup;
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

/// Adds the names of all cgroups below `name`. One that cannot be listed is left out, with those below it.
fn list_below(root: &Path, name: &str, listed: &mut Listed) -> Result<()> {
    use std::os::unix::fs::MetadataExt;

    let path = folder(root, name);
    let metadata = std::fs::metadata(&path).map_err(|error| Error::read(&path, error))?;
    listed.names.push(name.to_owned());
    // The entries of the folder itself: it has no folders.
    if metadata.nlink() == 2 {
        return Ok(());
    }
    let entries = std::fs::read_dir(&path).map_err(|error| Error::read(path, error))?;
    for entry in entries.flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let file_name = entry.file_name();
        let Some(child) = file_name.to_str().filter(|child| !child.ends_with(".mount")) else {
            continue;
        };
        let child = format!("{}/{child}", name.trim_end_matches('/'));
        match list_below(root, &child, listed) {
            Err(error) if !error.is_gone() => {
                tracing::warn!(%error, cgroup = %child, "list a cgroup: those below it are left out");
                listed.left_out.push(child);
            }
            _ => {}
        }
    }
    Ok(())
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
