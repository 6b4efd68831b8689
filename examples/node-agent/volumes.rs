//! The volumes of pods: all plugins, and what they read.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use kube_client::Client;
use kubelet_config::ClusterTrustBundleInformer;
use kubelet_config::flags::KubeletServer;
use kubelet_core::{
    ClusterTrustBundles, ConfigObjects, EventRecorder, NoClusterTrustBundles, NodeGetter,
    ServiceAccountTokens, VolumesInUse,
};
use kubelet_volume::{
    ApiServerVolumeObjects, HostMounter, InTreePlugins, Mounter, NodeVolumes, NodeVolumesHandle,
};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::Error;
use crate::settings::time;

/// What the volumes need of the agent.
pub(crate) struct Storage<'a> {
    pub(crate) server: &'a KubeletServer,
    pub(crate) root_dir: &'a Path,
    pub(crate) node_name: &'a str,
    pub(crate) client: Option<&'a Client>,
    pub(crate) node: Arc<dyn NodeGetter>,
    /// Changes when the controller has attached a volume.
    pub(crate) attached: Option<watch::Receiver<u64>>,
    pub(crate) recorder: Arc<dyn EventRecorder>,
    pub(crate) config_objects: Arc<dyn ConfigObjects>,
    pub(crate) tokens: Arc<dyn ServiceAccountTokens>,
}

impl Storage<'_> {
    /// Builds and starts the volume manager.
    pub(crate) fn volumes(
        self,
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
        let plugins = InTreePlugins::new(self.root_dir)
            .mounter(mounter.clone())
            .recorder(self.recorder.clone())
            .node(self.node.clone())
            .config_objects(self.config_objects.clone())
            .tokens(self.tokens)
            .trust_bundles(bundles.clone());
        let mut volumes = NodeVolumes::builder(self.root_dir)
            .plugins(plugins.build())
            .mounter(mounter)
            .recorder(self.recorder)
            .node(self.node)
            .node_name(self.node_name)
            .config_objects(self.config_objects)
            .trust_bundles(bundles)
            .controller_attach_detach(config.enable_controller_attach_detach)
            .usage_period(time(config.volume_stats_agg_period));
        if let Some(client) = self.client {
            let mut objects = ApiServerVolumeObjects::new(client.clone(), self.node_name);
            if let Some(attached) = self.attached {
                objects = objects.attached_changes(attached);
            }
            volumes = volumes.objects(Arc::new(objects));
        }
        let volumes = volumes.build()?;
        let handle = Arc::new(volumes.handle());
        spawn(tasks, volumes.run(shutdown.clone()));
        Ok(handle)
    }
}

fn spawn(tasks: &mut JoinSet<Result<(), Error>>, task: impl Future<Output = ()> + Send + 'static) {
    tasks.spawn(async {
        task.await;
        Ok(())
    });
}

/// The volumes in use, once the volumes are set up: their node must be known first.
#[derive(Clone, Default)]
pub(crate) struct LateVolumesInUse(Arc<OnceLock<Arc<NodeVolumesHandle>>>);

impl LateVolumesInUse {
    /// Sets the volumes.
    pub(crate) fn set(&self, volumes: Arc<NodeVolumesHandle>) {
        // It is set once.
        drop(self.0.set(volumes));
    }
}

impl VolumesInUse for LateVolumesInUse {
    fn volumes_in_use(&self) -> Option<Vec<String>> {
        self.0.get()?.volumes_in_use()
    }

    fn mark_reported(&self, volumes: &[String]) {
        if let Some(known) = self.0.get() {
            known.mark_reported(volumes);
        }
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        self.0.get()?.changes()
    }
}
