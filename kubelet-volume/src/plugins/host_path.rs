//! Files and folders of the host (`pkg/volume/hostpath`).

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{HostPathVolumeSource, Volume};

use super::in_tree::Host;
use crate::filesystem::make_dir::make_dirs;
use crate::filesystem::path_error::path_io_error;
use crate::{Attributes, Error, OnDisk, PodMount, Result, SetUp, VolumePlugin, VolumeSpec};

/// `hostPath` volumes, also as persistent volumes. Nothing is mounted: containers get the path itself.
pub(super) struct HostPathPlugin {
    host: Arc<Host>,
}

impl HostPathPlugin {
    pub(super) fn new(host: Arc<Host>) -> Self {
        Self { host }
    }
}

fn source(spec: &VolumeSpec) -> Option<&HostPathVolumeSource> {
    let of_pod = spec.pod_volume().and_then(|volume| volume.host_path.as_ref());
    let persistent = || spec.persistent_volume()?.host_path.as_ref();
    of_pod.or_else(persistent)
}

#[async_trait]
impl VolumePlugin for HostPathPlugin {
    fn name(&self) -> &str {
        "kubernetes.io/host-path"
    }

    fn can_support(&self, spec: &VolumeSpec) -> bool {
        source(spec).is_some()
    }

    fn path(&self, mount: &PodMount) -> PathBuf {
        source(&mount.spec)
            .map(|source| PathBuf::from(&source.path))
            .unwrap_or_default()
    }

    fn attributes(&self, mount: &PodMount) -> Attributes {
        Attributes {
            read_only: mount.spec.read_only,
            managed: false,
            selinux_relabel: false,
        }
    }

    async fn set_up(&self, mount: &PodMount) -> Result<SetUp> {
        let source = source(&mount.spec).ok_or_else(|| Error::failed("the volume has no hostPath"))?;
        validate(&source.path)?;
        let path = PathBuf::from(&source.path);
        let kind = source.type_.clone().unwrap_or_default();
        self.host.run(move || check(&path, &kind)).await?;
        Ok(SetUp::default())
    }

    async fn tear_down(&self, _: &OnDisk) -> Result<()> {
        Ok(())
    }

    fn supports_mount_options(&self) -> bool {
        false
    }

    async fn reconstruct(&self, found: &OnDisk) -> Result<VolumeSpec> {
        Ok(VolumeSpec::of_pod(Arc::new(Volume {
            name: found.name.clone(),
            host_path: Some(HostPathVolumeSource {
                path: found.name.clone(),
                type_: None,
            }),
            ..Volume::default()
        })))
    }
}

/// `ValidatePathNoBacksteps`
fn validate(path: &str) -> Result<()> {
    if path.split('/').any(|part| part == "..") {
        return Err(Error::failed(format!(
            "invalid HostPath `{path}`: must not contain '..'"
        )));
    }
    Ok(())
}

/// Checks that `path` matches the volume's `type`, and creates it if the type says so (`checkType`).
fn check(path: &Path, kind: &str) -> io::Result<()> {
    let wrong = |what: &str| {
        let message = format!("hostPath type check failed: {} is not {what}", path.display());
        Err(io::Error::other(message))
    };
    let found = fs::metadata(path).map(|found| found.file_type());
    match kind {
        "" => return Ok(()),
        "DirectoryOrCreate" if found.is_err() => return make_dirs(path, 0o755),
        "FileOrCreate" if found.is_err() => return make_file(path),
        _ => {}
    }
    let is = |test: fn(&fs::FileType) -> bool| found.as_ref().is_ok_and(test);
    match kind {
        "DirectoryOrCreate" | "Directory" if !is(fs::FileType::is_dir) => wrong("a directory"),
        "FileOrCreate" | "File" if !is(fs::FileType::is_file) => wrong("a file"),
        "Socket" if !is(FileTypeExt::is_socket) => wrong("a socket file"),
        "CharDevice" if !is(FileTypeExt::is_char_device) => wrong("a character device"),
        "BlockDevice" if !is(FileTypeExt::is_block_device) => wrong("a block device"),
        "DirectoryOrCreate" | "Directory" | "FileOrCreate" | "File" | "Socket" | "CharDevice"
        | "BlockDevice" => Ok(()),
        other => Err(io::Error::other(format!("{other} is an invalid volume type"))),
    }
}

/// Creates an empty file; its folder must exist (`makeFile`).
fn make_file(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let opened = options.create(true).append(true).mode(0o644).open(path);
    opened
        .map(drop)
        .map_err(|error| path_io_error("open", path, &error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_path_must_be_what_its_type_says() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let _listener = UnixListener::bind(at("sock")).unwrap();
        symlink(at("made"), at("link")).unwrap();
        let failed = "hostPath type check failed: {} is not";
        for (name, kind, expected) in [
            ("absent", "", Ok(())),
            ("absent", "Directory", Err(format!("{failed} a directory"))),
            ("absent", "File", Err(format!("{failed} a file"))),
            ("made", "DirectoryOrCreate", Ok(())),
            ("made", "Directory", Ok(())),
            ("link", "Directory", Ok(())),
            ("made", "FileOrCreate", Err(format!("{failed} a file"))),
            ("file", "FileOrCreate", Ok(())),
            ("file", "File", Ok(())),
            ("file", "DirectoryOrCreate", Err(format!("{failed} a directory"))),
            ("file", "Socket", Err(format!("{failed} a socket file"))),
            ("file", "CharDevice", Err(format!("{failed} a character device"))),
            ("file", "BlockDevice", Err(format!("{failed} a block device"))),
            ("sock", "Socket", Ok(())),
            ("file", "Magic", Err("Magic is an invalid volume type".to_owned())),
            (
                "no/such",
                "FileOrCreate",
                Err("open {}: no such file or directory".to_owned()),
            ),
            (
                "file/x",
                "FileOrCreate",
                Err("open {}: not a directory".to_owned()),
            ),
            ("no/such/folder", "DirectoryOrCreate", Ok(())),
        ] {
            let checked = check(&at(name), kind).map_err(|error| error.to_string());
            let expected = expected.map_err(|text| text.replace("{}", &at(name).display().to_string()));
            assert_eq!(checked, expected, "{name} {kind}");
        }
        check(Path::new("/dev/null"), "CharDevice").unwrap();
        assert!(at("no/such/folder").is_dir());
    }

    #[test]
    fn a_path_without_backsteps_is_valid() {
        validate("/a..b/c").unwrap();
        let error = validate("/a/../b").unwrap_err().to_string();
        assert_eq!(error, "invalid HostPath `/a/../b`: must not contain '..'");
    }
}
