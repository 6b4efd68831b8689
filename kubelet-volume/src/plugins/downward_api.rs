//! Fields of the pod and resources of its containers as files in memory (`pkg/volume/downwardapi`).

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, DownwardAPIVolumeSource, Pod, Volume};
use kubelet_core::VolumeUsage;

use super::config_map::{DEFAULT_MODE, file};
use super::empty_dir::{self, Medium};
use super::errors::aggregate;
use super::in_tree::Host;
use super::{field_path, resource_field, wrapped};
use crate::filesystem::atomic_writer::Payload;
use crate::filesystem::clean_path::clean_path;
use crate::{Attributes, Error, OnDisk, PodMount, Result, SetUp, VolumePlugin, VolumeSpec};

/// `downwardAPI` volumes.
pub(super) struct DownwardApiPlugin {
    host: Arc<Host>,
}

impl DownwardApiPlugin {
    pub(super) fn new(host: Arc<Host>) -> Self {
        Self { host }
    }
}

fn source(spec: &VolumeSpec) -> Option<&DownwardAPIVolumeSource> {
    spec.pod_volume()?.downward_api.as_ref()
}

#[async_trait]
impl VolumePlugin for DownwardApiPlugin {
    fn name(&self) -> &str {
        "kubernetes.io/downward-api"
    }

    fn can_support(&self, spec: &VolumeSpec) -> bool {
        source(spec).is_some()
    }

    fn attributes(&self, _: &PodMount) -> Attributes {
        wrapped::ATTRIBUTES
    }

    async fn set_up(&self, mount: &PodMount) -> Result<SetUp> {
        let source = source(&mount.spec).ok_or_else(|| Error::failed("the volume has no downwardAPI"))?;
        let mode = source.default_mode.unwrap_or(DEFAULT_MODE);
        let items = source.items.as_deref().unwrap_or_default();
        let payload = payload(&self.host, &mount.pod, items, mode).await?;
        let medium = Medium::memory(&self.host, None, &mount.pod).await?;
        wrapped::write(&self.host, mount, &medium, payload).await?;
        Ok(SetUp::default())
    }

    async fn tear_down(&self, mounted: &OnDisk) -> Result<()> {
        wrapped::tear_down(&self.host, mounted).await
    }

    fn depends_on_pod(&self, _: &VolumeSpec) -> bool {
        true
    }

    fn supports_mount_options(&self) -> bool {
        false
    }

    async fn reconstruct(&self, found: &OnDisk) -> Result<VolumeSpec> {
        Ok(VolumeSpec::of_pod(Arc::new(Volume {
            name: found.name.clone(),
            downward_api: Some(DownwardAPIVolumeSource::default()),
            ..Volume::default()
        })))
    }

    async fn usage(&self, mounted: &OnDisk, _: &VolumeSpec) -> Result<Option<VolumeUsage>> {
        empty_dir::usage(&self.host, &mounted.dir).await.map(Some)
    }
}

/// All files, or all errors (`downwardapi.CollectData`).
pub(super) async fn payload(
    host: &Host,
    pod: &Pod,
    items: &[DownwardAPIVolumeFile],
    mode: i32,
) -> Result<Payload> {
    let (mut files, mut errors) = (Payload::new(), Vec::new());
    for item in items {
        let value = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => field_path::field(pod, &field.field_path),
            (None, Some(selector)) => match host.allocatable().await {
                Ok(allocatable) => resource_field::value(pod, selector, &allocatable),
                Err(error) => Err(error.to_string()),
            },
            (None, None) => Ok(String::new()),
        };
        match value {
            Ok(value) => {
                let file = file(value.as_bytes(), item.mode.unwrap_or(mode));
                files.insert(clean_path(&item.path), file);
            }
            Err(error) => errors.push(error),
        }
    }
    aggregate(errors).map_or(Ok(files), Err)
}
