//! Prepares the files of the host that a container needs before it is created. The work runs off the executor's
//! threads, so a disk that hangs delays only one container.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use kubelet_core::{Disk, VolumeLease};

use super::hosts::HostsFile;
use super::mounts::{PlannedMount, SubPath};
use super::{ConfigError, Result, subpath};
use kubelet_cri::v1;

/// The path of the hosts file, in a container and on the node (`etcHostsPath`).
pub(super) const ETC_HOSTS: &str = "/etc/hosts";

/// The files to prepare.
#[derive(Clone, Debug)]
pub(super) struct ContainerFiles {
    /// The folder of the container's logs.
    pub(super) logs_dir: PathBuf,
    /// The mounts of volumes.
    pub(super) mounts: Vec<PlannedMount>,
    /// Keeps the files that sub-paths of volumes lead to.
    pub(super) lease: VolumeLease,
    /// The managed hosts file, if the container gets one.
    pub(super) hosts: Option<HostsFile>,
    /// The termination log, if the container has one.
    pub(super) termination_log: Option<TerminationLog>,
    /// Whether SELinux is enabled, so that files created here need another label.
    pub(super) selinux: bool,
}

/// The file for a container's termination message.
#[derive(Clone, Debug)]
pub(super) struct TerminationLog {
    /// The folder of the file.
    pub(super) dir: PathBuf,
    /// The restart count of the container.
    pub(super) restart_count: u32,
    /// `terminationMessagePath`
    pub(super) container_path: String,
}

impl ContainerFiles {
    /// Prepares the files, and returns all mounts of the container.
    pub(super) async fn prepare(self, disk: Disk) -> Result<Vec<v1::Mount>> {
        let done = disk.run(move || Ok(self.prepare_blocking())).await;
        done.unwrap_or_else(|error| Err(ConfigError::Spec(format!("preparing files: {error}"))))
    }

    fn prepare_blocking(self) -> Result<Vec<v1::Mount>> {
        make_dir(&self.logs_dir, 0o755)?;
        let mut mounts = resolve(self.mounts, &self.lease)?;
        if let Some(hosts) = &self.hosts {
            write_hosts(hosts)?;
            mounts.push(v1::Mount {
                container_path: ETC_HOSTS.to_owned(),
                host_path: hosts.path.display().to_string(),
                selinux_relabel: self.selinux,
                ..Default::default()
            });
        }
        if let Some(log) = &self.termination_log {
            // The container can run without a termination message.
            match make_termination_log(log) {
                Ok(path) => mounts.push(v1::Mount {
                    container_path: log.container_path.clone(),
                    host_path: path.display().to_string(),
                    selinux_relabel: self.selinux,
                    ..Default::default()
                }),
                Err(error) => tracing::error!(%error, "cannot create a termination log"),
            }
        }
        Ok(mounts)
    }
}

/// Creates a folder and its missing parents.
pub(super) fn make_dir(path: &Path, mode: u32) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .map_err(|error| ConfigError::io(path, &error))
}

/// Resolves the sub-paths. All those of one volume lead to the same version of its files.
fn resolve(planned: Vec<PlannedMount>, lease: &VolumeLease) -> Result<Vec<v1::Mount>> {
    let (mut mounts, sub_paths): (Vec<_>, Vec<_>) = planned
        .into_iter()
        .map(|planned| (planned.mount, planned.sub_path))
        .unzip();
    let mut of_volumes: BTreeMap<PathBuf, Vec<(usize, SubPath)>> = BTreeMap::new();
    for (index, sub_path) in sub_paths.into_iter().enumerate() {
        if let Some(sub_path) = sub_path {
            let volume = PathBuf::from(&mounts[index].host_path);
            of_volumes.entry(volume).or_default().push((index, sub_path));
        }
    }
    for (volume, sub_paths) in of_volumes {
        let resolved = lease.locked(&volume, |locked| {
            for (index, sub_path) in &sub_paths {
                let place = subpath::prepare(locked.path(), sub_path, lease);
                let place = place.map_err(|error| cannot_prepare(&volume, sub_path, &error))?;
                mounts[*index].host_path = place.display().to_string();
            }
            Ok(())
        });
        resolved.unwrap_or_else(|error| match sub_paths.first() {
            Some((_, sub_path)) => Err(cannot_prepare(&volume, sub_path, &error)),
            None => Ok(()),
        })?;
    }
    Ok(mounts)
}

/// The problem is only logged, not returned, because the author of a pod must not learn about the host's files.
fn cannot_prepare(volume: &Path, sub_path: &SubPath, error: &io::Error) -> ConfigError {
    tracing::error!(
        container = sub_path.container,
        volume = sub_path.volume_mount,
        host_path = %volume.display(),
        %error,
        "cannot prepare a sub-path"
    );
    ConfigError::Spec(format!(
        "failed to prepare subPath for volumeMount {:?} of container {:?}",
        sub_path.volume_mount, sub_path.container
    ))
}

fn write_hosts(hosts: &HostsFile) -> Result<()> {
    let content = hosts.content(|| {
        std::fs::read(ETC_HOSTS).map_err(|error| ConfigError::io(Path::new(ETC_HOSTS), &error))
    })?;
    if let Some(pod_dir) = hosts.path.parent() {
        make_dir(pod_dir, 0o750)?;
    }
    // Written in place, because running containers have this file mounted.
    std::fs::write(&hosts.path, content)
        .and_then(|()| std::fs::set_permissions(&hosts.path, Permissions::from_mode(0o644)))
        .map_err(|error| ConfigError::io(&hosts.path, &error))
}

/// Each start has its own file, named by a hexadecimal number.
fn make_termination_log(log: &TerminationLog) -> Result<PathBuf> {
    make_dir(&log.dir, 0o750)?;
    for number in log.restart_count..=u32::MAX {
        let path = log.dir.join(format!("{number:08x}"));
        let created = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o666)
            .open(&path);
        match created {
            // Every user may write it, independent of this process's umask.
            Ok(_) => {
                return std::fs::set_permissions(&path, Permissions::from_mode(0o666))
                    .map(|()| path.clone())
                    .map_err(|error| ConfigError::io(&path, &error));
            }
            // A leftover of a start that failed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(ConfigError::io(&path, &error)),
        }
    }
    Err(ConfigError::Spec(format!(
        "{}: no name is free",
        log.dir.display()
    )))
}
