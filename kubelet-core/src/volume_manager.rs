//! The volumes of pods: the trait that mounts them, and what the other parts of the agent read of them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::watch;

use crate::{Error, PodExt, PodUid, Result, VolumeLease};

/// Mounts a pod's volumes before its containers start, and unmounts them after the containers ended (the kubelet's
/// `volumemanager.VolumeManager`).
#[async_trait]
pub trait VolumeManager: Send + Sync {
    /// Returns when every volume of the pod is mounted and up to date (`WaitForAttachAndMount`). Each sync of a pod calls
    /// it, so it is quick when nothing changed.
    ///
    /// # Errors
    ///
    /// After [`Error::VolumeAttachLimitExceeded`] the pod is rejected. After any other error it waits and is retried.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    async fn wait_for_attach_and_mount(&self, pod: &Arc<Pod>) -> Result<()>;

    /// The pod's mounted volumes, by their names in the pod (`GetMountedVolumesForPod`). Quick: reads no file system.
    fn mounted_volumes(&self, uid: &PodUid) -> BTreeMap<String, MountedVolume>;

    /// Keeps the files that a container of this pod uses until the runtime has started it. The runtime takes the lease before
    /// it reads [`mounted_volumes`](Self::mounted_volumes), and it ends with the start, or with the attempt. By default, nothing
    /// regards it: for volumes whose files are not replaced while they are mounted.
    fn lease(&self, uid: &PodUid) -> VolumeLease {
        let _ = uid;
        VolumeLease::default()
    }

    /// Returns when no volume of the pod is mounted any more (`WaitForUnmount`). Idempotent.
    async fn wait_for_unmount(&self, pod: &Arc<Pod>) -> Result<()>;

    /// Removes the volumes of a pod that ended while no agent ran. The pod's folder is removed only when it contains no
    /// volume. Idempotent. By default, it does nothing.
    async fn unmount_orphaned(&self, uid: &PodUid) -> Result<()> {
        let _ = uid;
        Ok(())
    }
}

/// A volume that containers of its pod can use (the kubelet's `container.VolumeInfo`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MountedVolume {
    /// Where it is on the host: a folder or file, or the device of a block volume.
    pub path: PathBuf,
    /// A block device (`volumeMode: Block`), for `volumeDevices` of containers.
    pub is_block: bool,
    /// No container may write to it.
    pub read_only: bool,
    /// The container runtime must label its files for SELinux: its plugin supports that, and it is not mounted with a
    /// context.
    pub selinux_relabel: bool,
    /// The name of the volume on the host: that of the persistent volume, or the name in the pod's spec
    /// (`InnerVolumeSpecName`). The folders of its sub-paths have this name.
    pub inner_name: String,
    /// The group that owns its files, if its persistent volume says so: containers of the pod have it as a supplemental
    /// group (`VolumeGIDValue`).
    pub group: Option<i64>,
}

impl MountedVolume {
    /// A folder or file at `path` that containers may write to.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            is_block: false,
            read_only: false,
            selinux_relabel: false,
            inner_name: String::new(),
            group: None,
        }
    }
}

/// The attached volumes that are in use. They are in the status of the node, so that no controller detaches them.
pub trait VolumesInUse: Send + Sync {
    /// Their unique names; `None` until they are known (`ReconcilerStatesHasBeenSynced`, `GetVolumesInUse`).
    fn volumes_in_use(&self) -> Option<Vec<String>>;

    /// The node's status in the API server now lists these volumes, so they may be mounted
    /// (`MarkVolumesAsReportedInUse`).
    fn mark_reported(&self, volumes: &[String]) {
        let _ = volumes;
    }

    /// Changes whenever [`volumes_in_use`](Self::volumes_in_use) does: the node then reports its status at once, because
    /// a pod waits for it. `None`, the default: changes are reported with the next status of the node.
    fn changes(&self) -> Option<watch::Receiver<u64>> {
        None
    }
}

/// For an agent that attaches no volumes: it reports an empty list, and so clears what an earlier agent
/// reported.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoVolumesInUse;

impl VolumesInUse for NoVolumesInUse {
    fn volumes_in_use(&self) -> Option<Vec<String>> {
        Some(Vec::new())
    }
}

/// Reads how much of their file systems the volumes of pods use.
#[async_trait]
pub trait VolumeUsages: Send + Sync {
    /// The usage of each volume of the pod that reports one, by its name in the pod. Measured in the background: a
    /// file system that hangs leaves its volume out, and delays nobody.
    async fn volume_usages(&self, uid: &PodUid) -> BTreeMap<String, VolumeUsage>;
}

/// How much of its file system a volume uses (the kubelet's `volume.Metrics`). Fields are `None` where the plugin or
/// the file system does not report them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VolumeUsage {
    /// When it was measured.
    pub time: Option<jiff::Timestamp>,
    /// Bytes that its files use.
    pub used_bytes: Option<u64>,
    /// Bytes of its file system.
    pub capacity_bytes: Option<u64>,
    /// Bytes that are free for it.
    pub available_bytes: Option<u64>,
    /// Inodes that its files use.
    pub inodes_used: Option<u64>,
    /// Inodes of its file system.
    pub inodes: Option<u64>,
    /// Inodes that are free for it.
    pub inodes_free: Option<u64>,
    /// Whether its CSI driver reports it as abnormal.
    pub abnormal: Option<bool>,
    /// The claim, as namespace and name, if it is a persistent volume.
    pub claim: Option<(String, String)>,
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

    fn mounted_volumes(&self, _: &PodUid) -> BTreeMap<String, MountedVolume> {
        BTreeMap::new()
    }

    async fn wait_for_unmount(&self, _: &Arc<Pod>) -> Result<()> {
        Ok(())
    }
}
