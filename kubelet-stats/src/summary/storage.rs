//! What pods store: writable layers, logs, volumes, `/etc/hosts`.

use std::collections::HashMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Pod, Volume};
use kubelet_core::stats::{
    ContainerStats, FsStats, PodReference, PodStats, PvcReference, RuntimeContainerUsage, VolumeHealthStats,
    VolumeStats,
};
use kubelet_core::{PodUid, VolumeUsage};

use super::node::fill_capacity;
use super::{NodeSummary, time};
use crate::reading::FileSystem;
use crate::source::FileUsage;

/// Adds what pods store. The file systems of writable layers are read once.
pub(super) struct Storage<'a> {
    summary: &'a NodeSummary,
    root_fs: &'a FileSystem,
    known: HashMap<String, Option<FileSystem>>,
}

impl<'a> Storage<'a> {
    pub(super) fn new(summary: &'a NodeSummary, root_fs: &'a FileSystem) -> Self {
        Self {
            summary,
            root_fs,
            known: HashMap::new(),
        }
    }

    /// What is free for the writable layer.
    pub(super) async fn add_rootfs_capacity(
        &mut self,
        stats: &mut ContainerStats,
        usage: &RuntimeContainerUsage,
    ) {
        let (Some(rootfs), Some(layer)) = (&mut stats.rootfs, &usage.writable_layer) else {
            return;
        };
        if !self.known.contains_key(&layer.mountpoint) {
            let found = self.summary.known_file_system(&layer.mountpoint).await;
            self.known.insert(layer.mountpoint.clone(), found);
        }
        if let Some(Some(file_system)) = self.known.get(&layer.mountpoint) {
            fill_capacity(rootfs, file_system);
        }
    }

    /// Adds logs, volumes and the sum of everything to each pod (`makePodStorageStats`).
    pub(super) async fn finish(self, pods: &mut [PodStats]) {
        let config = &self.summary.inner.config;
        // All files are looked at in one go: for each pod its hosts file and its folder of logs, then those of its
        // containers.
        let mut paths = Vec::new();
        for pod in pods.iter() {
            let logs = config.pod_logs_dir.join(pod_logs_folder(&pod.pod_ref));
            paths.push(config.root_dir.etc_hosts(&PodUid::from(pod.pod_ref.uid.as_str())));
            let of_containers: Vec<PathBuf> = pod
                .containers
                .iter()
                .flatten()
                .map(|container| logs.join(&container.name))
                .collect();
            paths.push(logs);
            paths.extend(of_containers);
        }
        let mut files = self
            .summary
            .inner
            .collector
            .file_systems()
            .files(paths)
            .await
            .into_iter();
        let mut next = || files.next().flatten();
        for pod in pods {
            let hosts = next();
            let logs = next();
            for container in pod.containers.iter_mut().flatten() {
                container.logs = next().map(|used| self.of_files(used));
            }
            let (ephemeral, persistent) = self.volumes(&pod.pod_ref).await;
            pod.ephemeral_storage = Some(self.sum(pod, &ephemeral, logs, hosts));
            pod.volume_stats = ephemeral;
            pod.volume_stats.extend(persistent);
        }
    }

    /// The node's file system, with what these files use (`metricsByPathToFsStats`).
    fn of_files(&self, used: FileUsage) -> FsStats {
        let mut stats = self.empty();
        if used.inodes > 0 {
            stats.used_bytes = Some(used.bytes);
            stats.inodes_used = Some(used.inodes);
            stats.time = self.summary.now();
        }
        stats
    }

    /// The node's file system (`rootFsInfoToFsStats`).
    fn empty(&self) -> FsStats {
        let mut stats = FsStats {
            time: time(self.root_fs.timestamp),
            ..Default::default()
        };
        fill_capacity(&mut stats, self.root_fs);
        stats
    }

    /// (`calcEphemeralStorage`)
    fn sum(
        &self,
        pod: &PodStats,
        volumes: &[VolumeStats],
        logs: Option<FileUsage>,
        hosts: Option<FileUsage>,
    ) -> FsStats {
        let mut sum = self.empty();
        for container in pod.containers.iter().flatten() {
            let Some(rootfs) = &container.rootfs else { continue };
            add(&mut sum, rootfs);
            if let Some(logs) = &container.logs {
                add(&mut sum, logs);
            }
        }
        for volume in volumes {
            add(&mut sum, &volume.fs);
        }
        for used in [logs, hosts].into_iter().flatten() {
            add(&mut sum, &self.of_files(used));
        }
        sum
    }

    /// Local volumes of the pod, and others, each by name (`GetPodVolumeStats`).
    async fn volumes(&self, pod_ref: &PodReference) -> (Vec<VolumeStats>, Vec<VolumeStats>) {
        let config = &self.summary.inner.config;
        let Some(volumes) = &config.volumes else {
            return Default::default();
        };
        let uid = PodUid::from(pod_ref.uid.as_str());
        let pod = config.pods.as_ref().and_then(|pods| pods.pod(&uid));
        let (mut ephemeral, mut persistent) = (Vec::new(), Vec::new());
        for (name, usage) in volumes.volume_usages(&uid).await {
            let spec = pod.as_deref().and_then(|pod| volume_of(pod, &name));
            let target = match spec.is_some_and(is_local_ephemeral) {
                true => &mut ephemeral,
                false => &mut persistent,
            };
            target.push(volume(name, usage));
        }
        (ephemeral, persistent)
    }
}

/// `namespace_name_uid` (`BuildPodLogsDirectory`)
fn pod_logs_folder(pod: &PodReference) -> String {
    format!("{}_{}_{}", pod.namespace, pod.name, pod.uid)
}

fn volume_of<'a>(pod: &'a Pod, name: &str) -> Option<&'a Volume> {
    let volumes = pod.spec.as_ref()?.volumes.as_ref()?;
    volumes.iter().find(|volume| volume.name == name)
}

/// It is stored on the node's file system, and ends with the pod (`IsLocalEphemeralVolume`).
fn is_local_ephemeral(volume: &Volume) -> bool {
    let on_disk = |medium: &Option<String>| medium.as_deref().unwrap_or_default().is_empty();
    volume.git_repo.is_some()
        || volume.config_map.is_some()
        || volume
            .empty_dir
            .as_ref()
            .is_some_and(|volume| on_disk(&volume.medium))
}

/// (`parsePodVolumeStats`)
fn volume(name: String, usage: VolumeUsage) -> VolumeStats {
    let zero = |value: Option<u64>| Some(value.unwrap_or(0));
    VolumeStats {
        fs: FsStats {
            time: usage.time.and_then(time),
            available_bytes: zero(usage.available_bytes),
            capacity_bytes: zero(usage.capacity_bytes),
            used_bytes: zero(usage.used_bytes),
            inodes_free: zero(usage.inodes_free),
            inodes: zero(usage.inodes),
            inodes_used: zero(usage.inodes_used),
        },
        name,
        pvc_ref: usage
            .claim
            .map(|(namespace, name)| PvcReference { name, namespace }),
        volume_health_stats: usage.abnormal.map(|abnormal| VolumeHealthStats { abnormal }),
    }
}

/// Adds bytes and inodes; the later time counts (`addUsage`, `maxUpdateTime`).
fn add(sum: &mut FsStats, more: &FsStats) {
    let plus = |a: Option<u64>, b: Option<u64>| match (a, b) {
        (Some(a), Some(b)) => Some(a.saturating_add(b)),
        (a, b) => a.or(b),
    };
    sum.used_bytes = plus(sum.used_bytes, more.used_bytes);
    sum.inodes_used = plus(sum.inodes_used, more.inodes_used);
    if sum.time < more.time {
        sum.time = more.time.clone();
    }
}
