//! What a volume's spec says of its driver: the same for inline and persistent volumes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, CSIVolumeSource, SecretReference};
use kubelet_core::PodUid;

use super::PLUGIN_NAME;
use super::paths::ephemeral_handle;
use crate::{Error, Result, VolumeSpec};

/// Where a CSI volume comes from (`getSourceFromSpec`).
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// It lives and dies with its pod.
    Inline(&'a CSIVolumeSource),
    Persistent(&'a CSIPersistentVolumeSource),
}

impl<'a> Source<'a> {
    pub(crate) fn of(spec: &'a VolumeSpec) -> Result<Self> {
        if let Some(csi) = spec.pod_volume().and_then(|volume| volume.csi.as_ref()) {
            return Ok(Self::Inline(csi));
        }
        let csi = spec.persistent_volume().and_then(|spec| spec.csi.as_ref());
        csi.map(Self::Persistent)
            .ok_or_else(|| Error::failed("volume source not found in volume.Spec"))
    }

    pub(crate) fn driver(self) -> &'a str {
        match self {
            Self::Inline(csi) => &csi.driver,
            Self::Persistent(csi) => &csi.driver,
        }
    }

    /// The kubelet's `VolumeLifecycleMode`.
    pub(crate) fn lifecycle_mode(self) -> &'static str {
        match self {
            Self::Inline(_) => "Ephemeral",
            Self::Persistent(_) => "Persistent",
        }
    }

    /// What the driver calls the volume.
    pub(crate) fn handle(self, uid: &PodUid, name: &str) -> String {
        match self {
            Self::Inline(_) => ephemeral_handle(uid, name),
            Self::Persistent(csi) => csi.volume_handle.clone(),
        }
    }

    pub(crate) fn is_read_only(self, spec: &VolumeSpec) -> bool {
        match self {
            Self::Inline(csi) => csi.read_only.unwrap_or(false),
            Self::Persistent(_) => spec.read_only,
        }
    }

    pub(crate) fn fs_type(self) -> &'a str {
        match self {
            Self::Inline(csi) => csi.fs_type.as_deref(),
            Self::Persistent(csi) => csi.fs_type.as_deref(),
        }
        .unwrap_or_default()
    }

    pub(crate) fn attributes(self) -> BTreeMap<String, String> {
        match self {
            Self::Inline(csi) => &csi.volume_attributes,
            Self::Persistent(csi) => &csi.volume_attributes,
        }
        .clone()
        .unwrap_or_default()
    }

    /// The secret for `NodePublishVolume`. That of an inline volume is in the pod's namespace.
    pub(crate) fn publish_secret(self, pod_namespace: &str) -> Option<SecretReference> {
        match self {
            Self::Inline(csi) => csi
                .node_publish_secret_ref
                .as_ref()
                .map(|secret| SecretReference {
                    name: Some(secret.name.clone()),
                    namespace: Some(pod_namespace.to_owned()),
                }),
            Self::Persistent(csi) => csi.node_publish_secret_ref.clone(),
        }
    }
}

/// The source of a persistent volume; an inline one is an error (`getPVSourceFromSpec`).
pub(crate) fn persistent(spec: &VolumeSpec) -> Result<&CSIPersistentVolumeSource> {
    match Source::of(spec)? {
        Source::Persistent(csi) => Ok(csi),
        Source::Inline(_) => Err(Error::failed(
            "unexpected api.CSIVolumeSource found in volume.Spec",
        )),
    }
}

/// The first access mode of the persistent volume: drivers get one.
pub(crate) fn access_mode(spec: &VolumeSpec) -> &str {
    let modes = spec
        .persistent_volume()
        .and_then(|spec| spec.access_modes.as_ref());
    let first = modes.and_then(|modes| modes.first());
    first.map_or(READ_WRITE_ONCE, String::as_str)
}

pub(crate) const READ_WRITE_ONCE: &str = "ReadWriteOnce";

/// With the name of the plugin in front, as the kubelet's messages have it.
pub(crate) fn named(message: impl std::fmt::Display) -> String {
    format!("{PLUGIN_NAME}: {message}")
}
