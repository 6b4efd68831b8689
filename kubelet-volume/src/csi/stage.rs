//! Mounts a volume once for all pods of the node (`MountDevice`, `UnmountDevice` of `csi_attacher.go`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;

use super::capability::mounted;
use super::paths::data_dir_of;
use super::plugin::{CsiPlugin, names_of, persistent_spec, volume_name};
use super::source::{Source, access_mode, named, persistent};
use super::v1::{NodeStageVolumeRequest, NodeUnstageVolumeRequest};
use super::volume_data::{DRIVER_NAME, SELINUX_CONTEXT, VOLUME_HANDLE, VolumeData};
use crate::{DeviceMount, DeviceMountableVolumePlugin, Error, Result, VolumeSpec};

#[async_trait]
impl DeviceMountableVolumePlugin for CsiPlugin {
    async fn can_device_mount(&self, spec: &VolumeSpec) -> Result<bool> {
        Ok(matches!(Source::of(spec)?, Source::Persistent(_)))
    }

    fn volume_name(&self, spec: &VolumeSpec) -> Result<String> {
        volume_name(spec)
    }

    fn device_mount_path(&self, spec: &VolumeSpec) -> Result<PathBuf> {
        let failed = |why: String| {
            Error::failed(named(format_args!(
                "attacher.GetDeviceMountPath failed to make device mount path: {why}"
            )))
        };
        let source = persistent(spec).map_err(|error| failed(error.to_string()))?;
        if source.volume_handle.is_empty() {
            return Err(failed(
                "makeDeviceMountPath failed, CSIPersistentVolumeSource volume handle is empty".to_owned(),
            ));
        }
        let path = self.paths.device_mount(&source.driver, &source.volume_handle);
        path.map_err(|error| failed(error.to_string()))
    }

    async fn mount_device(&self, mount: &DeviceMount) -> Result<()> {
        self.stage(mount).await
    }

    async fn unmount_device(&self, device_mount_path: &Path) -> Result<()> {
        self.unstage(device_mount_path).await
    }

    async fn mounted_devices(&self) -> Result<Vec<VolumeSpec>> {
        let staged = self.paths.staged();
        let read = self.dirs.disk.run({
            let staged = staged.clone();
            move || read_staged(&staged)
        });
        read.await.map_err(|error| Error::io(staged, error))
    }
}

impl CsiPlugin {
    async fn stage(&self, mount: &DeviceMount) -> Result<()> {
        let path = &mount.device_mount_path;
        let source = persistent(&mount.spec).map_err(|error| {
            Error::failed(named(format_args!(
                "attacher.MountDevice failed to get CSIPersistentVolumeSource: {error}"
            )))
        })?;
        let session = self.session(&source.driver, Some(&mount.spec));
        let session = session.map_err(|error| {
            named(format_args!(
                "attacher.MountDevice failed to create newCsiDriverClient: {error}"
            ))
        });
        let mut session = match session {
            Ok(session) => session,
            Err(message) => return Err(self.dirs.failure(path, message).await),
        };
        let prepared = match session.capabilities().await {
            Ok(has) => self.prepare_stage(mount, has).await,
            Err(error) => Err(error.to_string()),
        };
        let (request, data) = match prepared {
            Ok(Some(prepared)) => prepared,
            // The driver does not stage volumes.
            Ok(None) => return Ok(()),
            Err(message) => return Err(self.dirs.failure(path, message).await),
        };
        self.dirs.begin(path, data).await?;
        if let Err(error) = session.stage(request).await {
            let message = error.to_string();
            return Err(match error.is_final() {
                false => Error::uncertain(message),
                true => {
                    self.dirs.failed(path).await;
                    self.dirs.failure(path, message).await
                }
            });
        }
        self.dirs.succeeded(path);
        Ok(())
    }

    async fn prepare_stage(
        &self,
        mount: &DeviceMount,
        has: super::client::Capabilities,
    ) -> Result<Option<(NodeStageVolumeRequest, VolumeData)>, String> {
        let source = persistent(&mount.spec).map_err(|error| error.to_string())?;
        let publish_context = self
            .publish_context(source)
            .await
            .map_err(|error| error.to_string())?;
        let mut secrets = Default::default();
        if let Some(secret) = source.node_stage_secret_ref.as_ref().filter(|_| has.stage) {
            let (namespace, name) = names_of(secret);
            secrets = self
                .secret(secret)
                .await
                .map_err(|error| format!("fetching NodeStageSecretRef {namespace}/{name} failed: {error}"))?;
        }
        let label = mount.selinux_label.as_deref();
        let options = self.mount_options(&mount.spec, &source.driver, label).await;
        let (options, label) = options.map_err(|error| error.to_string())?;
        let path = &mount.device_mount_path;
        self.dirs.make(path).await.map_err(|error| {
            named(format_args!(
                "attacher.MountDevice failed to create dir {path:?}:  {error}"
            ))
        })?;
        if !has.stage {
            return Ok(None);
        }
        let data = VolumeData::new([
            (VOLUME_HANDLE, source.volume_handle.as_str()),
            (DRIVER_NAME, &source.driver),
            (SELINUX_CONTEXT, label.unwrap_or_default()),
        ]);
        let fs_type = source.fs_type.as_deref().unwrap_or_default();
        let mode = access_mode(&mount.spec);
        let request = NodeStageVolumeRequest {
            volume_id: source.volume_handle.clone(),
            publish_context,
            staging_target_path: path.display().to_string(),
            volume_capability: Some(mounted(mode, has, fs_type, options, mount.fs_group)),
            secrets,
            volume_context: source.volume_attributes.clone().unwrap_or_default(),
        };
        Ok(Some((request, data)))
    }

    async fn unstage(&self, path: &Path) -> Result<()> {
        let data = match self.dirs.load(path).await {
            Ok(data) => data,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::debug!(path = %path.display(), "nothing was staged here");
                return self.remove_staged(path).await;
            }
            Err(error) => {
                let dir = data_dir_of(path).display();
                return Err(Error::failed(named(format_args!(
                    "failed to parse volume data file [{dir}]: {error}"
                ))));
            }
        };
        let failed = |what: String| Error::failed(named(format_args!("attacher.UnmountDevice failed{what}")));
        let session = self.session(data.driver(), None);
        let mut session =
            session.map_err(|error| failed(format!(" to create newCsiDriverClient: {error}")))?;
        let has = session
            .capabilities()
            .await
            .map_err(|error| failed(format!(" to check whether STAGE_UNSTAGE_VOLUME set: {error}")))?;
        if has.stage {
            let request = NodeUnstageVolumeRequest {
                volume_id: data.handle().to_owned(),
                staging_target_path: path.display().to_string(),
            };
            session
                .unstage(request)
                .await
                .map_err(|error| failed(format!(": {error}")))?;
        }
        self.remove_staged(path).await
    }

    async fn remove_staged(&self, path: &Path) -> Result<()> {
        self.dirs.remove(path).await.map_err(|error| {
            let dir = data_dir_of(path).display();
            Error::failed(named(format_args!(
                "failed to clean up global mount {dir}: {error}"
            )))
        })
    }
}

/// The volumes of `<driver>/<hash>/vol_data.json` and `volumeDevices/<name>/data/vol_data.json`. Blocks.
fn read_staged(staged: &Path) -> io::Result<Vec<VolumeSpec>> {
    let mut specs = Vec::new();
    for driver in folders(staged)? {
        let is_block = driver.file_name().is_some_and(|name| name == "volumeDevices");
        for volume in folders(&driver)? {
            if is_block {
                if let Ok(data) = VolumeData::load(&volume.join("data")) {
                    specs.push(persistent_spec(&data, data.spec_name(), "Block"));
                }
            } else if let Ok(data) = VolumeData::load(&volume) {
                specs.push(persistent_spec(&data, "", "Filesystem"));
            }
        }
    }
    Ok(specs)
}

/// The folders in a folder, sorted; none if it does not exist.
fn folders(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut folders = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            folders.push(entry.path());
        }
    }
    folders.sort();
    Ok(folders)
}
