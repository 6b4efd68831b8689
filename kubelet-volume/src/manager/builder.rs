//! Configures the engine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::{
    Clock, ClusterTrustBundles, ConfigObjects, Disk, EventRecorder, FixedNode, Jitter, LogEvents, NodeGetter,
    PodCertificates, RootDir, VolumeLeases,
};
use parking_lot::Mutex;
use tokio::sync::{Notify, SetOnce};

use super::engine::{NodeVolumes, Observed};
use super::resolve::{Resolver, Translate};
use super::selinux::SelinuxContexts;
use super::shared::Shared;
use super::state::{Refresh, State};
use super::usages::Usages;
use crate::{Error, Mounter, NoVolumeObjects, Result, VolumeObjects, VolumePlugin, VolumeSpec};

/// The default of `volumeStatsAggPeriod`.
const USAGE_PERIOD: Duration = Duration::from_secs(60);

/// Builds [`NodeVolumes`].
#[must_use]
pub struct NodeVolumesBuilder {
    root_dir: RootDir,
    plugins: Vec<Arc<dyn VolumePlugin>>,
    config_objects: Option<Arc<dyn ConfigObjects>>,
    trust_bundles: Option<Arc<dyn ClusterTrustBundles>>,
    certificates: Option<Arc<dyn PodCertificates>>,
    objects: Arc<dyn VolumeObjects>,
    translate: Option<Translate>,
    selinux: Option<SelinuxContexts>,
    recorder: Arc<dyn EventRecorder>,
    node: Arc<dyn NodeGetter>,
    node_name: String,
    clock: Clock,
    disk: Disk,
    jitter: Jitter,
    mounter: Option<Arc<dyn Mounter>>,
    controller_attaches: bool,
    usage_period: Duration,
}

impl NodeVolumesBuilder {
    pub(crate) fn new(root_dir: impl Into<PathBuf>) -> Self {
        Self {
            root_dir: RootDir::new(root_dir),
            plugins: Vec::new(),
            config_objects: None,
            trust_bundles: None,
            certificates: None,
            objects: Arc::new(NoVolumeObjects),
            translate: None,
            selinux: None,
            recorder: Arc::new(LogEvents),
            node: Arc::new(FixedNode::default()),
            node_name: String::new(),
            clock: Clock::system(),
            disk: Disk::default(),
            jitter: Jitter::default(),
            mounter: None,
            controller_attaches: true,
            usage_period: USAGE_PERIOD,
        }
    }

    /// Adds a kind of volumes. A volume that no plugin supports keeps its pod waiting.
    pub fn plugin(mut self, plugin: Arc<dyn VolumePlugin>) -> Self {
        self.plugins.push(plugin);
        self
    }

    /// Adds several kinds of volumes.
    pub fn plugins(mut self, plugins: impl IntoIterator<Item = Arc<dyn VolumePlugin>>) -> Self {
        self.plugins.extend(plugins);
        self
    }

    /// The config maps and secrets that the plugins read. If it reports changes, volumes that contain them are updated at
    /// once; otherwise with each sync of their pods.
    pub fn config_objects(mut self, objects: Arc<dyn ConfigObjects>) -> Self {
        self.config_objects = Some(objects);
        self
    }

    /// The trust bundles that the plugins read, for their changes.
    pub fn trust_bundles(mut self, bundles: Arc<dyn ClusterTrustBundles>) -> Self {
        self.trust_bundles = Some(bundles);
        self
    }

    /// The certificates of pods that the plugins read, for their changes.
    pub fn certificates(mut self, certificates: Arc<dyn PodCertificates>) -> Self {
        self.certificates = Some(certificates);
        self
    }

    /// Where claims and persistent volumes are read. By default, there are none.
    pub fn objects(mut self, objects: Arc<dyn VolumeObjects>) -> Self {
        self.objects = objects;
        self
    }

    /// Makes a volume of a CSI driver of a volume of an in-tree plugin, given the namespace of its pod. It returns `None`
    /// for any other volume. By default, no volume is translated.
    pub fn translate(
        mut self,
        translate: impl Fn(&VolumeSpec, &str) -> Result<Option<VolumeSpec>> + Send + Sync + 'static,
    ) -> Self {
        self.translate = Some(Arc::new(translate));
        self
    }

    /// The default contexts of a host with SELinux, e.g. [`SelinuxContexts::of_host`]: volumes for one pod are then mounted
    /// with the context of the pod, if their plugin can do that. `None`, the default: the host has no SELinux.
    pub fn selinux(mut self, contexts: Option<SelinuxContexts>) -> Self {
        self.selinux = contexts;
        self
    }

    /// Records the events of pods. By default they are logged.
    pub fn recorder(mut self, recorder: Arc<dyn EventRecorder>) -> Self {
        self.recorder = recorder;
        self
    }

    /// The node, for its labels: they must match the node affinity of a persistent volume. By default, it has none.
    pub fn node(mut self, node: Arc<dyn NodeGetter>) -> Self {
        self.node = node;
        self
    }

    /// The name of the node, to attach volumes to it.
    pub fn node_name(mut self, name: impl Into<String>) -> Self {
        self.node_name = name.into();
        self
    }

    /// The clock for the times that are reported. By default the operating system's.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Which thread does file work. By default another thread.
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disk = disk;
        self
    }

    /// Spreads the measurements of volumes over time.
    pub fn jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// Mounts the links to block devices. Without it, there are no block devices.
    pub fn mounter(mut self, mounter: Arc<dyn Mounter>) -> Self {
        self.mounter = Some(mounter);
        self
    }

    /// Whether the attach-detach controller attaches volumes to this node (`enableControllerAttachDetach`), which is the
    /// default. Otherwise the agent does.
    pub fn controller_attach_detach(mut self, by_controller: bool) -> Self {
        self.controller_attaches = by_controller;
        self
    }

    /// How long a measured usage is used (`volumeStatsAggPeriod`): 1 minute by default. Zero turns measurements off.
    pub fn usage_period(mut self, period: Duration) -> Self {
        self.usage_period = period;
        self
    }

    /// Builds the engine. It subscribes to changes now, so that none is lost until it runs.
    ///
    /// # Errors
    ///
    /// [`Error::Misconfigured`] with all problems.
    pub fn build(self) -> Result<NodeVolumes> {
        let mut problems = Vec::new();
        if self.plugins.is_empty() {
            problems.push("no plugin: use `plugin`".to_owned());
        }
        let mut names: Vec<&str> = self.plugins.iter().map(|plugin| plugin.name()).collect();
        names.sort_unstable();
        for pair in names.windows(2).filter(|pair| pair[0] == pair[1]) {
            problems.push(format!("two plugins have the name {}", pair[0]));
        }
        if !self.controller_attaches && self.node_name.is_empty() {
            problems.push("an agent that attaches volumes needs `node_name`".to_owned());
        }
        if !problems.is_empty() {
            return Err(Error::Misconfigured { problems });
        }
        let observed = Observed {
            objects: self.config_objects.as_ref().and_then(|objects| objects.changes()),
            trust_bundles: self.trust_bundles.as_ref().and_then(|bundles| bundles.changes()),
            certificates: self
                .certificates
                .as_ref()
                .and_then(|certificates| certificates.changes()),
            attached: self.objects.attached_changes(),
        };
        let refresh = Refresh {
            objects: observed.objects.is_none(),
            trust_bundles: observed.trust_bundles.is_none(),
            certificates: observed.certificates.is_none(),
        };
        let leases = VolumeLeases::default();
        let shared = Shared {
            resolver: Resolver {
                plugins: self.plugins,
                objects: self.objects.clone(),
                translate: self.translate,
                selinux: self.selinux,
            },
            objects: self.objects,
            recorder: self.recorder,
            node: self.node,
            node_name: self.node_name,
            state: Mutex::new(State::new(self.root_dir.clone(), leases.clone())),
            root_dir: self.root_dir,
            clock: self.clock,
            disk: self.disk,
            jitter: self.jitter,
            mounter: self.mounter,
            controller_attaches: self.controller_attaches,
            wake: Notify::new(),
            is_read: SetOnce::new(),
            refresh: Mutex::new(refresh),
            usages: Usages::new(self.usage_period),
            leases,
        };
        Ok(NodeVolumes {
            shared: Arc::new(shared),
            observed,
        })
    }
}
