//! The volumes of pods: all plugins, and what they read.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kube_client::Client;
use kubelet_config::flags::KubeletServer;
use kubelet_config::{ClusterTrustBundleInformer, PodCertificateManager};
use kubelet_core::{
    ClusterTrustBundles, ConfigObjects, EventRecorder, Jitter, NoClusterTrustBundles, NodeGetter,
    PodCertificates, RootDir, ServiceAccountTokens, VolumesInUse,
};
use kubelet_node::NodeInformerHandle;
use kubelet_plugins::PluginWatcher;
use kubelet_volume::csi::{
    self, AllocatableUpdater, ApiServerCsiObjects, CsiDrivers, CsiNodeInfo, CsiNodeReporter, CsiObjects,
    CsiPlugin, CsiRegistration, FixedCsiObjects, NoCsiNodeInfo,
};
use kubelet_volume::{
    ApiServerVolumeObjects, HostMounter, InTreePlugins, Mounter, NodeVolumes, NodeVolumesHandle,
    SelinuxContexts,
};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::settings::time;

/// How long the node waits before it tries again to create its `CSINode`.
const INITIALIZE_RETRY: Duration = Duration::from_secs(1);

/// What the volumes need of the agent.
pub(crate) struct Storage<'a> {
    pub(crate) server: &'a KubeletServer,
    pub(crate) root_dir: &'a Path,
    pub(crate) node_name: &'a str,
    pub(crate) client: Option<&'a Client>,
    pub(crate) node: Arc<dyn NodeGetter>,
    /// The node as the API server has it.
    pub(crate) watched: Option<NodeInformerHandle>,
    pub(crate) recorder: Arc<dyn EventRecorder>,
    pub(crate) config_objects: Arc<dyn ConfigObjects>,
    pub(crate) tokens: Arc<dyn ServiceAccountTokens>,
}

impl Storage<'_> {
    /// The manager of the certificates of pods, if the node has an API server and the feature is on. The agent runs it
    /// once it knows the pods.
    pub(crate) fn pod_certificates(&self) -> Option<PodCertificateManager> {
        let client = self.client.filter(|_| self.server.feature_gates.enabled("PodCertificateRequest"))?;
        let manager = PodCertificateManager::builder(client.clone(), self.node_name, self.node.clone());
        Some(manager.recorder(self.recorder.clone()).build())
    }

    /// Builds and starts the volume manager.
    pub(crate) fn volumes(
        self,
        certificates: Option<Arc<dyn PodCertificates>>,
        late: &LateVolumes,
        tasks: &mut JoinSet<Result<(), Error>>,
        shutdown: &CancellationToken,
    ) -> Result<Arc<NodeVolumesHandle>, Error> {
        let KubeletServer { configuration: config, feature_gates: gates, .. } = self.server;
        let mounter: Arc<dyn Mounter> = Arc::new(HostMounter::new());
        let mut bundles: Arc<dyn ClusterTrustBundles> = Arc::new(NoClusterTrustBundles);
        if let Some(client) = self.client.filter(|_| gates.enabled("ClusterTrustBundleProjection")) {
            let informer = ClusterTrustBundleInformer::new(client.clone());
            bundles = Arc::new(informer.handle());
            spawn(tasks, informer.run(shutdown.clone()));
        }
        let mut plugins = InTreePlugins::new(self.root_dir)
            .mounter(mounter.clone())
            .recorder(self.recorder.clone())
            .node(self.node.clone())
            .config_objects(self.config_objects.clone())
            .tokens(self.tokens.clone())
            .trust_bundles(bundles.clone());
        if let Some(certificates) = &certificates {
            plugins = plugins.certificates(certificates.clone());
        }
        let csi = self.csi(&mounter, late, tasks, shutdown)?;
        let mut volumes = NodeVolumes::builder(self.root_dir)
            .plugins(plugins.build())
            .plugin(Arc::new(csi))
            .translate(csi::migration::translate)
            .selinux(SelinuxContexts::of_host())
            .mounter(mounter)
            .recorder(self.recorder)
            .node(self.node)
            .node_name(self.node_name)
            .config_objects(self.config_objects)
            .trust_bundles(bundles)
            .controller_attach_detach(config.enable_controller_attach_detach)
            .usage_period(time(config.volume_stats_agg_period));
        if let Some(certificates) = certificates {
            volumes = volumes.certificates(certificates);
        }
        if let Some(client) = self.client {
            let mut objects = ApiServerVolumeObjects::new(client.clone(), self.node_name);
            if let Some(watched) = &self.watched {
                objects = objects.attached_changes(watched.volumes_attached_changes());
            }
            volumes = volumes.objects(Arc::new(objects));
        }
        let volumes = volumes.build()?;
        let handle = Arc::new(volumes.handle());
        spawn(tasks, volumes.run(shutdown.clone()));
        late.set(handle.clone());
        Ok(handle)
    }

    /// Builds the plugin of CSI volumes, and starts what registers their drivers.
    fn csi(
        &self,
        mounter: &Arc<dyn Mounter>,
        late: &LateVolumes,
        tasks: &mut JoinSet<Result<(), Error>>,
        shutdown: &CancellationToken,
    ) -> Result<CsiPlugin, Error> {
        let gates = &self.server.feature_gates;
        let drivers = CsiDrivers::new();
        let mut objects: Arc<dyn CsiObjects> = Arc::new(FixedCsiObjects::new());
        let mut node_info: Arc<dyn CsiNodeInfo> = Arc::new(NoCsiNodeInfo);
        if let (Some(client), Some(node)) = (self.client, &self.watched) {
            let of_server = ApiServerCsiObjects::new(client.clone(), self.node_name);
            objects = Arc::new(of_server.clone());
            let reporter =
                CsiNodeReporter::new(self.node_name, Arc::new(of_server.clone()), Jitter::default());
            let reporter = Arc::new(reporter);
            node_info = reporter.clone();
            spawn(tasks, of_server.run(shutdown.clone()));
            let (late, node, ends) = (late.clone(), node.clone(), shutdown.clone());
            spawn(tasks, async move {
                ends.run_until_cancelled(initialize(&reporter, &node, &late)).await;
            });
        } else {
            late.is_initialized();
        }
        if gates.enabled("MutableCSINodeAllocatableCount") {
            let updater = AllocatableUpdater::new(drivers.clone(), objects.clone(), node_info.clone());
            spawn(tasks, updater.run(shutdown.clone()));
        }
        let registration = CsiRegistration::new(drivers.clone(), node_info.clone());
        let watcher = PluginWatcher::builder(self.root_dir.join("plugins_registry"))
            .handler(kubelet_plugins::CSI_PLUGIN, Arc::new(registration))
            .build()?;
        spawn(tasks, watcher.run(shutdown.clone()));
        let root_dir = RootDir::new(self.root_dir);
        let csi = CsiPlugin::builder(root_dir, self.node_name, drivers, objects, mounter.clone())
            .tokens(self.tokens.clone())
            .recorder(self.recorder.clone())
            .node_info(node_info)
            .selinux(SelinuxContexts::of_host().is_some())
            .volume_health(gates.enabled("CSIVolumeHealth"));
        Ok(csi.build())
    }
}

/// Creates the node's `CSINode`. Until then, the node is not ready.
async fn initialize(reporter: &CsiNodeReporter, node: &NodeInformerHandle, late: &LateVolumes) {
    node.registered().await;
    while let Err(error) = reporter.initialize().await {
        tracing::error!(%error, "Failed to initialize CSINode");
        sleep(INITIALIZE_RETRY).await;
    }
    late.is_initialized();
}

fn spawn(tasks: &mut JoinSet<Result<(), Error>>, task: impl Future<Output = ()> + Send + 'static) {
    tasks.spawn(async {
        task.await;
        Ok(())
    });
}

/// What the status of the node has of its volumes, once they are set up: the node must be known first.
#[derive(Clone, Default)]
pub(crate) struct LateVolumes(Arc<Late>);

#[derive(Default)]
struct Late {
    volumes: OnceLock<Arc<NodeVolumesHandle>>,
    csi_node: AtomicBool,
}

impl LateVolumes {
    fn set(&self, volumes: Arc<NodeVolumesHandle>) {
        // It is set once.
        drop(self.0.volumes.set(volumes));
    }

    fn is_initialized(&self) {
        self.0.csi_node.store(true, Ordering::Release);
    }

    /// Why the node is not ready.
    pub(crate) fn problems(&self) -> Vec<String> {
        match self.0.csi_node.load(Ordering::Acquire) {
            true => Vec::new(),
            false => vec!["CSINode is not yet initialized".to_owned()],
        }
    }
}

impl VolumesInUse for LateVolumes {
    fn volumes_in_use(&self) -> Option<Vec<String>> {
        self.0.volumes.get()?.volumes_in_use()
    }

    fn mark_reported(&self, volumes: &[String]) {
        if let Some(known) = self.0.volumes.get() {
            known.mark_reported(volumes);
        }
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        self.0.volumes.get()?.changes()
    }
}
