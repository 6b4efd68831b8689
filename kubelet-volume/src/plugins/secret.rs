//! The keys of a secret as files in memory (`pkg/volume/secret`).

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Secret, SecretVolumeSource, Volume};
use kubelet_core::{ConfigObjectKind, ConfigObjectRef, PodExt, VolumeUsage};

use super::config_map::{DEFAULT_MODE, Wanted, file, object};
use super::empty_dir::{self, Medium};
use super::errors::in_words;
use super::in_tree::Host;
use super::wrapped;
use crate::filesystem::atomic_writer::Payload;
use crate::{Attributes, Error, OnDisk, PodMount, Result, SetUp, VolumePlugin, VolumeSpec};

/// `secret` volumes.
pub(super) struct SecretPlugin {
    host: Arc<Host>,
}

impl SecretPlugin {
    pub(super) fn new(host: Arc<Host>) -> Self {
        Self { host }
    }
}

fn source(spec: &VolumeSpec) -> Option<&SecretVolumeSource> {
    spec.pod_volume()?.secret.as_ref()
}

fn name_of(source: &SecretVolumeSource) -> &str {
    source.secret_name.as_deref().unwrap_or_default()
}

#[async_trait]
impl VolumePlugin for SecretPlugin {
    fn name(&self) -> &str {
        "kubernetes.io/secret"
    }

    fn can_support(&self, spec: &VolumeSpec) -> bool {
        source(spec).is_some()
    }

    fn attributes(&self, _: &PodMount) -> Attributes {
        wrapped::ATTRIBUTES
    }

    async fn set_up(&self, mount: &PodMount) -> Result<SetUp> {
        let source = source(&mount.spec).ok_or_else(|| Error::failed("the volume has no secret"))?;
        let wanted = Wanted {
            items: source.items.as_deref().unwrap_or_default(),
            mode: source.default_mode.unwrap_or(DEFAULT_MODE),
            is_optional: source.optional.unwrap_or(false),
        };
        let namespace = &mount.pod.key().namespace;
        let found = read(&self.host, namespace, name_of(source), wanted.is_optional).await;
        let payload = found.and_then(|found| payload(&wanted, &found));
        let payload = payload.map_err(Error::failed)?;
        let medium = Medium::memory(&self.host, None, &mount.pod).await?;
        wrapped::write(&self.host, mount, &medium, payload).await?;
        Ok(SetUp::default())
    }

    async fn tear_down(&self, mounted: &OnDisk) -> Result<()> {
        wrapped::tear_down(&self.host, mounted).await
    }

    fn config_objects(&self, mount: &PodMount) -> Vec<ConfigObjectRef> {
        let source = source(&mount.spec);
        source
            .map(|source| object(mount, ConfigObjectKind::Secret, name_of(source)))
            .into_iter()
            .collect()
    }

    fn supports_mount_options(&self) -> bool {
        false
    }

    async fn reconstruct(&self, found: &OnDisk) -> Result<VolumeSpec> {
        Ok(VolumeSpec::of_pod(Arc::new(Volume {
            name: found.name.clone(),
            secret: Some(SecretVolumeSource {
                secret_name: Some(found.name.clone()),
                ..SecretVolumeSource::default()
            }),
            ..Volume::default()
        })))
    }

    async fn usage(&self, mounted: &OnDisk, _: &VolumeSpec) -> Result<Option<VolumeUsage>> {
        empty_dir::usage(&self.host, &mounted.dir).await.map(Some)
    }
}

/// The secret; an empty one if it is missing and optional.
pub(super) async fn read(
    host: &Host,
    namespace: &str,
    name: &str,
    is_optional: bool,
) -> Result<Arc<Secret>, String> {
    let found = host.config_objects.secret(namespace, name).await;
    match found.map_err(in_words)? {
        Some(found) => Ok(found),
        None if is_optional => Ok(Arc::default()),
        None => Err(format!("secret {name:?} not found")),
    }
}

/// `secret.MakePayload`
pub(super) fn payload(wanted: &Wanted<'_>, found: &Secret) -> Result<Payload, String> {
    let data = found.data.as_ref();
    let mut files = Payload::new();
    if wanted.items.is_empty() {
        let all = data.into_iter().flatten();
        files.extend(all.map(|(key, data)| (key.clone(), file(&data.0, wanted.mode))));
    }
    for item in wanted.items {
        match data.and_then(|data| data.get(&item.key)) {
            Some(data) => {
                let file = file(&data.0, item.mode.unwrap_or(wanted.mode));
                files.insert(item.path.clone(), file);
            }
            None if wanted.is_optional => {}
            None => return Err(format!("references non-existent secret key: {}", item.key)),
        }
    }
    Ok(files)
}
