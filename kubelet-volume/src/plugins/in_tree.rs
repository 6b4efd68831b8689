//! The plugins that belong to the kubelet itself, and what they share.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::{
    Clock, ClusterTrustBundles, ConfigObjects, Disk, EventRecorder, FixedNode, LogEvents,
    NoClusterTrustBundles, NoConfigObjects, NoServiceAccountTokens, NodeGetter, PodCertificates, RootDir,
    ServiceAccountTokens, VolumeUsage,
};
use tokio::sync::Semaphore;

use super::config_map::ConfigMapPlugin;
use super::downward_api::DownwardApiPlugin;
use super::empty_dir::EmptyDirPlugin;
use super::errors::in_words;
use super::git_repo::GitRepoPlugin;
use super::host_path::HostPathPlugin;
use super::image::ImagePlugin;
use super::local_volume::LocalVolumePlugin;
use super::nfs::NfsPlugin;
use super::projected::ProjectedPlugin;
use super::secret::SecretPlugin;
use crate::filesystem::path_error::reason;
use crate::filesystem::usage;
use crate::filesystem::walk::{CancelOnDrop, Progress};
use crate::measuring::timed;
use crate::{Error, HostMounter, Mounter, Result, VolumePlugin, VolumeQuotas};

/// How many volumes are measured at a time: each reads the metadata of all its files.
const MEASURED_AT_ONCE: usize = 2;

/// Makes the plugins that belong to the kubelet itself (`ProbeVolumePlugins`): `configMap`, `secret`, `downwardAPI`,
/// `projected`, `emptyDir`, `hostPath`, `local`, `nfs`, `image` and `gitRepo`.
///
/// Not among them are `iscsi`, `fc` and `flexVolume`, and the plugins of clouds, which are translated for CSI drivers.
///
/// ```
/// let plugins = kubelet_volume::InTreePlugins::new("/var/lib/kubelet").build();
/// assert!(plugins.iter().any(|plugin| plugin.name() == "kubernetes.io/empty-dir"));
/// ```
pub struct InTreePlugins {
    host: Host,
    mounter: Option<Arc<dyn Mounter>>,
}

impl InTreePlugins {
    /// The volumes of pods are in their folders below `root_dir`.
    pub fn new(root_dir: impl Into<PathBuf>) -> Self {
        let host = Host {
            root_dir: RootDir::new(root_dir),
            disk: Disk::default(),
            clock: Clock::system(),
            mounter: Arc::new(HostMounter::new()),
            recorder: Arc::new(LogEvents),
            node: Arc::new(FixedNode::default()),
            config_objects: Arc::new(NoConfigObjects),
            tokens: Arc::new(NoServiceAccountTokens),
            trust_bundles: Arc::new(NoClusterTrustBundles),
            certificates: None,
            in_memory: true,
            quotas: None,
            measured: Semaphore::new(MEASURED_AT_ONCE),
        };
        Self { host, mounter: None }
    }

    /// Which thread does file work; by default another thread.
    #[must_use]
    pub fn disk(mut self, disk: Disk) -> Self {
        self.host.disk = disk;
        self
    }

    /// The clock; by default the operating system's.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.host.clock = clock;
        self
    }

    /// What mounts; by default the [`HostMounter`].
    #[must_use]
    pub fn mounter(mut self, mounter: Arc<dyn Mounter>) -> Self {
        self.mounter = Some(mounter);
        self
    }

    /// Records events of plugins; by default they are logged.
    #[must_use]
    pub fn recorder(mut self, recorder: Arc<dyn EventRecorder>) -> Self {
        self.host.recorder = recorder;
        self
    }

    /// The node: its allocatable resources bound volumes in memory, and are the default of limits in the downward API.
    /// By default, a node without any.
    #[must_use]
    pub fn node(mut self, node: Arc<dyn NodeGetter>) -> Self {
        self.host.node = node;
        self
    }

    /// The source of config maps and secrets; by default there are none.
    #[must_use]
    pub fn config_objects(mut self, objects: Arc<dyn ConfigObjects>) -> Self {
        self.host.config_objects = objects;
        self
    }

    /// The source of service account tokens; by default there are none.
    #[must_use]
    pub fn tokens(mut self, tokens: Arc<dyn ServiceAccountTokens>) -> Self {
        self.host.tokens = tokens;
        self
    }

    /// The source of trust anchors; by default there are none.
    #[must_use]
    pub fn trust_bundles(mut self, bundles: Arc<dyn ClusterTrustBundles>) -> Self {
        self.host.trust_bundles = bundles;
        self
    }

    /// The source of the certificates of pods; by default there are none.
    #[must_use]
    pub fn certificates(mut self, certificates: Arc<dyn PodCertificates>) -> Self {
        self.host.certificates = Some(certificates);
        self
    }

    /// Whether secrets and the like, and `emptyDir` volumes with the medium `Memory`, are in memory. If the mounter may
    /// not mount, or with `false`, they are on the disk of the root folder. By default they are in memory, as with the
    /// kubelet.
    #[must_use]
    pub fn in_memory(mut self, in_memory: bool) -> Self {
        self.host.in_memory = in_memory;
        self
    }

    /// Gives each `emptyDir` on the disk a project quota, if its pod runs in a user namespace (`hostUsers: false`) and its
    /// file system has such quotas (`LocalStorageCapacityIsolationFSQuotaMonitoring`). The file system then counts what
    /// the volume uses. By default, and for all other volumes, all files are counted with each measurement.
    ///
    /// A pod that shares the users of the host gets no quota: its root could move files to another project.
    #[must_use]
    pub fn quotas(mut self, quotas: VolumeQuotas) -> Self {
        self.host.quotas = Some(quotas);
        self
    }

    /// The plugins.
    pub fn build(mut self) -> Vec<Arc<dyn VolumePlugin>> {
        self.host.mounter = match self.mounter {
            Some(mounter) => mounter,
            None => Arc::new(HostMounter::new().disk(self.host.disk)),
        };
        if let Some(quotas) = &mut self.host.quotas {
            quotas.set_disk(self.host.disk);
        }
        let host = Arc::new(self.host);
        vec![
            Arc::new(ConfigMapPlugin::new(host.clone())),
            Arc::new(SecretPlugin::new(host.clone())),
            Arc::new(DownwardApiPlugin::new(host.clone())),
            Arc::new(ProjectedPlugin::new(host.clone())),
            Arc::new(EmptyDirPlugin::new(host.clone())),
            Arc::new(HostPathPlugin::new(host.clone())),
            Arc::new(LocalVolumePlugin::new(host.clone())),
            Arc::new(NfsPlugin::new(host.clone())),
            Arc::new(ImagePlugin),
            Arc::new(GitRepoPlugin::new(host)),
        ]
    }
}

/// What the plugins share (the kubelet's `VolumeHost`).
pub(super) struct Host {
    pub(super) root_dir: RootDir,
    pub(super) disk: Disk,
    pub(super) clock: Clock,
    pub(super) mounter: Arc<dyn Mounter>,
    pub(super) recorder: Arc<dyn EventRecorder>,
    pub(super) node: Arc<dyn NodeGetter>,
    pub(super) config_objects: Arc<dyn ConfigObjects>,
    pub(super) tokens: Arc<dyn ServiceAccountTokens>,
    pub(super) trust_bundles: Arc<dyn ClusterTrustBundles>,
    pub(super) certificates: Option<Arc<dyn PodCertificates>>,
    pub(super) in_memory: bool,
    pub(super) quotas: Option<VolumeQuotas>,
    measured: Semaphore,
}

impl Host {
    /// Runs file work.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let done = self.disk.run(work).await;
        done.map_err(|error| Error::failed(reason(&error)))
    }

    /// The allocatable resources of the node (`GetNodeAllocatable`).
    pub(super) async fn allocatable(&self) -> Result<BTreeMap<String, Quantity>> {
        let node = self
            .node
            .node()
            .await
            .map_err(|error| Error::failed(in_words(error)))?;
        let status = node.status.as_ref();
        Ok(status
            .and_then(|status| status.allocatable.clone())
            .unwrap_or_default())
    }

    /// Measures the files below a folder (`fs.DiskUsage`). If the folder has a quota, its file system has counted them;
    /// otherwise it walks over them. Few walks run at a time; a walk ends when the call is dropped.
    pub(super) async fn measure_files(&self, dir: PathBuf) -> Result<VolumeUsage> {
        let _turn = self.measured.acquire().await;
        if let Some(counted) = self.counted(&dir).await? {
            return Ok(counted);
        }
        let progress = Arc::new(Progress::default());
        let _cancel = CancelOnDrop(&progress);
        let walking = Arc::clone(&progress);
        let measured = timed("du", self.run(move || usage::of_files(&dir, &walking))).await?;
        Ok(self.dated(measured))
    }

    /// What the file system has counted; `None` if it does not count this folder, or cannot be asked.
    async fn counted(&self, dir: &Path) -> Result<Option<VolumeUsage>> {
        let Some(quotas) = self.quotas.as_ref().filter(|quotas| quotas.has(dir)) else {
            return Ok(None);
        };
        let counted = match timed("fsquota", quotas.usage(dir)).await {
            Ok(Some(counted)) => counted,
            Ok(None) => return Ok(None),
            Err(error) => {
                tracing::debug!(dir = %dir.display(), %error, "Cannot read a quota, its files are counted");
                return Ok(None);
            }
        };
        let of = dir.to_owned();
        let mut usage = self.run(move || usage::of_file_system(&of)).await?;
        usage.used_bytes = Some(counted.bytes);
        usage.inodes_used = Some(counted.inodes);
        Ok(Some(self.dated(usage)))
    }

    /// Measures the file system that a folder is on.
    pub(super) async fn measure_file_system(&self, dir: PathBuf) -> Result<VolumeUsage> {
        let measured = timed("statfs", self.run(move || usage::of_file_system(&dir))).await?;
        Ok(self.dated(measured))
    }

    pub(super) fn dated(&self, mut usage: VolumeUsage) -> VolumeUsage {
        usage.time = Some(self.clock.now());
        usage
    }
}
