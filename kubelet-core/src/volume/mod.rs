//! The volumes of a pod: who puts them on the host, and where they are.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;

use crate::{Error, PodExt, PodUid, Result};

mod atomic_writer;
mod dir;
mod empty_dir;
mod host_path;
mod local;
mod ownership;
mod projection;
mod sub_paths;
mod tmpfs;
mod tokens;

pub use local::LocalVolumes;
pub(crate) use sub_paths::clean_sub_paths;
pub use tokens::{NoServiceAccountTokens, ServiceAccountTokens};

/// Mounts a pod's volumes on the host before its containers start, and takes them away after they ended
/// (the kubelet's `volumemanager.VolumeManager`).
#[async_trait]
pub trait VolumeManager: Send + Sync {
    /// Returns when every volume of the pod is mounted (`WaitForAttachAndMount`).
    ///
    /// # Errors
    ///
    /// [`Error::VolumeAttachLimitExceeded`] has the pod rejected; after any other it waits, and is tried again.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    async fn wait_for_attach_and_mount(&self, pod: &Arc<Pod>) -> Result<()>;

    /// By volume name: where the pod's mounted volumes are on the host.
    fn mounted_volumes(&self, uid: &PodUid) -> BTreeMap<String, PathBuf>;

    /// Returns when no volume of the pod is mounted any more (`WaitForUnmount`). Idempotent.
    async fn wait_for_unmount(&self, pod: &Arc<Pod>) -> Result<()>;

    /// Takes away what a pod that nobody knows any more still has of volumes in its folder: it went while no agent ran. Its
    /// folder is removed only when no volume is left in it. Idempotent; unless it is implemented, nothing is taken away.
    async fn unmount_orphaned(&self, uid: &PodUid) -> Result<()> {
        let _ = uid;
        Ok(())
    }
}

/// No volume can be mounted: a pod that asks for one waits, with a clear error. An image as a volume is the runtime's
/// to mount.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoVolumes;

#[async_trait]
impl VolumeManager for NoVolumes {
    async fn wait_for_attach_and_mount(&self, pod: &Arc<Pod>) -> Result<()> {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let to_mount = volumes.filter(|volume| volume.image.is_none());
        let names: Vec<&str> = to_mount.map(|volume| volume.name.as_str()).collect();
        if names.is_empty() {
            return Ok(());
        }
        Err(Error::SyncPod {
            pod: pod.key(),
            uid: pod.uid(),
            message: format!("this agent mounts no volumes: unmounted volumes={names:?}"),
        })
    }

    fn mounted_volumes(&self, _: &PodUid) -> BTreeMap<String, PathBuf> {
        BTreeMap::new()
    }

    async fn wait_for_unmount(&self, _: &Arc<Pod>) -> Result<()> {
        Ok(())
    }
}
