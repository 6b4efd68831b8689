//! Eviction: pods that must go because the node runs out of memory, disk or process ids.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubelet_config::flags::KubeletServer;
use kubelet_core::runtime::{GcPolicy, Runtime as _};
use kubelet_core::{Clock, Disk, EventRecorder, KubeletHandle, NodeEventRecorder, SummaryProvider};
use kubelet_cri::{ImageService, v1};
use kubelet_eviction::notifier::{MemoryHost, memory_notifiers};
use kubelet_eviction::{
    BoxError, ContainerGc, EvictionConfig, EvictionManager, EvictionParts, EvictionSettings, FileSystemInfo,
    FileSystems, ImageGc, KubeletPods, NodePressure,
};
use kubelet_kuberuntime::{CgroupDriver, CriRuntime, ImageGcManager};
use kubelet_node::NodeStatusHandle;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::settings::{count, time};

/// Eviction by a kubelet's settings. It is made before the node and the pods.
pub(crate) struct Eviction {
    config: EvictionConfig,
    /// For the node's conditions, and to reject pods.
    pub(crate) pressure: NodePressure,
    pods_cgroup: Option<PathBuf>,
}

/// What measures, and what is freed.
pub(crate) struct Parts {
    pub(crate) summaries: Arc<dyn SummaryProvider>,
    pub(crate) kubelet: KubeletHandle,
    pub(crate) runtime: Arc<CriRuntime>,
    pub(crate) images: Arc<dyn ImageService>,
    pub(crate) image_gc: ImageGcManager,
    pub(crate) gc_policy: GcPolicy,
    pub(crate) recorder: Arc<dyn EventRecorder>,
    pub(crate) node_recorder: Arc<dyn NodeEventRecorder>,
    /// Sends the node's status when its conditions change; `None` without an API server.
    pub(crate) status: Option<NodeStatusHandle>,
    pub(crate) root_dir: PathBuf,
}

impl Eviction {
    /// Reads the thresholds.
    pub(crate) fn new(server: &KubeletServer) -> Result<Self, Error> {
        let KubeletServer { flags, configuration: config, .. } = server;
        let enforced: &[String] = match flags.experimental_node_allocatable_ignore_eviction_threshold {
            true => &[],
            false => &config.enforce_node_allocatable,
        };
        let mut eviction = EvictionConfig::parse(EvictionSettings {
            hard: &config.eviction_hard,
            soft: &config.eviction_soft,
            soft_grace_period: &config.eviction_soft_grace_period,
            minimum_reclaim: &config.eviction_minimum_reclaim,
            enforce_node_allocatable: enforced,
        })?;
        eviction.pressure_transition_period = time(config.eviction_pressure_transition_period);
        eviction.max_pod_grace_period = Duration::from_secs(count(config.eviction_max_pod_grace_period).into());
        eviction.local_storage_capacity_isolation = config.local_storage_capacity_isolation;
        let driver =
            CgroupDriver::configured(config.cgroups_per_qos, &config.cgroup_driver, &config.cgroup_root);
        Ok(Self { config: eviction, pressure: NodePressure::new(), pods_cgroup: pods_cgroup(&driver) })
    }

    /// Evicts until `ends`.
    pub(crate) async fn run(self, parts: Parts, ends: CancellationToken) {
        let Self { config, pressure, pods_cgroup } = self;
        let host = MemoryHost::new(pods_cgroup.unwrap_or_default());
        let notifiers = memory_notifiers(&config.thresholds, &host);
        let follow = send_changes(pressure.clone(), parts.status);
        let pods = KubeletPods::new(parts.kubelet.clone(), parts.recorder.clone());
        let dead = DeadContainers { kubelet: parts.kubelet, runtime: parts.runtime, policy: parts.gc_policy };
        let parts = EvictionParts {
            summaries: parts.summaries,
            file_systems: Arc::new(OfRuntime { images: parts.images, root_dir: parts.root_dir }),
            pods: Arc::new(pods),
            image_gc: Arc::new(UnusedImages(parts.image_gc)),
            container_gc: Arc::new(dead),
            recorder: parts.recorder,
            node_recorder: parts.node_recorder,
            clock: Clock::system(),
        };
        let manager = EvictionManager::new(config, parts, pressure);
        let manager = notifiers.into_iter().fold(manager, EvictionManager::notifier);
        tokio::join!(manager.run(ends.clone()), ends.run_until_cancelled(follow));
    }
}

/// Sends the node's status at once when its pressures change; the kubelet waits for the next time.
async fn send_changes(pressure: NodePressure, status: Option<NodeStatusHandle>) {
    let mut changes = pressure.changes();
    while changes.changed().await.is_ok() {
        if let Some(status) = &status {
            status.sync();
        }
    }
}

/// The cgroup of all pods below the root of cgroups (`GetPodCgroupRoot`). `None` if the runtime chooses the cgroups of pods.
fn pods_cgroup(driver: &CgroupDriver) -> Option<PathBuf> {
    let parts = |root: &str| -> Vec<String> {
        let parts = root.split('/').filter(|part| !part.is_empty());
        parts.chain(["kubepods"]).map(str::to_owned).collect()
    };
    match driver {
        CgroupDriver::None => None,
        CgroupDriver::Cgroupfs { root } => Some(parts(root).iter().collect()),
        // Each slice has the names of those above it in its own.
        CgroupDriver::Systemd { root } => {
            let parts = parts(root);
            Some((1..=parts.len()).map(|depth| format!("{}.slice", parts[..depth].join("-"))).collect())
        }
    }
}

/// Images that no container uses.
struct UnusedImages(ImageGcManager);

#[async_trait]
impl ImageGc for UnusedImages {
    async fn delete_unused_images(&self) -> Result<(), BoxError> {
        Ok(self.0.delete_unused_images().await?)
    }
}

/// Containers that have ended.
struct DeadContainers {
    kubelet: KubeletHandle,
    runtime: Arc<CriRuntime>,
    policy: GcPolicy,
}

#[async_trait]
impl ContainerGc for DeadContainers {
    async fn delete_all_unused_containers(&self) -> Result<(), BoxError> {
        let policy = GcPolicy {
            all_sources_ready: self.kubelet.sources().all_ready(),
            evict_terminated_pods: true,
            ..self.policy.clone()
        };
        Ok(self.runtime.garbage_collect(&policy, self.kubelet.workers()).await?)
    }
}

/// The file systems as the runtime reports them (`HasDedicatedImageFs`).
struct OfRuntime {
    images: Arc<dyn ImageService>,
    root_dir: PathBuf,
}

#[async_trait]
impl FileSystemInfo for OfRuntime {
    async fn file_systems(&self) -> Result<FileSystems, BoxError> {
        let info = self.images.image_fs_info(v1::ImageFsInfoRequest::default()).await?;
        let folder = |of: &[v1::FilesystemUsage]| Some(PathBuf::from(&of.first()?.fs_id.as_ref()?.mountpoint));
        let images = folder(&info.image_filesystems).ok_or("the runtime reports no file system of images")?;
        let containers = folder(&info.container_filesystems).unwrap_or_else(|| images.clone());
        let root_dir = self.root_dir.clone();
        let compare = move || -> std::io::Result<FileSystems> {
            let device = |path: &Path| std::fs::metadata(path).map(|metadata| metadata.dev());
            let of_images = device(&images)?;
            let split_container_fs = of_images != device(&containers)?;
            let dedicated_image_fs = split_container_fs || of_images != device(&root_dir)?;
            Ok(FileSystems { dedicated_image_fs, split_container_fs })
        };
        Ok(Disk::default().run(compare).await?)
    }
}
