//! Disks that are mounted for the node.

use std::path::{Path, PathBuf};

use async_trait::async_trait;

use super::{LocalVolumePlugin, path_of, reconstructed, source};
use crate::filesystem::device;
use crate::filesystem::file_kind::FileKind;
use crate::filesystem::make_dir::make_dirs;
use crate::filesystem::mount_table::as_in_table;
use crate::plugins::{bind, mount_options};
use crate::{
    DeviceMount, DeviceMountableVolumePlugin, Error, Expansion, NodeExpandableVolumePlugin, Result,
    VolumeSpec,
};

/// The file system of a disk without one (`defaultFSType`).
const DEFAULT_FS_TYPE: &str = "ext4";

#[async_trait]
impl DeviceMountableVolumePlugin for LocalVolumePlugin {
    async fn can_device_mount(&self, _: &VolumeSpec) -> Result<bool> {
        Ok(true)
    }

    fn volume_name(&self, spec: &VolumeSpec) -> Result<String> {
        Ok(spec.name().to_owned())
    }

    fn device_mount_path(&self, spec: &VolumeSpec) -> Result<PathBuf> {
        self.node_path(spec)
    }

    async fn mount_device(&self, mount: &DeviceMount) -> Result<()> {
        let path = path_of(&mount.spec)?;
        match self.kind_of(path).await? {
            FileKind::Folder => return Ok(()),
            FileKind::BlockDevice => {}
            FileKind::Other => return Err(Error::failed("only directory and block device are supported")),
        }
        let dir = &mount.device_mount_path;
        if self.host.mounter.is_mount_point(dir).await? {
            return Ok(());
        }
        let made = dir.clone();
        self.host.run(move || make_dirs(&made, 0o750)).await?;
        let fs_type = source(&mount.spec).and_then(|source| source.fs_type.as_deref());
        let fs_type = fs_type.unwrap_or(DEFAULT_FS_TYPE);
        let own: &[&str] = if mount.spec.read_only { &["ro"] } else { &[] };
        let options = mount_options::with_own(&mount.spec, own);
        let device = path.display().to_string();
        let mounter = &*self.host.mounter;
        let mounted = device::format_and_mount(mounter, &device, dir, fs_type, &options).await;
        let Err(error) = mounted else { return Ok(()) };
        if let Err(error) = bind::clean_up(&self.host, dir).await {
            tracing::warn!(dir = %dir.display(), %error, "Cannot remove a mount that failed");
        }
        let dir = dir.display();
        Err(Error::failed(format!(
            "local: failed to mount device {device} at {dir} (fstype: {fs_type}), error {error}"
        )))
    }

    /// A folder of the host stays as it is.
    async fn unmount_device(&self, device_mount_path: &Path) -> Result<()> {
        match device_mount_path.starts_with(self.mounts_dir()) {
            true => bind::clean_up(&self.host, device_mount_path).await,
            false => Ok(()),
        }
    }

    async fn mounted_devices(&self) -> Result<Vec<VolumeSpec>> {
        let base = self.mounts_dir();
        let base = self.host.run(move || Ok(as_in_table(&base))).await?;
        let mounts = self.host.mounter.mounts(&base).await?;
        let of_disk = mounts.into_iter().filter_map(|mount| {
            let name = mount.path.strip_prefix(&base).ok()?.to_str()?.to_owned();
            self.note_disk(&mount.source);
            Some(reconstructed(&name, mount.source, "Filesystem"))
        });
        Ok(of_disk.collect())
    }
}

#[async_trait]
impl NodeExpandableVolumePlugin for LocalVolumePlugin {
    async fn requires_expansion(&self, _: &VolumeSpec) -> bool {
        true
    }

    async fn node_expand(&self, expansion: &Expansion) -> Result<bool> {
        if expansion.spec.is_block() {
            return Ok(true);
        }
        let path = path_of(&expansion.spec)?;
        match self.kind_of(path).await? {
            // A folder has the size of its file system.
            FileKind::Folder => Ok(true),
            FileKind::BlockDevice => {
                let device = path.display().to_string();
                device::grow(&device, &expansion.device_mount_path).await?;
                Ok(true)
            }
            FileKind::Other => Err(Error::failed("only directory and block device are supported")),
        }
    }
}
