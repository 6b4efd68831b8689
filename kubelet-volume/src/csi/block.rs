//! Block devices (`csi_block.go`).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, SecretReference};
use kubelet_core::PodExt;

use super::capability::block;
use super::client::{Capabilities, Session};
use super::paths::{BlockPaths, attachment_name};
use super::plugin::{CsiPlugin, names_of, not_found, persistent_spec, unreadable};
use super::publish::pod_info;
use super::source::{named, persistent};
use super::v1::{
    NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest, NodeUnstageVolumeRequest,
};
use super::volume_data::{ATTACHMENT, DRIVER_NAME, NODE_NAME, SPEC_NAME, VOLUME_HANDLE, VolumeData};
use crate::{BlockVolumePlugin, Error, OnDisk, PodMount, Result, VolumeSpec};

#[async_trait]
impl BlockVolumePlugin for CsiPlugin {
    fn global_map_path(&self, spec: &VolumeSpec) -> Result<PathBuf> {
        Ok(self.paths.block(spec.name())?.global_map)
    }

    fn pod_device_map_path(&self, mount: &PodMount) -> (PathBuf, String) {
        let dir = self.paths.pod_devices(&mount.pod.uid());
        (dir, mount.spec.name().to_owned())
    }

    async fn set_up_device(&self, mount: &PodMount, _: &str) -> Result<Option<PathBuf>> {
        let paths = self.paths.block(mount.spec.name())?;
        let source = persistent(&mount.spec).map_err(|error| {
            Error::failed(named(format_args!(
                "blockMapper.SetUpDevice failed to get CSI persistent source: {error}"
            )))
        })?;
        let was_begun = self.has_data(&paths).await;
        self.save_block_data(&mount.spec, source, &paths).await?;
        let failed = |what: String| {
            let message = named(format_args!("blockMapper.{what}"));
            match was_begun {
                true => Error::uncertain(message),
                false => Error::failed(message),
            }
        };
        let context = self.block_context(source).await;
        let publish_context = context.map_err(|error| failed(format!("SetupDevice {error}")))?;
        let session = self.session(&source.driver, Some(&mount.spec));
        let mut session =
            session.map_err(|error| failed(format!("SetUpDevice failed to get CSI client: {error}")))?;
        let has = self.block_capabilities(&mut session).await.map_err(failed)?;
        if !has.stage {
            return Ok(None);
        }
        let secrets = self
            .block_secrets(source.node_stage_secret_ref.as_ref(), "NodeStageSecretRef")
            .await
            .map_err(|error| error_or_uncertain(was_begun, error))?;
        self.dirs.make(&paths.staging).await.map_err(|error| {
            failed(format!(
                "stageVolumeForBlock failed to create dir {}: {error}",
                paths.staging.display()
            ))
        })?;
        let request = NodeStageVolumeRequest {
            volume_id: source.volume_handle.clone(),
            publish_context,
            staging_target_path: paths.staging.display().to_string(),
            volume_capability: Some(block(&mount.spec, has)),
            secrets,
            volume_context: source.volume_attributes.clone().unwrap_or_default(),
        };
        if let Err(error) = session.stage(request).await {
            if error.is_final() && !was_begun {
                self.clean_up_block(&paths).await;
                return Err(Error::failed(error.to_string()));
            }
            // An earlier try may have staged it.
            return Err(Error::uncertain(error.to_string()));
        }
        Ok(Some(paths.staging))
    }

    async fn map_pod_device(&self, mount: &PodMount, _: &str) -> Result<PathBuf> {
        let uid = mount.pod.uid();
        let paths = self.paths.block(mount.spec.name())?;
        let failed = |what: String| Error::failed(named(format_args!("blockMapper.{what}")));
        let source = persistent(&mount.spec).map_err(|error| {
            failed(format!(
                "MapPodDevice failed to get CSI persistent source: {error}"
            ))
        })?;
        self.save_block_data(&mount.spec, source, &paths).await?;
        let context = self.block_context(source).await;
        let publish_context = context.map_err(|error| failed(format!("MapPodDevice {error}")))?;
        let session = self.session(&source.driver, Some(&mount.spec));
        let mut session =
            session.map_err(|error| failed(format!("MapPodDevice failed to get CSI client: {error}")))?;
        let has = session.capabilities().await;
        let has = has.map_err(|error| Error::failed(error.to_string()))?;
        let mut volume_context = source.volume_attributes.clone().unwrap_or_default();
        let driver = self.driver(&source.driver).await.map_err(|error| {
            failed(format!(
                "publishVolumeForBlock failed to assemble volume attributes: {error}"
            ))
        })?;
        if driver.is_some_and(|driver| driver.spec.pod_info_on_mount.unwrap_or(false)) {
            volume_context.extend(pod_info(&mount.pod, false));
        }
        let secrets = self
            .block_secrets(source.node_publish_secret_ref.as_ref(), "NodePublishSecretRef")
            .await
            .map_err(Error::failed)?;
        let dir = paths.publish_dir();
        self.dirs.make(dir).await.map_err(|error| {
            failed(format!(
                "publishVolumeForBlock failed to create dir {}:  {error}",
                dir.display()
            ))
        })?;
        let target = paths.publish(&uid);
        let request = NodePublishVolumeRequest {
            volume_id: source.volume_handle.clone(),
            publish_context,
            staging_target_path: paths.staging.display().to_string(),
            target_path: target.display().to_string(),
            volume_capability: Some(block(&mount.spec, has)),
            readonly: mount.spec.read_only,
            secrets,
            volume_context,
        };
        let Err(error) = session.publish(request).await else {
            return Ok(target);
        };
        // An earlier try may have published it.
        Err(match error.is_final() && !self.is_there(&target).await {
            true => Error::failed(error.to_string()),
            false => Error::uncertain(error.to_string()),
        })
    }

    async fn unmap_pod_device(&self, mapped: &OnDisk) -> Result<()> {
        let paths = self.paths.block(&mapped.name)?;
        let data = self.block_data(&paths).await?;
        let failed = |what: String| Error::failed(named(format_args!("blockMapper.{what}")));
        let session = self.session(data.driver(), None);
        let mut session =
            session.map_err(|error| failed(format!("UnmapPodDevice failed to get CSI client: {error}")))?;
        let request = NodeUnpublishVolumeRequest {
            volume_id: data.handle().to_owned(),
            target_path: paths.publish(&mapped.uid).display().to_string(),
        };
        let unpublished = session.unpublish(request).await;
        unpublished.map_err(|error| failed(format!("unpublishVolumeForBlock failed: {error}")))
    }

    async fn tear_down_device(&self, spec: &VolumeSpec, _: &Path, _: &str) -> Result<()> {
        let paths = self.paths.block(spec.name())?;
        let data = match self.block_data(&paths).await {
            Ok(data) => data,
            Err(_) if !self.is_there(&paths.volume).await => return Ok(()),
            Err(error) => return Err(error),
        };
        let failed = |what: String| Error::failed(named(format_args!("blockMapper.{what}")));
        let session = self.session(data.driver(), Some(spec));
        let mut session =
            session.map_err(|error| failed(format!("TearDownDevice failed to get CSI client: {error}")))?;
        // An agent that was killed may have left devices of pods that no link shows. They go before the staged one.
        for target in self.published(&paths).await? {
            let request = NodeUnpublishVolumeRequest {
                volume_id: data.handle().to_owned(),
                target_path: target.display().to_string(),
            };
            let unpublished = session.unpublish(request).await;
            unpublished.map_err(|error| failed(format!("unpublishVolumeForBlock failed: {error}")))?;
        }
        if self.is_there(&paths.staging).await {
            let has = session.capabilities().await.map_err(|error| {
                failed(format!(
                    "unstageVolumeForBlock failed to check STAGE_UNSTAGE_VOLUME capability: {error}"
                ))
            })?;
            if has.stage {
                let request = NodeUnstageVolumeRequest {
                    volume_id: data.handle().to_owned(),
                    staging_target_path: paths.staging.display().to_string(),
                };
                let unstaged = session.unstage(request).await;
                unstaged.map_err(|error| failed(format!("unstageVolumeForBlock failed: {error}")))?;
            }
        }
        self.clean_up_block(&paths).await;
        Ok(())
    }

    async fn reconstruct_block(&self, found: &OnDisk) -> Result<VolumeSpec> {
        let paths = self.paths.block(&found.name)?;
        let dir = paths.data.clone();
        let data = self.dirs.disk.run(move || VolumeData::load(&dir)).await;
        let data = data.map_err(|error| unreadable("ConstructBlockVolumeSpec", &found.dir, &error))?;
        Ok(persistent_spec(&data, data.spec_name(), "Block"))
    }
}

impl CsiPlugin {
    /// What is needed to unmap the device later (`NewBlockVolumeMapper`).
    async fn save_block_data(
        &self,
        spec: &VolumeSpec,
        source: &CSIPersistentVolumeSource,
        paths: &BlockPaths,
    ) -> Result<()> {
        let attachment = attachment_name(&source.volume_handle, &source.driver, &self.node_name);
        let data = VolumeData::new([
            (SPEC_NAME, spec.name()),
            (VOLUME_HANDLE, source.volume_handle.as_str()),
            (DRIVER_NAME, &source.driver),
            (NODE_NAME, &self.node_name),
            (ATTACHMENT, &attachment),
        ]);
        let dir = paths.data.clone();
        self.dirs.make(&dir).await.map_err(|error| {
            Error::failed(named(format_args!(
                "failed to create data dir {}:  {error}",
                dir.display()
            )))
        })?;
        let saved = self.dirs.disk.run(move || data.save(&dir)).await;
        saved.map_err(|error| {
            Error::failed(named(format_args!(
                "csi.NewBlockVolumeMapper failed to save volume info data: {error}"
            )))
        })
    }

    async fn has_data(&self, paths: &BlockPaths) -> bool {
        self.block_data(paths).await.is_ok()
    }

    async fn block_data(&self, paths: &BlockPaths) -> Result<VolumeData> {
        let dir = paths.data.clone();
        let data = self.dirs.disk.run(move || VolumeData::load(&dir)).await;
        data.map_err(|error| {
            let dir = paths.data.display();
            Error::failed(named(format_args!(
                "unmapper failed to load volume data file [{dir}]: {error}"
            )))
        })
    }

    /// What the controller part of the driver wrote into the attachment.
    async fn block_context(
        &self,
        source: &CSIPersistentVolumeSource,
    ) -> Result<BTreeMap<String, String>, String> {
        let driver = &source.driver;
        let skips = self.skips_attach(driver).await;
        if skips.map_err(|error| format!("failed to check CSIDriver for {driver}: {error}"))? {
            return Ok(BTreeMap::new());
        }
        let name = attachment_name(&source.volume_handle, driver, &self.node_name);
        let found = match self.objects.attachment(&name).await {
            Ok(found) => found.ok_or_else(|| not_found(&name)),
            Err(error) => Err(error.to_string()),
        };
        let attachment =
            found.map_err(|error| format!("failed to get volume attachment [id={name}]: {error}"))?;
        let status = attachment.status.unwrap_or_default();
        Ok(status.attachment_metadata.unwrap_or_default())
    }

    async fn block_capabilities(&self, session: &mut Session) -> Result<Capabilities, String> {
        session.capabilities().await.map_err(|error| {
            format!("stageVolumeForBlock failed to check STAGE_UNSTAGE_VOLUME capability: {error}")
        })
    }

    async fn block_secrets(
        &self,
        secret: Option<&SecretReference>,
        what: &str,
    ) -> Result<BTreeMap<String, String>, String> {
        let Some(secret) = secret else {
            return Ok(BTreeMap::new());
        };
        let (namespace, name) = names_of(secret);
        let read = self.secret(secret).await;
        read.map_err(|error| named(format_args!("failed to get {what} {namespace}/{name}: {error}")))
    }

    /// The devices of pods that the driver has published.
    async fn published(&self, paths: &BlockPaths) -> Result<Vec<PathBuf>> {
        let dir = paths.publish_dir().to_owned();
        let listed = dir.clone();
        let read = self.dirs.disk.run(move || match fs::read_dir(listed) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            entries => entries?.map(|entry| Ok(entry?.path())).collect(),
        });
        read.await.map_err(|error| Error::io(dir, error))
    }

    async fn is_there(&self, path: &Path) -> bool {
        let path = path.to_owned();
        let found = self.dirs.disk.run(move || path.symlink_metadata()).await;
        !found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Removes what is left of a device that is neither staged nor published (`cleanupOrphanDeviceFiles`). A folder that
    /// is not empty stays, and is logged.
    async fn clean_up_block(&self, paths: &BlockPaths) {
        let mounts = self.dirs.mounter.mounts(&paths.volume).await;
        let staged = self.dirs.mounter.is_mount_point(&paths.staging).await;
        if mounts.is_ok_and(|mounts| mounts.is_empty()) && matches!(staged, Ok(false)) {
            let (publish, staging) = (paths.publish_dir().to_owned(), paths.staging.clone());
            let (global, data, volume) = (paths.global_map.clone(), paths.data.clone(), paths.volume.clone());
            let removed = self.dirs.disk.run(move || {
                for dir in [publish, staging, global] {
                    ignore_missing(fs::remove_dir(dir))?;
                }
                VolumeData::remove(&data)?;
                ignore_missing(fs::remove_dir(data))?;
                ignore_missing(fs::remove_dir(volume))
            });
            if let Err(error) = removed.await {
                tracing::warn!(path = %paths.volume.display(), %error, "cannot remove what is left of a block device");
            }
        } else {
            tracing::warn!(path = %paths.volume.display(), "something is still mounted in the folders of a block device");
        }
    }
}

fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn error_or_uncertain(was_begun: bool, message: String) -> Error {
    match was_begun {
        true => Error::uncertain(message),
        false => Error::failed(message),
    }
}
