//! Sub-paths of volumes, mounted so that no container can replace them by something else (`pkg/volume/util/subpath`).
//!
//! Containers may write to a volume at any time, also symbolic links. So the path is first resolved with all links, and
//! must be in the volume. Then it is opened part by part, without following links: if a part was replaced meanwhile,
//! this is an error. The opened file or folder is mounted on one in the pod's folder, and the runtime gets that mount
//! point, which no container can change.

use std::io;
use std::path::{Component, Path, PathBuf};

use kubelet_core::VolumeLease;

use super::mounts::SubPath;

/// Returns the path that the runtime mounts for `sub_path` of `volume`. Missing folders are created with the mode of
/// the volume; the runtime would create them with another mode.
///
/// `volume` is canonical, and locked by the lease: it holds what the sub-path leads to, so that the runtime still finds it.
///
/// The path is the sub-path's mount point. If this process may not mount, it is the path in the volume itself. Then another
/// container with the same volume could still replace it before the runtime mounts it.
///
/// # Errors
///
/// The path leads out of the volume, a part of it was replaced meanwhile, or an error of the file system.
pub(super) fn prepare(volume: &Path, sub_path: &SubPath, lease: &VolumeLease) -> io::Result<PathBuf> {
    let place = resolve(volume, &sub_path.path)?;
    lease.hold(&place);
    let Some(target) = &sub_path.mount_point else {
        return Ok(place);
    };
    if held::mount(volume, &place, target)? {
        return Ok(target.clone());
    }
    tracing::warn!(
        container = sub_path.container,
        volume = sub_path.volume_mount,
        "this agent may not mount, so a container could replace the sub-path before the runtime mounts it"
    );
    Ok(place)
}

/// The path of `sub_path` in `volume`, with all links resolved. Both this and `volume` are canonical.
fn resolve(volume: &Path, sub_path: &Path) -> io::Result<PathBuf> {
    if !sub_path
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
    {
        return Err(outside(sub_path));
    }
    let place = volume.join(sub_path);
    let place = match place.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_dirs(volume, sub_path)?;
            place.canonicalize()
        }
        found => found,
    }?;
    match place.starts_with(volume) {
        true => Ok(place),
        false => Err(outside(sub_path)),
    }
}

/// Creates missing folders (`SafeMakeDir`).
fn make_dirs(volume: &Path, sub_path: &Path) -> io::Result<()> {
    let mut parts = sub_path.components().peekable();
    let mut there = volume.to_owned();
    while let Some(part) = parts.peek() {
        match there.join(part).canonicalize() {
            Ok(next) => there = next,
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(error),
        }
        parts.next();
    }
    if !there.starts_with(volume) {
        return Err(outside(sub_path));
    }
    let missing = parts.filter_map(|part| match part {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    held::make_dirs(volume, &there, missing)
}

fn outside(sub_path: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{} leads out of the volume", sub_path.display()),
    )
}

/// The steps that follow no link.
#[cfg(target_os = "linux")]
mod held {
    use std::ffi::OsStr;
    use std::fs::{self, DirBuilder, OpenOptions};
    use std::io::{self, ErrorKind};
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
    use std::path::Path;

    use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fchmod, fstat, mkdirat, open, openat, statat};
    use rustix::io::Errno;
    use rustix::mount::{UnmountFlags, mount_bind, unmount};

    /// Opens any kind of file; it has no side effects on a FIFO or a device.
    const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    const DIRECTORY: OFlags = OFlags::RDONLY
        .union(OFlags::DIRECTORY)
        .union(OFlags::NOFOLLOW)
        .union(OFlags::CLOEXEC);

    /// Opens a path in the volume; both are canonical (`doSafeOpen`).
    fn open_below(volume: &Path, place: &Path) -> io::Result<OwnedFd> {
        let mut opened = open(volume, PATH | OFlags::DIRECTORY, Mode::empty())?;
        let Ok(rest) = place.strip_prefix(volume) else {
            return Err(super::outside(place));
        };
        for part in rest {
            // This triggers an automount now. An error because it is not a folder does not matter.
            let mut folder = part.to_owned();
            folder.push("/");
            let _ = statat(&opened, &folder, AtFlags::SYMLINK_NOFOLLOW);
            opened = openat(&opened, part, PATH, Mode::empty())?;
            if file_type(&fstat(&opened)?) == FileType::Symlink {
                let what = format!("unexpected symlink found: {}", part.display());
                return Err(io::Error::new(ErrorKind::InvalidInput, what));
            }
        }
        Ok(opened)
    }

    /// Creates these nested folders in a folder of the volume.
    pub(super) fn make_dirs<'a>(
        volume: &Path,
        there: &Path,
        missing: impl Iterator<Item = &'a OsStr>,
    ) -> io::Result<()> {
        let mode = Mode::from_raw_mode(fs::metadata(volume)?.mode() & 0o7777);
        let mut parent = open_below(volume, there)?;
        for name in missing {
            let made = match mkdirat(&parent, name, Mode::RWXU) {
                Ok(()) => true,
                // The start of another container has created it meanwhile.
                Err(Errno::EXIST) => false,
                Err(error) => return Err(error.into()),
            };
            parent = openat(&parent, name, DIRECTORY, Mode::empty())?;
            if made {
                // The umask applies to the mode of a new folder.
                fchmod(&parent, mode)?;
            }
        }
        Ok(())
    }

    /// Mounts the path on `target`, unless it is already mounted (`doBindSubPath`). Returns whether this process may
    /// mount.
    pub(super) fn mount(volume: &Path, place: &Path, target: &Path) -> io::Result<bool> {
        let opened = open_below(volume, place)?;
        let wanted = fstat(&opened)?;
        if let Some(parent) = target.parent() {
            DirBuilder::new().recursive(true).mode(0o750).create(parent)?;
        }
        match target.symlink_metadata() {
            // The mount of an earlier start of the container.
            Ok(found) if (found.dev(), found.ino()) == (wanted.st_dev, wanted.st_ino) => return Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            // Also if it cannot be read, because the server or process behind the mount is gone.
            Ok(_) | Err(_) => {
                unmount_all(target)?;
                remove(target)?;
            }
        }
        match file_type(&wanted) {
            FileType::Directory => DirBuilder::new().mode(0o750).create(target)?,
            // A file is a mount point for everything that is not a folder: also for pipes, sockets and devices.
            _ => drop(
                OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o640)
                    .open(target)?,
            ),
        }
        let source = format!("/proc/self/fd/{}", opened.as_raw_fd());
        let mounted = mount_bind(source, target);
        if mounted.is_err() {
            // Leaves no empty mount point behind.
            let _ = remove(target);
        }
        match mounted {
            Ok(()) => Ok(true),
            Err(Errno::PERM | Errno::ACCESS) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Unmounts the mounts of earlier starts of the container.
    fn unmount_all(target: &Path) -> io::Result<()> {
        loop {
            match unmount(target, UnmountFlags::NOFOLLOW) {
                Ok(()) => {}
                // Nothing is mounted there, or this process may not mount.
                Err(Errno::INVAL | Errno::PERM) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn remove(target: &Path) -> io::Result<()> {
        match fs::remove_file(target) {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::IsADirectory | ErrorKind::PermissionDenied
                ) =>
            {
                fs::remove_dir(target)
            }
            removed => removed,
        }
    }

    fn file_type(stat: &Stat) -> FileType {
        FileType::from_raw_mode(stat.st_mode)
    }
}

/// Other systems do not mount.
#[cfg(not(target_os = "linux"))]
mod held {
    use std::ffi::OsStr;
    use std::io;
    use std::path::Path;

    pub(super) fn make_dirs<'a>(
        _: &Path,
        there: &Path,
        missing: impl Iterator<Item = &'a OsStr>,
    ) -> io::Result<()> {
        let mut dir = there.to_owned();
        dir.extend(missing);
        std::fs::create_dir_all(dir)
    }

    pub(super) fn mount(_: &Path, _: &Path, _: &Path) -> io::Result<bool> {
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn prepared(volume: &Path, sub_path: &str, mount_point: Option<PathBuf>) -> io::Result<PathBuf> {
        let sub_path = SubPath {
            path: sub_path.into(),
            volume_mount: "v".to_owned(),
            container: "c".to_owned(),
            mount_point,
        };
        prepare(&volume.canonicalize()?, &sub_path, &VolumeLease::default())
    }

    fn place(volume: &Path, sub_path: &str) -> io::Result<PathBuf> {
        prepared(volume, sub_path, None)
    }

    #[test]
    fn missing_folders_are_made_like_the_volume() {
        let volume = tempfile::tempdir().unwrap();
        fs::set_permissions(volume.path(), Permissions::from_mode(0o2770)).unwrap();
        let found = place(volume.path(), "a/./b").unwrap();
        assert!(found.ends_with("a/b"));
        for folder in ["a", "a/b"] {
            let mode = volume
                .path()
                .join(folder)
                .metadata()
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o7777, 0o2770, "{folder}");
        }
        assert_eq!(place(volume.path(), "a/b").unwrap(), found);
    }

    #[test]
    fn files_and_links_within_are_found() {
        let volume = tempfile::tempdir().unwrap();
        fs::create_dir(volume.path().join("..data")).unwrap();
        fs::write(volume.path().join("..data/key"), "x").unwrap();
        symlink("..data/key", volume.path().join("key")).unwrap();
        symlink("..data", volume.path().join("link")).unwrap();
        assert!(place(volume.path(), "key").unwrap().ends_with("..data/key"));
        assert!(place(volume.path(), "key/below").is_err());
        // Folders are created in the targets of links.
        assert!(place(volume.path(), "link/new").unwrap().ends_with("..data/new"));
    }

    #[test]
    fn no_way_leads_out() {
        let host = tempfile::tempdir().unwrap();
        let volume = host.path().join("volume");
        fs::create_dir(&volume).unwrap();
        fs::create_dir(host.path().join("volume-2")).unwrap();
        symlink("/etc", volume.join("absolute")).unwrap();
        symlink("../volume-2", volume.join("relative")).unwrap();
        symlink("missing", volume.join("dangling")).unwrap();
        symlink("loop", volume.join("loop")).unwrap();
        for sub_path in [
            "absolute",
            "absolute/passwd",
            "absolute/new",
            "relative",
            "relative/new",
            "dangling",
            "dangling/new",
            "loop",
            "..",
            "a/../..",
            "/etc",
        ] {
            assert!(place(&volume, sub_path).is_err(), "{sub_path}");
        }
        assert!(!host.path().join("volume-2/new").exists());
    }

    /// Whether the host lets this process mount.
    #[cfg(target_os = "linux")]
    fn may_mount(dir: &Path) -> bool {
        let [from, to] = ["from", "to"].map(|name| dir.join(name));
        [&from, &to]
            .into_iter()
            .for_each(|dir| fs::create_dir(dir).unwrap());
        let mounted = rustix::mount::mount_bind(&from, &to).is_ok();
        if mounted {
            unmounted(&to);
        } else {
            println!("SKIPPED: nothing may be mounted here");
        }
        mounted
    }

    #[cfg(target_os = "linux")]
    fn unmounted(target: &Path) {
        let flags = rustix::mount::UnmountFlags::NOFOLLOW;
        rustix::mount::unmount(target, flags).unwrap();
        let again = rustix::mount::unmount(target, flags);
        assert_eq!(again, Err(rustix::io::Errno::INVAL), "it was mounted once");
    }

    /// What is mounted there. Not by opening it: a test that starts a program meanwhile copies what is open, and an unmount fails.
    #[cfg(target_os = "linux")]
    fn inode(path: &Path) -> (u64, u64) {
        let found = fs::metadata(path).unwrap();
        (found.dev(), found.ino())
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_is_mounted_stays_whatever_becomes_of_the_volume() {
        let host = tempfile::tempdir().unwrap();
        if !may_mount(host.path()) {
            return;
        }
        let volume = host.path().join("volume");
        fs::create_dir_all(volume.join("dir")).unwrap();
        fs::write(volume.join("dir/file"), "first").unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, volume.join("fifo"), rustix::fs::Mode::RWXU).unwrap();
        let target = |index: &str| Some(host.path().join("volume-subpaths/v/c").join(index));
        let [dir, file, fifo] = [("dir", "0"), ("dir/file", "1"), ("fifo", "2")]
            .map(|(path, index)| prepared(&volume, path, target(index)).unwrap());
        assert_eq!(Some(dir.clone()), target("0"));
        // A container replaces it.
        let first = inode(&volume.join("dir/file"));
        fs::rename(volume.join("dir"), volume.join("away")).unwrap();
        symlink("/etc", volume.join("dir")).unwrap();
        assert_eq!(inode(&dir.join("file")), first);
        assert_eq!(inode(&file), first);
        assert!(prepared(&volume, "dir", target("0")).is_err());

        // The next start gets the same, or the replacement if there is one.
        fs::remove_file(volume.join("dir")).unwrap();
        fs::rename(volume.join("away"), volume.join("dir")).unwrap();
        assert_eq!(prepared(&volume, "dir", target("0")).unwrap(), dir);
        fs::rename(volume.join("dir"), volume.join("away")).unwrap();
        fs::write(volume.join("dir"), "second").unwrap();
        assert_eq!(prepared(&volume, "dir", target("0")).unwrap(), dir);
        assert_eq!(inode(&dir), inode(&volume.join("dir")));
        [dir, file, fifo].iter().for_each(|target| unmounted(target));
        assert_eq!(
            fs::read_dir(host.path().join("volume-subpaths/v/c"))
                .unwrap()
                .count(),
            3
        );
    }

    /// Earlier starts left mounts of files that are gone, in the volume of a config map that changed meanwhile. Perhaps their
    /// agent died before the container was started, or between two steps.
    #[cfg(target_os = "linux")]
    #[test]
    fn what_an_earlier_start_left_is_replaced() {
        let host = tempfile::tempdir().unwrap();
        if !may_mount(host.path()) {
            return;
        }
        let volume = host.path().join("volume");
        let publish = |version: &str| {
            fs::create_dir_all(volume.join(version)).unwrap();
            fs::write(volume.join(version).join("key"), version).unwrap();
            symlink(version, volume.join("..data_tmp")).unwrap();
            fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
        };
        publish("..1");
        symlink("..data/key", volume.join("key")).unwrap();
        let target = host.path().join("volume-subpaths/v/c/0");
        let prepare = || prepared(&volume, "key", Some(target.clone())).unwrap();
        let mounted = |version: &str| inode(&target) == inode(&volume.join(version).join("key"));
        assert_eq!(prepare(), target);
        // The file is gone, and still mounted.
        publish("..2");
        assert!(mounted("..1"));
        fs::remove_dir_all(volume.join("..1")).unwrap();
        assert_eq!(fs::metadata(&target).unwrap().nlink(), 0);
        assert_eq!(prepare(), target);
        assert!(mounted("..2"));
        // Several are mounted on each other.
        publish("..3");
        fs::write(host.path().join("other"), "other").unwrap();
        rustix::mount::mount_bind(host.path().join("other"), &target).unwrap();
        prepare();
        assert!(mounted("..3"));
        unmounted(&target);
        // A mount point without a mount, of a file or a folder.
        prepare();
        unmounted(&target);
        fs::remove_file(&target).unwrap();
        fs::create_dir(&target).unwrap();
        prepare();
        assert!(mounted("..3"));
        unmounted(&target);
    }

    #[test]
    fn the_lease_holds_what_the_sub_path_leads_to() {
        let volume = tempfile::tempdir().unwrap();
        let volume = volume.path().canonicalize().unwrap();
        fs::create_dir_all(volume.join("..1/deep")).unwrap();
        symlink("..1", volume.join("..data")).unwrap();
        symlink("..data/deep", volume.join("deep")).unwrap();
        let leases = kubelet_core::VolumeLeases::default();
        let lease = leases.lease(&kubelet_core::PodUid::new("1"));
        let sub_path = SubPath {
            path: "deep".into(),
            volume_mount: "v".to_owned(),
            container: "c".to_owned(),
            mount_point: None,
        };
        let is_held = || {
            leases
                .locked(&volume, |locked| locked.is_held(&volume.join("..1")))
                .unwrap()
        };
        assert!(!is_held());
        prepare(&volume, &sub_path, &lease).unwrap();
        assert!(is_held());
        drop(lease);
        assert!(!is_held());
    }

    /// A container replaces a folder by a link as fast as it can: either the folder is mounted, or nothing.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_link_that_appears_between_the_steps_is_never_followed() {
        let host = tempfile::tempdir().unwrap();
        let volume = host.path().join("volume");
        fs::create_dir_all(volume.join("dir/sub")).unwrap();
        fs::create_dir_all(host.path().join("secret/sub")).unwrap();
        fs::write(host.path().join("secret/sub/key"), "x").unwrap();
        symlink("../secret", volume.join("evil")).unwrap();
        let (stop, mounts) = (AtomicBool::new(false), may_mount(host.path()));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let flags = rustix::fs::RenameFlags::EXCHANGE;
                    let cwd = rustix::fs::CWD;
                    let _ =
                        rustix::fs::renameat_with(cwd, volume.join("dir"), cwd, volume.join("evil"), flags);
                }
            });
            let mut found = 0;
            for round in 0..2000 {
                let target = mounts.then(|| host.path().join(format!("volume-subpaths/v/c/{}", round % 2)));
                let Ok(got) = prepared(&volume, "dir/sub", target.clone()) else {
                    continue;
                };
                found += 1;
                if mounts {
                    assert!(!got.join("key").exists(), "the secret is mounted");
                } else {
                    assert!(got.starts_with(volume.canonicalize().unwrap()));
                }
            }
            stop.store(true, Ordering::Relaxed);
            println!("{found} of 2000 were found");
        });
        if mounts {
            for index in ["0", "1"] {
                let target = host.path().join("volume-subpaths/v/c").join(index);
                while rustix::mount::unmount(&target, rustix::mount::UnmountFlags::NOFOLLOW).is_ok() {}
            }
        }
        assert!(!host.path().join("secret/new").exists());
    }
}
