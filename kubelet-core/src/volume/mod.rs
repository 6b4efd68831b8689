//! The volumes of a pod: the trait that mounts them, and where they are.

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

/// Mounts a pod's volumes before its containers start, and unmounts them after the containers ended (the kubelet's
/// `volumemanager.VolumeManager`).
#[async_trait]
pub trait VolumeManager: Send + Sync {
    /// Returns when every volume of the pod is mounted (`WaitForAttachAndMount`).
    ///
    /// # Errors
    ///
    /// After [`Error::VolumeAttachLimitExceeded`] the pod is rejected. After any other error it waits and is retried.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    async fn wait_for_attach_and_mount(&self, pod: &Arc<Pod>) -> Result<()>;

    /// The paths of the pod's mounted volumes on the host, by volume name.
    fn mounted_volumes(&self, uid: &PodUid) -> BTreeMap<String, PathBuf>;

    /// Returns when no volume of the pod is mounted any more (`WaitForUnmount`). Idempotent.
    async fn wait_for_unmount(&self, pod: &Arc<Pod>) -> Result<()>;

    /// Removes the volumes of a pod that ended while no agent ran. The pod's folder is removed only when it contains no
    /// volume. Idempotent. By default, it does nothing.
    async fn unmount_orphaned(&self, uid: &PodUid) -> Result<()> {
        let _ = uid;
        Ok(())
    }
}

/// Mounts no volumes: a pod that needs one waits, with an error. Image volumes are mounted by the runtime.
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
            message: format!("this agent does not mount volumes: unmounted volumes={names:?}"),
        })
    }

    fn mounted_volumes(&self, _: &PodUid) -> BTreeMap<String, PathBuf> {
        BTreeMap::new()
    }

    async fn wait_for_unmount(&self, _: &Arc<Pod>) -> Result<()> {
        Ok(())
    }
}
