//! Finding a part of a volume without leaving the volume (`pkg/volume/util/subpath`).
//!
//! What is in a volume is the containers' to write, symbolic links too. So each step is looked at, and where it
//! leads out of the volume the mount is refused.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

/// The place of `sub_path` in `volume`, with all links resolved. Folders that are missing are made with the mode of
/// the volume, as one made by the runtime would have another.
///
/// # Errors
///
/// When it leads out of the volume, or on any trouble with the file system.
pub(super) fn resolve(volume: &Path, sub_path: &Path) -> io::Result<PathBuf> {
    let volume = volume.canonicalize()?;
    let mut place = volume.clone();
    for part in sub_path.components() {
        match part {
            Component::CurDir => continue,
            Component::Normal(name) => place.push(name),
            _ => return Err(outside(sub_path)),
        }
        if let Err(error) = place.symlink_metadata() {
            if error.kind() != io::ErrorKind::NotFound {
                return Err(error);
            }
            make_dir(&volume, &place)?;
        }
        place = place.canonicalize()?;
        if !place.starts_with(&volume) {
            return Err(outside(sub_path));
        }
    }
    Ok(place)
}

fn make_dir(volume: &Path, place: &Path) -> io::Result<()> {
    let mode = volume.metadata()?.permissions().mode() & 0o7777;
    match DirBuilder::new().mode(0o700).create(place) {
        // The mode that a folder is made with is cut by the umask.
        Ok(()) => std::fs::set_permissions(place, Permissions::from_mode(mode)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn outside(sub_path: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{} leads out of the volume", sub_path.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn missing_folders_are_made_like_the_volume() {
        let volume = tempfile::tempdir().unwrap();
        std::fs::set_permissions(volume.path(), Permissions::from_mode(0o770)).unwrap();
        let place = resolve(volume.path(), Path::new("a/./b")).unwrap();
        assert!(place.ends_with("a/b"));
        for folder in ["a", "a/b"] {
            let mode = volume
                .path()
                .join(folder)
                .metadata()
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o7777, 0o770, "{folder}");
        }
        assert_eq!(resolve(volume.path(), Path::new("a/b")).unwrap(), place);
    }

    #[test]
    fn files_and_links_within_are_found() {
        let volume = tempfile::tempdir().unwrap();
        std::fs::create_dir(volume.path().join("..data")).unwrap();
        std::fs::write(volume.path().join("..data/key"), "x").unwrap();
        symlink("..data/key", volume.path().join("key")).unwrap();
        let place = resolve(volume.path(), Path::new("key")).unwrap();
        assert!(place.ends_with("..data/key"));
        assert!(resolve(volume.path(), Path::new("key/below")).is_err());
    }

    #[test]
    fn no_way_leads_out() {
        let host = tempfile::tempdir().unwrap();
        let volume = host.path().join("volume");
        std::fs::create_dir(&volume).unwrap();
        std::fs::create_dir(host.path().join("volume-2")).unwrap();
        symlink("/etc", volume.join("absolute")).unwrap();
        symlink("../volume-2", volume.join("relative")).unwrap();
        symlink("missing", volume.join("dangling")).unwrap();
        for sub_path in [
            "absolute",
            "absolute/passwd",
            "relative",
            "relative/new",
            "dangling",
            "..",
            "a/../..",
            "/etc",
        ] {
            assert!(resolve(&volume, Path::new(sub_path)).is_err(), "{sub_path}");
        }
        assert!(!host.path().join("volume-2/new").exists());
    }
}
