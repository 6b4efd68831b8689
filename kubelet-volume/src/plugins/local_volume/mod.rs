//! Folders and disks of the host as persistent volumes (`pkg/volume/local`).

mod block;
mod device;

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{LocalVolumeSource, PersistentVolume, PersistentVolumeSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubelet_core::{Event, EventType, VolumeUsage};
use parking_lot::Mutex;

use super::in_tree::Host;
use super::{bind, mount_options};
use crate::filesystem::file_kind::{FileKind, file_kind};
use crate::filesystem::mount_table::as_in_table;
use crate::filesystem::ownership::VolumeOwnership;
use crate::filesystem::path_error::reason;
use crate::{
    Attributes, BlockVolumePlugin, DeviceMountableVolumePlugin, Error, NodeExpandableVolumePlugin, OnDisk,
    PodMount, Result, SetUp, VolumePlugin, VolumeSpec,
};

const NAME: &str = "kubernetes.io/local-volume";

/// `local` persistent volumes: a folder, which is bind-mounted for each pod; or a disk, which is mounted for the node and
/// then likewise, or given to containers as a device.
pub(super) struct LocalVolumePlugin {
    host: Arc<Host>,
    /// One set-up at a time for each path: the first pod that uses it decides on its group.
    locks: Mutex<HashMap<PathBuf, Weak<tokio::sync::Mutex<()>>>>,
    /// What the paths were when they were last looked at: a path whose file system hangs must not be looked at in a call
    /// that is not asynchronous.
    kinds: Mutex<HashMap<PathBuf, FileKind>>,
}

impl LocalVolumePlugin {
    pub(super) fn new(host: Arc<Host>) -> Self {
        Self {
            host,
            locks: Mutex::default(),
            kinds: Mutex::default(),
        }
    }

    /// Where disks are mounted for the node (`generateBlockDeviceBaseGlobalPath`).
    fn mounts_dir(&self) -> PathBuf {
        self.host
            .root_dir
            .path()
            .join("plugins")
            .join(NAME)
            .join("mounts")
    }

    /// The folder, or where the disk is mounted for the node (`getGlobalLocalPath`).
    fn node_path(&self, spec: &VolumeSpec) -> Result<PathBuf> {
        let path = path_of(spec)?;
        let known = self.kinds.lock().get(path).copied();
        let kind = match known {
            Some(kind) => kind,
            None => file_kind(path).map_err(|error| Error::failed(reason(&error)))?,
        };
        self.node_path_by(kind, path, spec)
    }

    /// [`node_path`](Self::node_path), looked at anew.
    async fn node_path_of(&self, spec: &VolumeSpec) -> Result<PathBuf> {
        let path = path_of(spec)?;
        let kind = self.kind_of(path).await?;
        self.node_path_by(kind, path, spec)
    }

    async fn kind_of(&self, path: &Path) -> Result<FileKind> {
        let checked = path.to_owned();
        let kind = self.host.run(move || file_kind(&checked)).await?;
        self.kinds.lock().insert(path.to_owned(), kind);
        Ok(kind)
    }

    /// A disk that is mounted stays mounted when its device file is gone.
    fn note_disk(&self, path: &str) {
        if !path.is_empty() {
            self.kinds.lock().insert(path.into(), FileKind::BlockDevice);
        }
    }

    fn node_path_by(&self, kind: FileKind, path: &Path, spec: &VolumeSpec) -> Result<PathBuf> {
        match kind {
            FileKind::Folder => Ok(path.to_owned()),
            FileKind::BlockDevice => Ok(self.mounts_dir().join(spec.name())),
            FileKind::Other => Err(Error::failed("only directory and block device are supported")),
        }
    }

    fn lock_of(&self, path: &Path) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock();
        if let Some(lock) = locks.get(path).and_then(Weak::upgrade) {
            return lock;
        }
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::default();
        locks.insert(path.to_owned(), Arc::downgrade(&lock));
        lock
    }

    /// Whether another pod has mounted it. If its files belong to another group, an event warns of that.
    async fn is_shared(&self, mount: &PodMount, path: &Path) -> Result<bool> {
        let Some(group) = mount.fs_group else {
            return Ok(false);
        };
        let pods = self.host.root_dir.pods_dir();
        let pods = self.host.run(move || Ok(as_in_table(&pods))).await?;
        let references = self.host.mounter.references(path).await?;
        if !references.iter().any(|reference| reference.starts_with(&pods)) {
            return Ok(false);
        }
        let checked = path.to_owned();
        let found = self
            .host
            .run(move || Ok(std::fs::metadata(&checked)?.gid()))
            .await;
        let found = found.map_err(|error| {
            let path = path.display();
            Error::failed(format!("failed to check fsGroup for {path} ({error})"))
        })?;
        if found != group {
            let name = mount.spec.name();
            let message = format!(
                "The requested fsGroup is {group}, but the volume {name} has GID {found}. The volume may not be \
                 shareable."
            );
            let event = Event::about(&mount.pod, EventType::Warning, "AlreadyMountedVolume", message);
            self.host.recorder.record(event);
        }
        Ok(true)
    }

    /// Gives the files to the pod's group. If that fails, it is unmounted, and so repeated.
    async fn give_to_group(&self, mount: &PodMount, group: u32) -> Result<()> {
        let ownership = VolumeOwnership {
            dir: mount.dir.clone(),
            group,
            read_only: false,
            policy: mount.fs_group_change_policy,
        };
        let host = &self.host;
        let changed = ownership.change(host.disk, &mount.pod, &*host.recorder).await;
        if changed.is_err() {
            bind::clean_up(host, &mount.dir).await?;
        }
        changed
    }
}

fn source(spec: &VolumeSpec) -> Option<&LocalVolumeSource> {
    spec.persistent_volume()?.local.as_ref()
}

fn path_of(spec: &VolumeSpec) -> Result<&Path> {
    let path = source(spec).map(|source| source.path.as_str());
    let path = path.filter(|path| !path.is_empty());
    path.map(Path::new)
        .ok_or_else(|| Error::failed("local volume source is nil or local path is not set"))
}

/// A volume that an earlier agent left.
fn reconstructed(name: &str, path: String, mode: &str) -> VolumeSpec {
    let volume = PersistentVolume {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            local: Some(LocalVolumeSource { path, fs_type: None }),
            volume_mode: Some(mode.to_owned()),
            ..PersistentVolumeSpec::default()
        }),
        ..PersistentVolume::default()
    };
    VolumeSpec::persistent(Arc::new(volume), false)
}

#[async_trait]
impl VolumePlugin for LocalVolumePlugin {
    fn name(&self) -> &str {
        NAME
    }

    fn can_support(&self, spec: &VolumeSpec) -> bool {
        source(spec).is_some()
    }

    fn attributes(&self, mount: &PodMount) -> Attributes {
        Attributes {
            read_only: mount.spec.read_only,
            managed: !mount.spec.read_only,
            selinux_relabel: true,
        }
    }

    async fn prepare(&self, mount: &PodMount) -> Result<()> {
        match mount.spec.is_block() {
            true => Ok(()),
            false => self.node_path_of(&mount.spec).await.map(drop),
        }
    }

    async fn set_up(&self, mount: &PodMount) -> Result<SetUp> {
        let path = self.node_path_of(&mount.spec).await?;
        let lock = self.lock_of(&path);
        let _turn = lock.lock().await;
        if path.components().any(|part| part.as_os_str() == "..") {
            let path = path.display();
            return Err(Error::failed(format!(
                "invalid path: {path} must not contain '..'"
            )));
        }
        if self.host.mounter.is_mount_point(&mount.dir).await? {
            return Ok(SetUp::default());
        }
        let is_shared = self.is_shared(mount, &path).await?;
        let own: &[&str] = if mount.spec.read_only {
            &["bind", "ro"]
        } else {
            &["bind"]
        };
        let options = mount_options::with_own(&mount.spec, own);
        let path = Path::new("/").join(path).display().to_string();
        bind::mount(&self.host, &path, &mount.dir, "", &options).await?;
        if let Some(group) = mount.fs_group.filter(|_| !mount.spec.read_only && !is_shared) {
            self.give_to_group(mount, group).await?;
        }
        Ok(SetUp::default())
    }

    async fn tear_down(&self, mounted: &OnDisk) -> Result<()> {
        bind::clean_up(&self.host, &mounted.dir).await
    }

    /// The path is that of the disk, if the pod's mount is of one. A folder needs no path to be unmounted.
    async fn reconstruct(&self, found: &OnDisk) -> Result<VolumeSpec> {
        let (base, dir) = (self.mounts_dir(), found.dir.clone());
        let base = self.host.run(move || Ok(as_in_table(&base))).await?;
        let references = self.host.mounter.references(&dir).await?;
        let disk = references.iter().find(|reference| reference.starts_with(&base));
        let path = match disk {
            Some(mounted) => {
                let mounts = self.host.mounter.mounts(mounted).await?;
                let device = mounts.into_iter().find(|mount| mount.path == *mounted);
                let device = device.map(|mount| mount.source).unwrap_or_default();
                self.note_disk(&device);
                device
            }
            None => String::new(),
        };
        Ok(reconstructed(&found.name, path, "Filesystem"))
    }

    async fn usage(&self, mounted: &OnDisk, _: &VolumeSpec) -> Result<Option<VolumeUsage>> {
        let dir = mounted.dir.clone();
        match mounted.is_block {
            true => block::usage(&self.host, dir).await.map(Some),
            false => self.host.measure_file_system(dir).await.map(Some),
        }
    }

    fn device_mountable(&self) -> Option<&dyn DeviceMountableVolumePlugin> {
        Some(self)
    }

    fn block(&self) -> Option<&dyn BlockVolumePlugin> {
        Some(self)
    }

    fn expandable(&self) -> Option<&dyn NodeExpandableVolumePlugin> {
        Some(self)
    }
}
