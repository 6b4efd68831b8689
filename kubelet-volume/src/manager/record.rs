//! One volume of the node, with all that the engine remembers of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Volume};
use kubelet_core::{MountedVolume, PodExt, PodUid, VolumeLeases};
use tokio::time::Instant;

use super::back_off::Kind;
use super::next_step::{MountSituation, Presence, Situation, Wanted};
use super::resolve::Resolved;
use super::selinux::MountContext;
use super::sources::Sources;
use crate::{FsGroupChangePolicy, OnDisk, PodMount, VolumePlugin, VolumeSpec};

/// The unique name of a volume: `<plugin>/<volume>` if the node mounts it once for all pods, else
/// `<plugin>/<pod uid>-<volume>` (`UniqueVolumeName`).
pub(crate) type VolumeKey = Arc<str>;

/// A volume of the node.
pub(crate) struct Record {
    /// What decides about the next step.
    pub(crate) situation: Situation,
    pub(crate) plugin: Arc<dyn VolumePlugin>,
    /// What to mount, as the last pod that wanted it found it.
    pub(crate) spec: Arc<VolumeSpec>,
    pub(crate) is_block: bool,
    /// The path of the attached device, if it has one.
    pub(crate) device_path: String,
    /// Where the device is mounted or mapped for the node.
    pub(crate) device_mount_path: Option<PathBuf>,
    /// An earlier agent mounted the device.
    pub(crate) device_was_found: bool,
    /// The SELinux context of the pods that want it.
    pub(crate) context: MountContext,
    /// The label that the node has mounted it with; empty: none. `None`: an earlier agent mounted it.
    pub(crate) device_label: Option<String>,
    /// What belongs to the mounts of `situation`, by the same keys. Boxed: almost all volumes have one mount, and a map has room for
    /// eleven.
    pub(crate) mounts: BTreeMap<PodUid, Box<Mount>>,
    pub(crate) size: Size,
    /// The engine has a timer for it.
    pub(crate) wakes_at: Option<Instant>,
}

/// How large a persistent volume is, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Size {
    /// The size of its file system, as the status of its claim says; `None` until it is known.
    pub(crate) current: Option<i64>,
    /// The size of the volume.
    pub(crate) wanted: Option<i64>,
    /// Its driver cannot grow it while it is in use.
    pub(crate) cannot_grow_in_use: bool,
    /// Its driver has failed to grow it, for good.
    pub(crate) has_failed: bool,
}

/// The mount of one pod.
pub(crate) struct Mount {
    pub(crate) pod: Arc<Pod>,
    pub(crate) spec: Arc<VolumeSpec>,
    /// The names of the pod's volumes that lead here. Several can name the same claim.
    pub(crate) outer_names: Vec<String>,
    pub(crate) on_disk: OnDisk,
    /// An earlier agent mounted it, and it was not set up since.
    pub(crate) was_found: bool,
    /// Only its folder is known, and not what is mounted.
    pub(crate) is_unknown: bool,
    /// What its files are made from.
    pub(crate) sources: Sources,
    /// Counts the changes of its sources.
    pub(crate) version: u64,
    pub(crate) wanted_since: Instant,
    /// What containers get, once it was mounted.
    pub(crate) mounted: Option<MountedVolume>,
}

impl Record {
    pub(crate) fn new(wanted: &Resolved) -> Self {
        let situation = Situation {
            attachable: wanted.attachable,
            has_device: wanted.has_device,
            ..Situation::default()
        };
        Self {
            situation,
            plugin: wanted.plugin.clone(),
            spec: wanted.spec.clone(),
            is_block: wanted.is_block,
            device_path: String::new(),
            device_mount_path: None,
            device_was_found: false,
            context: MountContext::default(),
            device_label: None,
            mounts: BTreeMap::new(),
            size: Size::default(),
            wakes_at: None,
        }
    }

    /// The SELinux context of a pod that wants it: all pods have the same. The error has the kubelet's text.
    pub(crate) fn admit(&mut self, uid: &PodUid, wanted: &Resolved) -> Result<(), String> {
        let is_wanted = |mount: &MountSituation| mount.wanted == Wanted::Yes;
        if self.situation.mounts.get(uid).is_some_and(is_wanted) {
            return Ok(());
        }
        // For metrics (`getVolumePluginNameWithDriver`).
        let plugin = self.qualified_plugin_name().replacen(':', "/", 1);
        if self.situation.mounts.values().any(is_wanted) {
            return self.context.admit(&wanted.context, wanted.spec.name(), &plugin);
        }
        self.context = wanted.context.clone();
        self.context.count(&plugin);
        Ok(())
    }

    /// What an earlier agent left of this pod's mount has the context that the pod wants.
    pub(crate) fn keep_context(&mut self) {
        let label = self.context.mounted_with().unwrap_or_default();
        self.device_label.get_or_insert_with(|| label.to_owned());
    }

    /// Whether the node has mounted it with another SELinux context, or perhaps has.
    pub(crate) fn has_other_context(&self) -> bool {
        let label = self.context.mounted_with().unwrap_or_default();
        let is_mounted = self.situation.device != Presence::Absent && !self.is_block;
        self.context.matters() && is_mounted && self.device_label.as_deref() != Some(label)
    }

    /// A pod wants it.
    pub(crate) fn want(&mut self, pod: &Arc<Pod>, wanted: Resolved, on_disk: OnDisk, now: Instant) {
        let uid = pod.uid();
        self.situation.attachable = wanted.attachable;
        self.situation.has_device = wanted.has_device;
        self.spec = wanted.spec.clone();
        let situation = self.situation.mounts.entry(uid.clone()).or_default();
        if situation.wanted == Wanted::No {
            situation.back_off.reset();
        }
        situation.wanted = Wanted::Yes;
        let mount = self.mounts.entry(uid).or_insert_with(|| {
            Box::new(Mount {
                pod: pod.clone(),
                spec: wanted.spec.clone(),
                outer_names: Vec::new(),
                on_disk,
                was_found: false,
                is_unknown: false,
                sources: Sources::default(),
                version: 0,
                wanted_since: now,
                mounted: None,
            })
        });
        mount.pod = pod.clone();
        mount.spec = wanted.spec;
        mount.is_unknown = false;
        if !mount.outer_names.contains(&wanted.outer_name) {
            mount.outer_names.push(wanted.outer_name);
        }
    }

    /// Something was found on disk that an earlier agent mounted.
    pub(crate) fn find(&mut self, on_disk: OnDisk, spec: Arc<VolumeSpec>, is_unknown: bool, now: Instant) {
        let uid = on_disk.uid.clone();
        let mut pod = Pod::default();
        pod.metadata.uid = Some(uid.to_string());
        let situation = MountSituation {
            presence: Presence::Uncertain,
            ..MountSituation::default()
        };
        self.situation.mounts.insert(uid.clone(), situation);
        let mount = Mount {
            pod: Arc::new(pod),
            spec,
            outer_names: Vec::new(),
            on_disk,
            was_found: true,
            is_unknown,
            sources: Sources::default(),
            version: 0,
            wanted_since: now,
            mounted: None,
        };
        self.mounts.insert(uid, Box::new(mount));
    }

    /// Its pod has ended. Returns whether that changes anything.
    pub(crate) fn unwant(&mut self, uid: &PodUid) -> bool {
        let Some(situation) = self.situation.mounts.get_mut(uid) else {
            return false;
        };
        if situation.wanted == Wanted::No {
            return false;
        }
        situation.wanted = Wanted::No;
        situation.is_stale = false;
        situation.again_at = None;
        situation.back_off.reset();
        true
    }

    /// Its files must be made again for this pod. Returns whether it is mounted, so that there is something to do.
    pub(crate) fn mark_stale(&mut self, uid: &PodUid) -> bool {
        let (Some(situation), Some(mount)) = (self.situation.mounts.get_mut(uid), self.mounts.get_mut(uid))
        else {
            return false;
        };
        mount.version += 1;
        // What failed may succeed now.
        if situation.wanted == Wanted::Yes && situation.back_off.has_failed(Kind::Mount) {
            situation.back_off.reset();
        }
        situation.is_stale = situation.presence == Presence::Mounted;
        situation.wanted == Wanted::Yes
    }

    /// The mount as plugins get it.
    pub(crate) fn pod_mount(&self, mount: &Mount, leases: &VolumeLeases) -> PodMount {
        let context = mount
            .pod
            .spec
            .as_ref()
            .and_then(|spec| spec.security_context.as_ref());
        let policy = context.and_then(|context| context.fs_group_change_policy.as_deref());
        let fs_group = context.and_then(|context| context.fs_group);
        PodMount {
            pod: mount.pod.clone(),
            outer_name: mount.outer_names.first().cloned().unwrap_or_default(),
            spec: mount.spec.clone(),
            dir: mount.on_disk.dir.clone(),
            device_mount_path: self.device_mount_path.clone(),
            fs_group: fs_group.and_then(|group| u32::try_from(group).ok()),
            fs_group_change_policy: match policy {
                Some("OnRootMismatch") => FsGroupChangePolicy::OnRootMismatch,
                _ => FsGroupChangePolicy::Always,
            },
            selinux_label: self.context.mounted_with().map(str::to_owned),
            leases: leases.clone(),
        }
    }

    /// Whether a pod wants it or something of it is mounted, so that no controller may detach it (`GetVolumesInUse`).
    pub(crate) fn is_in_use(&self) -> bool {
        self.situation.attachable
    }

    /// The plugin's name for metrics, with the driver of a CSI volume (`GetFullQualifiedPluginNameForVolume`).
    pub(crate) fn qualified_plugin_name(&self) -> String {
        qualified_plugin_name(&*self.plugin, &self.spec)
    }

    /// Whether an in-tree plugin's volume was translated for a CSI driver, for metrics.
    pub(crate) fn is_migrated(&self) -> bool {
        self.spec.migrated
    }

    /// The bytes by which its file system has to grow, as old and new size.
    pub(crate) fn growth(&self) -> Option<(i64, i64)> {
        let (current, wanted) = (self.size.current?, self.size.wanted?);
        let can = !self.size.cannot_grow_in_use && current > 0 && wanted > current;
        can.then_some((current, wanted))
    }

    /// Removes the mounts of pods that are gone and left nothing. Returns their UIDs.
    pub(crate) fn drop_gone(&mut self) -> Vec<PodUid> {
        let gone = self
            .situation
            .mounts
            .iter()
            .filter(|(_, mount)| mount.wanted == Wanted::No && mount.presence == Presence::Absent);
        let gone: Vec<PodUid> = gone.map(|(uid, _)| uid.clone()).collect();
        for uid in &gone {
            self.situation.mounts.remove(uid);
            self.mounts.remove(uid);
        }
        gone
    }
}

/// (`GetFullQualifiedPluginNameForVolume`)
pub(crate) fn qualified_plugin_name(plugin: &dyn VolumePlugin, spec: &VolumeSpec) -> String {
    let inline = spec.pod_volume().and_then(|volume| volume.csi.as_ref());
    let persistent = spec.persistent_volume().and_then(|volume| volume.csi.as_ref());
    let driver = inline
        .map(|csi| &csi.driver)
        .or(persistent.map(|csi| &csi.driver));
    match driver {
        Some(driver) => format!("{}:{driver}", plugin.name()),
        None => plugin.name().to_owned(),
    }
}

/// A spec that is only a name, for what cannot be reconstructed.
pub(crate) fn unknown_spec(name: &str) -> Arc<VolumeSpec> {
    Arc::new(VolumeSpec::of_pod(Arc::new(Volume {
        name: name.to_owned(),
        ..Volume::default()
    })))
}
