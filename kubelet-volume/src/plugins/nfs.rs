//! Exports of an NFS server (`pkg/volume/nfs`).

use std::net::Ipv6Addr;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{NFSVolumeSource, Volume};
use kubelet_core::VolumeUsage;

use super::in_tree::Host;
use super::{bind, mount_options};
use crate::{Attributes, Error, OnDisk, PodMount, Result, SetUp, VolumePlugin, VolumeSpec};

/// `nfs` volumes, also as persistent volumes. The host needs `mount.nfs`.
pub(super) struct NfsPlugin {
    host: Arc<Host>,
}

impl NfsPlugin {
    pub(super) fn new(host: Arc<Host>) -> Self {
        Self { host }
    }
}

/// The export, and whether it is read-only.
fn source(spec: &VolumeSpec) -> Option<(&NFSVolumeSource, bool)> {
    let of_pod = spec.pod_volume().and_then(|volume| volume.nfs.as_ref());
    let of_pod = of_pod.map(|source| (source, source.read_only.unwrap_or(false)));
    let persistent = || Some((spec.persistent_volume()?.nfs.as_ref()?, spec.read_only));
    of_pod.or_else(persistent)
}

#[async_trait]
impl VolumePlugin for NfsPlugin {
    fn name(&self) -> &str {
        "kubernetes.io/nfs"
    }

    fn can_support(&self, spec: &VolumeSpec) -> bool {
        source(spec).is_some()
    }

    fn attributes(&self, mount: &PodMount) -> Attributes {
        Attributes {
            read_only: source(&mount.spec).is_some_and(|(_, read_only)| read_only),
            managed: false,
            selinux_relabel: false,
        }
    }

    async fn set_up(&self, mount: &PodMount) -> Result<SetUp> {
        let (source, read_only) =
            source(&mount.spec).ok_or_else(|| Error::failed("the volume has no nfs"))?;
        if self.host.mounter.is_mount_point(&mount.dir).await? {
            return Ok(SetUp::default());
        }
        let own: &[&str] = if read_only { &["ro"] } else { &[] };
        let options = mount_options::with_own(&mount.spec, own);
        bind::mount(&self.host, &export(source), &mount.dir, "nfs", &options).await?;
        Ok(SetUp::default())
    }

    async fn tear_down(&self, mounted: &OnDisk) -> Result<()> {
        bind::clean_up(&self.host, &mounted.dir).await
    }

    async fn reconstruct(&self, found: &OnDisk) -> Result<VolumeSpec> {
        Ok(VolumeSpec::of_pod(Arc::new(Volume {
            name: found.name.clone(),
            nfs: Some(NFSVolumeSource {
                path: found.name.clone(),
                ..NFSVolumeSource::default()
            }),
            ..Volume::default()
        })))
    }

    async fn usage(&self, mounted: &OnDisk, _: &VolumeSpec) -> Result<Option<VolumeUsage>> {
        let dir = mounted.dir.clone();
        self.host.measure_file_system(dir).await.map(Some)
    }
}

/// `server:/path`; an IPv6 address is in brackets.
fn export(source: &NFSVolumeSource) -> String {
    let (server, path) = (&source.server, &source.path);
    match server.parse::<Ipv6Addr>() {
        Ok(_) => format!("[{server}]:{path}"),
        Err(_) => format!("{server}:{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_in_brackets() {
        for (server, expected) in [
            ("nas", "nas:/x"),
            ("10.0.0.1", "10.0.0.1:/x"),
            ("fd00::1", "[fd00::1]:/x"),
        ] {
            let source = NFSVolumeSource {
                server: server.to_owned(),
                path: "/x".to_owned(),
                read_only: None,
            };
            assert_eq!(export(&source), expected);
        }
    }
}
