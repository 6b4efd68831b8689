//! The files of a container: a folder of its own is its root, and the volumes of its pod are folders in it.
//!
//! WASI opens folders, not files. So a single file that is mounted, such as the one for the termination message, is a link to it in
//! the container's own folder; a file that the container must not write is a copy. If the root is read-only, the folder of a file that
//! the container may write is opened for itself. A file cannot be mounted inside a volume.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use kubelet_cri::verbs::{ContainerSpec, Mount};
use wasmtime_wasi::{FsPerms, WasiCtxBuilder};

/// The folder of a container. It is deleted unless it is kept.
pub(crate) struct Root {
    dir: PathBuf,
    kept: bool,
}

impl Root {
    pub(crate) fn create(dir: PathBuf) -> io::Result<Self> {
        remove(&dir)?;
        fs::create_dir_all(&dir)?;
        Ok(Self { dir, kept: false })
    }

    /// Mounts the volumes, and opens all folders for the module: the root first, then the volumes in the order of the pod.
    pub(crate) fn open(&self, spec: &ContainerSpec, wasi: &mut WasiCtxBuilder) -> io::Result<()> {
        let (folders, files): (Vec<_>, Vec<_>) =
            spec.mounts.iter().partition(|mount| mount.host_path.is_dir());
        // The module would see the folder of the volume there, without the file. The agent adds `/etc/hosts` to each container, and no
        // module reads it to find a host.
        let is_hidden = |file: &Mount| {
            let is_inside = |folder: &&Mount| file.container_path.starts_with(&folder.container_path);
            file.container_path != Path::new("/etc/hosts") && folders.iter().any(is_inside)
        };
        if let Some(file) = files.iter().find(|file| is_hidden(file)) {
            let why = "a file cannot be mounted inside a volume";
            return Err(about(file, io::Error::new(io::ErrorKind::Unsupported, why)));
        }
        for mount in &spec.mounts {
            self.mount(mount).map_err(|error| about(mount, error))?;
        }
        wasi.preopened_dir(&self.dir, "/", perms(spec.read_only_root)).map_err(io::Error::other)?;
        for mount in folders {
            let path = mount.container_path.to_string_lossy();
            let opened = wasi.preopened_dir(&mount.host_path, path, perms(mount.read_only));
            opened.map_err(|error| about(mount, io::Error::other(error)))?;
        }
        if spec.read_only_root {
            self.open_folders_of(files.into_iter().filter(|mount| !mount.read_only), wasi)?;
        }
        Ok(())
    }

    /// Opens the folders of these files, which the module may write although the root is read-only.
    fn open_folders_of<'a>(
        &self,
        files: impl Iterator<Item = &'a Mount>,
        wasi: &mut WasiCtxBuilder,
    ) -> io::Result<()> {
        let mut opened = BTreeSet::new();
        for mount in files {
            let folder = mount.container_path.parent().filter(|folder| folder.parent().is_some());
            let folder = folder.ok_or_else(|| {
                let why = "the root is read-only, so a file that can be written must be in a folder";
                about(mount, io::Error::new(io::ErrorKind::Unsupported, why))
            })?;
            if opened.insert(folder) {
                let path = self.inside(folder)?;
                let opened = wasi.preopened_dir(path, folder.to_string_lossy(), FsPerms::ReadWrite);
                opened.map_err(|error| about(mount, io::Error::other(error)))?;
            }
        }
        Ok(())
    }

    /// Makes the place of a mount in the root; a file is there afterwards.
    fn mount(&self, mount: &Mount) -> io::Result<()> {
        let at = self.inside(&mount.container_path)?;
        if fs::metadata(&mount.host_path)?.is_dir() {
            return fs::create_dir_all(at);
        }
        if let Some(folder) = at.parent() {
            fs::create_dir_all(folder)?;
        }
        match mount.read_only {
            true => fs::copy(&mount.host_path, at).map(drop),
            false => fs::hard_link(fs::canonicalize(&mount.host_path)?, at),
        }
    }

    /// A path of the container, on the host.
    fn inside(&self, path: &Path) -> io::Result<PathBuf> {
        let mut inside = self.dir.clone();
        for component in path.components() {
            match component {
                Component::Normal(name) => inside.push(name),
                Component::RootDir | Component::CurDir => {}
                _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path has a `..`")),
            }
        }
        Ok(inside)
    }

    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if !self.kept {
            let _ = remove(&self.dir);
        }
    }
}

/// Deletes the folder of a container, if it is there.
pub(crate) fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn perms(read_only: bool) -> FsPerms {
    if read_only { FsPerms::ReadOnly } else { FsPerms::ReadWrite }
}

fn about(mount: &Mount, error: io::Error) -> io::Error {
    let (from, to) = (mount.host_path.display(), mount.container_path.display());
    io::Error::new(error.kind(), format!("cannot mount {from} at {to}: {error}"))
}

#[cfg(test)]
mod tests {
    use kubelet_cri::verbs::ContainerKey;

    use super::*;

    fn spec(mounts: impl Into<Vec<Mount>>) -> ContainerSpec {
        let mut spec = ContainerSpec::new(ContainerKey::new("uid", "main", 0), "file/a.wat");
        spec.mounts = mounts.into();
        spec
    }

    #[test]
    fn a_file_is_a_link_or_a_copy_and_stays_in_the_root() {
        let host = tempfile::tempdir().unwrap();
        let dir = host.path().join("root");
        let (message, config) = (host.path().join("message"), host.path().join("config"));
        fs::write(&message, "").unwrap();
        fs::write(&config, "a").unwrap();
        let root = Root::create(dir.clone()).unwrap();
        let mut read_only = Mount::new(&config, "/etc/app/config");
        read_only.read_only = true;
        let mounts =
            [Mount::new(&message, "/dev/termination-log"), read_only, Mount::new(host.path(), "/data")];
        root.open(&spec(mounts), &mut WasiCtxBuilder::new()).unwrap();
        fs::write(dir.join("dev/termination-log"), "why").unwrap();
        fs::write(dir.join("etc/app/config"), "b").unwrap();
        assert_eq!(fs::read_to_string(&message).unwrap(), "why");
        assert_eq!(fs::read_to_string(&config).unwrap(), "a");

        let outside = root.mount(&Mount::new(&config, "/../x")).unwrap_err();
        assert_eq!(outside.to_string(), "the path has a `..`");
        drop(root);
        assert!(!dir.exists());
        assert_eq!(fs::read_to_string(&message).unwrap(), "why");
    }

    #[test]
    fn a_file_cannot_be_mounted_inside_a_volume() {
        let host = tempfile::tempdir().unwrap();
        let (root, file) = (Root::create(host.path().join("root")).unwrap(), host.path().join("file"));
        fs::write(&file, "").unwrap();
        let mounts = [Mount::new(&file, "/data/a/file"), Mount::new(host.path(), "/data")];
        let error = root.open(&spec(mounts), &mut WasiCtxBuilder::new()).unwrap_err();
        assert!(error.to_string().contains("/data/a/file: a file cannot be mounted"), "{error}");
        // One that the agent adds; and a name that only begins alike.
        let mounts = [Mount::new(&file, "/etc/hosts"), Mount::new(host.path(), "/etc")];
        root.open(&spec(mounts), &mut WasiCtxBuilder::new()).unwrap();
        let mounts = [Mount::new(&file, "/data-2/file"), Mount::new(host.path(), "/data")];
        root.open(&spec(mounts), &mut WasiCtxBuilder::new()).unwrap();
    }

    #[test]
    fn a_file_at_the_top_of_a_read_only_root_cannot_be_written() {
        let host = tempfile::tempdir().unwrap();
        let (root, file) = (Root::create(host.path().join("root")).unwrap(), host.path().join("file"));
        fs::write(&file, "").unwrap();
        let mut spec = spec([Mount::new(&file, "/file")]);
        spec.read_only_root = true;
        let error = root.open(&spec, &mut WasiCtxBuilder::new()).unwrap_err();
        assert!(error.to_string().contains("must be in a folder"), "{error}");
        spec.mounts[0].read_only = true;
        root.open(&spec, &mut WasiCtxBuilder::new()).unwrap();
    }
}
