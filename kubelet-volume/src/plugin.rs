//! The traits of a volume plugin. [`VolumePlugin`] is all that most plugins implement; what only some plugins can do has
//! a trait of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{ConfigObjectRef, PodUid, VolumeLeases, VolumeUsage};
use tokio::time::Instant;

use crate::{Result, VolumeSpec};

/// One kind of volume (the kubelet's `volume.VolumePlugin` with its `Mounter` and `Unmounter`).
///
/// The manager never runs two operations of one volume at once. Each operation is idempotent: after an agent was killed,
/// or an answer was lost, it runs again. A call that hangs holds up only the pods that use this volume.
///
/// # Cancel safety
///
/// The manager drops a call only when the agent shuts down. Work on the file system then ends on its own thread.
#[async_trait]
pub trait VolumePlugin: Send + Sync {
    /// Its name, e.g. `kubernetes.io/empty-dir`. It is also the name of the folder of its volumes, with `~` for `/`.
    fn name(&self) -> &str;

    /// Whether it mounts this volume. Exactly one plugin of a manager may say so.
    fn can_support(&self, spec: &VolumeSpec) -> bool;

    /// Where the volume is for containers, once it is set up. By default the volume's folder below the pod's.
    fn path(&self, mount: &PodMount) -> PathBuf {
        mount.dir.clone()
    }

    /// Properties of the mount (the kubelet's `volume.Attributes`).
    fn attributes(&self, mount: &PodMount) -> Attributes;

    /// Checks the volume before anything is mounted (`NewMounter`). The manager calls it before
    /// [`set_up`](Self::set_up), and reports its error as `MountVolume.NewMounter initialization failed`.
    async fn prepare(&self, mount: &PodMount) -> Result<()> {
        let _ = mount;
        Ok(())
    }

    /// Mounts the volume for a pod, or brings its files up to date.
    ///
    /// # Errors
    ///
    /// [`Error::Uncertain`](crate::Error::Uncertain) if something may be mounted. After any error it is retried.
    async fn set_up(&self, mount: &PodMount) -> Result<SetUp>;

    /// Unmounts the volume of a pod and removes its folder. The pod itself may be gone, and the volume may be known only
    /// from what lies on disk.
    async fn tear_down(&self, mounted: &OnDisk) -> Result<()>;

    /// The objects whose change makes the files of the volume differ. The manager calls [`set_up`](Self::set_up) again
    /// after one changed.
    fn config_objects(&self, mount: &PodMount) -> Vec<ConfigObjectRef> {
        let _ = mount;
        Vec::new()
    }

    /// Whether the files depend on the pod's metadata or status: then a change of the pod sets it up again
    /// (`RequiresRemount`).
    fn depends_on_pod(&self, spec: &VolumeSpec) -> bool {
        let _ = spec;
        false
    }

    /// Whether it applies the mount options of a persistent volume (`SupportsMountOption`). Otherwise a volume that has
    /// some cannot be mounted.
    fn supports_mount_options(&self) -> bool {
        true
    }

    /// Whether it can mount this volume with a SELinux context (`SupportsSELinuxContextMount`). The manager asks only where
    /// the host has SELinux. By default, `false`.
    async fn supports_selinux_mount(&self, spec: &VolumeSpec) -> Result<bool> {
        let _ = spec;
        Ok(false)
    }

    /// Finds out what is mounted in a folder that an earlier agent left, without an API server
    /// (`ConstructVolumeSpec`).
    ///
    /// # Errors
    ///
    /// If it cannot be known: the manager then removes what is left of it when the pod is gone.
    async fn reconstruct(&self, found: &OnDisk) -> Result<VolumeSpec>;

    /// Measures the volume. `None` if this kind of volume has no usage of its own, e.g. a path of the host.
    async fn usage(&self, mounted: &OnDisk, spec: &VolumeSpec) -> Result<Option<VolumeUsage>> {
        let _ = (mounted, spec);
        Ok(None)
    }

    /// If volumes must be attached to the node first.
    fn attachable(&self) -> Option<&dyn AttachableVolumePlugin> {
        None
    }

    /// If the node mounts the volume once for all its pods.
    fn device_mountable(&self) -> Option<&dyn DeviceMountableVolumePlugin> {
        None
    }

    /// If volumes can be block devices.
    fn block(&self) -> Option<&dyn BlockVolumePlugin> {
        None
    }

    /// If volumes grow on the node.
    fn expandable(&self) -> Option<&dyn NodeExpandableVolumePlugin> {
        None
    }
}

/// A volume for one pod, as it is to be mounted.
#[derive(Clone, Debug)]
pub struct PodMount {
    /// The pod.
    pub pod: Arc<Pod>,
    /// The name of the volume in the pod's spec (`OuterVolumeSpecName`).
    pub outer_name: String,
    /// What to mount.
    pub spec: Arc<VolumeSpec>,
    /// Its folder: `<root>/pods/<uid>/volumes/<plugin>/<name>`, or `volumeDevices` for a block device.
    pub dir: PathBuf,
    /// Where the node has mounted or mapped the volume for all pods; of a device-mountable plugin.
    pub device_mount_path: Option<PathBuf>,
    /// `securityContext.fsGroup`, if the plugin is to apply it.
    pub fs_group: Option<u32>,
    /// When the group of all files is changed.
    pub fs_group_change_policy: FsGroupChangePolicy,
    /// The SELinux label to mount the volume with (`-o context=`), where the host has SELinux and the plugin supports
    /// that.
    pub selinux_label: Option<String>,
    /// Which files containers that are about to start use. A plugin that replaces the files of a mounted volume locks it, and
    /// keeps what is held. The plugins of [`InTreePlugins`](crate::InTreePlugins) do.
    pub leases: VolumeLeases,
}

/// `securityContext.fsGroupChangePolicy`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FsGroupChangePolicy {
    /// Each time the volume is mounted.
    #[default]
    Always,
    /// Only when the root folder of the volume has another group or other permissions.
    OnRootMismatch,
}

/// A volume of a pod that is on this host, perhaps since before the agent started.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OnDisk {
    /// The pod's UID.
    pub uid: PodUid,
    /// The name of its folder: [`VolumeSpec::name`], with `~` for `/`.
    pub name: String,
    /// Its folder.
    pub dir: PathBuf,
    /// It is a block device, below `volumeDevices`.
    pub is_block: bool,
}

/// Properties of a mounted volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// No container may write to it.
    pub read_only: bool,
    /// The agent gives its files to the pod's group.
    pub managed: bool,
    /// The container runtime labels its files for SELinux.
    pub selinux_relabel: bool,
}

/// The result of [`VolumePlugin::set_up`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetUp {
    /// When to call it again although nothing has changed, e.g. because a token expires.
    pub again_at: Option<Instant>,
}

/// A plugin whose volumes are attached to the node, by the attach-detach controller or by the agent (the kubelet's
/// `AttachableVolumePlugin`).
#[async_trait]
pub trait AttachableVolumePlugin: Send + Sync {
    /// Whether this volume must be attached at all (`CanAttach`).
    async fn can_attach(&self, spec: &VolumeSpec) -> Result<bool>;

    /// Requests that the volume is attached to the node. Returns the path of its device, or an empty string. For agents
    /// with `enableControllerAttachDetach: false`.
    async fn attach(&self, spec: &VolumeSpec, node_name: &str) -> Result<String>;

    /// Waits until the volume is attached. Returns the path of its device, or an empty string.
    async fn wait_for_attach(&self, spec: &VolumeSpec, device_path: &str, pod: &Arc<Pod>) -> Result<String>;

    /// Requests that the volume is detached. `volume_name` is without the name of the plugin.
    async fn detach(&self, volume_name: &str, node_name: &str) -> Result<()>;

    /// Whether the volume is not attached because the node has as many as it can have (`VerifyExhaustedResource`): a pod
    /// that waits for it is then rejected. By default, `false`.
    async fn is_exhausted(&self, spec: &VolumeSpec) -> bool {
        let _ = spec;
        false
    }
}

/// A plugin that mounts a volume once for all pods of the node (the kubelet's `DeviceMountableVolumePlugin`).
#[async_trait]
pub trait DeviceMountableVolumePlugin: Send + Sync {
    /// Whether this volume is mounted for the node first (`CanDeviceMount`).
    async fn can_device_mount(&self, spec: &VolumeSpec) -> Result<bool>;

    /// The name that makes the volume unique among those of the plugin (`GetVolumeName`).
    fn volume_name(&self, spec: &VolumeSpec) -> Result<String>;

    /// Where it is mounted for the node (`GetDeviceMountPath`).
    fn device_mount_path(&self, spec: &VolumeSpec) -> Result<PathBuf>;

    /// Mounts the device (`MountDevice`, CSI's `NodeStageVolume`).
    async fn mount_device(&self, mount: &DeviceMount) -> Result<()>;

    /// Unmounts the device (`UnmountDevice`).
    async fn unmount_device(&self, device_mount_path: &Path) -> Result<()>;

    /// The devices that an earlier agent mounted for the node, without an API server. The manager unmounts those that no
    /// pod uses. By default, there are none.
    async fn mounted_devices(&self) -> Result<Vec<VolumeSpec>> {
        Ok(Vec::new())
    }
}

/// A volume for the node.
#[derive(Clone, Debug)]
pub struct DeviceMount {
    /// What to mount.
    pub spec: Arc<VolumeSpec>,
    /// The path of its device, if it was attached.
    pub device_path: String,
    /// Where to mount it.
    pub device_mount_path: PathBuf,
    /// `securityContext.fsGroup` of the pod that it is mounted for.
    pub fs_group: Option<u32>,
    /// The SELinux label to mount the volume with.
    pub selinux_label: Option<String>,
}

/// A plugin with block devices (the kubelet's `BlockVolumePlugin`).
#[async_trait]
pub trait BlockVolumePlugin: Send + Sync {
    /// The folder of the links to the device, for the node (`GetGlobalMapPath`).
    fn global_map_path(&self, spec: &VolumeSpec) -> Result<PathBuf>;

    /// The folder and the name of the link to the device, for the pod (`GetPodDeviceMapPath`).
    fn pod_device_map_path(&self, mount: &PodMount) -> (PathBuf, String);

    /// Prepares the device for the node (`SetUpDevice`). Returns its staging path, if it has one.
    async fn set_up_device(&self, mount: &PodMount, device_path: &str) -> Result<Option<PathBuf>>;

    /// Prepares the device for the pod (`MapPodDevice`). Returns the path of the device.
    async fn map_pod_device(&self, mount: &PodMount, device_path: &str) -> Result<PathBuf>;

    /// Undoes [`map_pod_device`](Self::map_pod_device).
    async fn unmap_pod_device(&self, mapped: &OnDisk) -> Result<()>;

    /// Undoes [`set_up_device`](Self::set_up_device). `spec` may be reconstructed.
    async fn tear_down_device(
        &self,
        spec: &VolumeSpec,
        global_map_path: &Path,
        device_path: &str,
    ) -> Result<()>;

    /// [`VolumePlugin::reconstruct`] for a block device (`ConstructBlockVolumeSpec`).
    async fn reconstruct_block(&self, found: &OnDisk) -> Result<VolumeSpec>;
}

/// A plugin whose volumes grow on the node (the kubelet's `NodeExpandableVolumePlugin`).
#[async_trait]
pub trait NodeExpandableVolumePlugin: Send + Sync {
    /// Whether the node must grow this volume (`RequiresFSResize`).
    async fn requires_expansion(&self, spec: &VolumeSpec) -> bool;

    /// Grows the file system. Returns whether anything was done; `false`: the driver has nothing to do on the node.
    ///
    /// # Errors
    ///
    /// [`Error::FailedPrecondition`](crate::Error::FailedPrecondition) if the volume cannot grow while it is in use,
    /// [`Error::Infeasible`](crate::Error::Infeasible) if it can never have this size.
    async fn node_expand(&self, expansion: &Expansion) -> Result<bool>;
}

/// What [`NodeExpandableVolumePlugin::node_expand`] grows.
#[derive(Clone, Debug)]
pub struct Expansion {
    /// The volume.
    pub spec: Arc<VolumeSpec>,
    /// The path of its device, if it was attached.
    pub device_path: String,
    /// Where it is mounted for the node.
    pub device_mount_path: PathBuf,
    /// Where it is mounted for the pod, or where its device is.
    pub dir: PathBuf,
    /// The size it has, in bytes, as the claim's status says.
    pub old_size: i64,
    /// The size it gets, in bytes.
    pub new_size: i64,
    /// It is mounted for a pod (published), not only for the node.
    pub is_published: bool,
}
