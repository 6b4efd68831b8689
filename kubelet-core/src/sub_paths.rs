//! Unmounts sub-paths of volumes (`CleanSubPaths`).

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::{PodUid, RootDir};

/// Unmounts and removes everything in `<pod>/volume-subpaths/<volume>/<container>/<index>`, and that folder. Only empty
/// folders are removed: a mount that remains is an error and is left alone.
pub(crate) fn clean_sub_paths(dir: &Path) -> io::Result<()> {
    clean(dir, 2)
}

/// Unmounts and removes the sub-paths of one volume of a pod, before the volume is unmounted (`CleanSubPaths`). Blocks the
/// thread.
///
/// # Errors
///
/// If something is still mounted, or cannot be removed.
pub fn clean_volume_sub_paths(root_dir: &RootDir, uid: &PodUid, volume: &str) -> io::Result<()> {
    clean(&root_dir.pod_volume_subpaths_dir(uid).join(volume), 1)
}

/// How many levels below the folder's entries the mounts are.
fn clean(dir: &Path, levels: u32) -> io::Result<()> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if levels > 0 && entry.file_type()?.is_dir() {
            clean(&entry.path(), levels - 1)?;
        } else {
            unmount_all(&entry.path())?;
            remove_empty(&entry.path())?;
        }
    }
    fs::remove_dir(dir)
}

fn remove_empty(path: &Path) -> io::Result<()> {
    match path.symlink_metadata()?.is_dir() {
        true => fs::remove_dir(path),
        false => fs::remove_file(path),
    }
}

/// Unmounts whatever is mounted there. Without the permission to unmount, this process has not mounted anything either.
#[cfg(target_os = "linux")]
fn unmount_all(path: &Path) -> io::Result<()> {
    use rustix::io::Errno;
    use rustix::mount::{UnmountFlags, unmount};

    loop {
        match unmount(path, UnmountFlags::NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::INVAL | Errno::PERM) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn unmount_all(_: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_empty_goes_and_nothing_else() {
        let pod = tempfile::tempdir().unwrap();
        let dir = pod.path().join("volume-subpaths");
        clean_sub_paths(&dir).unwrap();
        for place in ["v/c/0", "v/d/1", "w/c/0"] {
            fs::create_dir_all(dir.join(place)).unwrap();
        }
        fs::write(dir.join("v/c/2"), "").unwrap();
        clean_sub_paths(&dir).unwrap();
        assert!(!dir.exists());
        // As if it were mounted, and could not be unmounted.
        fs::create_dir_all(dir.join("v/c/0/precious")).unwrap();
        assert!(clean_sub_paths(&dir).is_err());
        assert!(dir.join("v/c/0/precious").exists());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_mounted_is_unmounted_and_left_alone() {
        let pod = tempfile::tempdir().unwrap();
        let (dir, volume) = (pod.path().join("volume-subpaths"), pod.path().join("volume"));
        fs::create_dir_all(dir.join("v/c/0")).unwrap();
        fs::write(dir.join("v/c/1"), "").unwrap();
        fs::create_dir(&volume).unwrap();
        fs::write(volume.join("precious"), "x").unwrap();
        let mounts = [
            (volume.clone(), dir.join("v/c/0")),
            (volume.clone(), dir.join("v/c/0")),
            (volume.join("precious"), dir.join("v/c/1")),
        ];
        for (from, to) in mounts {
            if rustix::mount::mount_bind(from, to).is_err() {
                println!("SKIPPED: nothing may be mounted here");
                return;
            }
        }
        clean_sub_paths(&dir).unwrap();
        assert!(!dir.exists());
        assert_eq!(fs::read_to_string(volume.join("precious")).unwrap(), "x");
    }
}
