//! The room of volumes: the plugins, the manager, and what they read.

#[cfg(feature = "csi")]
mod csi;
mod late;

use std::sync::Arc;

use kubelet_core::{
    ClusterTrustBundles, ConfigObjects, NoClusterTrustBundles, NodeGetter, PodCertificates,
    ServiceAccountTokens,
};
use kubelet_volume::{
    HostMounter, InTreePlugins, Mounter, NodeVolumes, NodeVolumesBuilder, NodeVolumesHandle, SelinuxContexts,
    VolumePlugin, VolumeQuotas,
};

pub(crate) use self::late::LateVolumes;
use crate::Result;
use crate::builder::{Change, changed};
use crate::configured::time;
use crate::context::Context;
use crate::tasks::Tasks;

/// What the volumes need of the agent.
pub(crate) struct Storage<'a> {
    pub(crate) context: &'a Context,
    pub(crate) node: Option<Arc<dyn NodeGetter>>,
    /// The node as the API server has it.
    #[cfg(feature = "apiserver")]
    pub(crate) watched: Option<kubelet_node::NodeInformerHandle>,
    pub(crate) config_objects: Arc<dyn ConfigObjects>,
    pub(crate) tokens: Arc<dyn ServiceAccountTokens>,
    pub(crate) certificates: Option<Arc<dyn PodCertificates>>,
    pub(crate) plugins: Vec<Arc<dyn VolumePlugin>>,
    pub(crate) changes: Change<NodeVolumesBuilder>,
    /// Who uses the plugins of the node.
    #[cfg(feature = "csi")]
    pub(crate) registry: crate::plugins::PluginRoom,
}

/// Makes the folder of the agent one whose mounts are seen by containers, and the other way round. Pods without mounts run
/// without this permission, too.
pub(crate) async fn share(context: &Context) -> Result<()> {
    match HostMounter::new().share(context.root_dir.path()).await {
        Err(error @ kubelet_volume::Error::NotPermitted { .. }) => tracing::warn!(%error),
        shared => shared?,
    }
    Ok(())
}

impl Storage<'_> {
    /// Builds the volume manager, and adds its engines.
    pub(crate) fn build(self, late: &LateVolumes, tasks: &mut Tasks) -> Result<Arc<NodeVolumesHandle>> {
        let context = self.context;
        let (config, root_dir) = (&context.settings.configuration, context.root_dir.path());
        let mounter: Arc<dyn Mounter> = Arc::new(HostMounter::new());
        let bundles = bundles(context, tasks);
        let mut plugins = InTreePlugins::new(root_dir)
            .mounter(mounter.clone())
            .recorder(context.recorder.clone())
            .config_objects(self.config_objects.clone())
            .tokens(self.tokens.clone())
            .trust_bundles(bundles.clone());
        if let Some(node) = &self.node {
            plugins = plugins.node(node.clone());
        }
        if let Some(certificates) = &self.certificates {
            plugins = plugins.certificates(certificates.clone());
        }
        let gates = &context.settings.feature_gates;
        if gates.enabled("LocalStorageCapacityIsolationFSQuotaMonitoring") {
            plugins = plugins.quotas(VolumeQuotas::on_host());
        }
        let mut volumes = NodeVolumes::builder(root_dir)
            .plugins(plugins.build())
            .plugins(self.plugins.iter().cloned());
        #[cfg(feature = "csi")]
        {
            let csi = self.csi(&mounter, late, tasks);
            volumes = volumes
                .plugin(Arc::new(csi))
                .translate(kubelet_volume::csi::migration::translate);
        }
        #[cfg(not(feature = "csi"))]
        late.is_initialized();
        volumes = volumes
            .selinux(SelinuxContexts::of_host())
            .mounter(mounter)
            .recorder(context.recorder.clone())
            .clock(context.clock)
            .disk(context.disk)
            .node_name(&*context.node_name)
            .config_objects(self.config_objects)
            .trust_bundles(bundles)
            .controller_attach_detach(config.enable_controller_attach_detach)
            .usage_period(time(config.volume_stats_agg_period));
        if let Some(node) = self.node {
            volumes = volumes.node(node);
        }
        if let Some(certificates) = self.certificates {
            volumes = volumes.certificates(certificates);
        }
        #[cfg(feature = "apiserver")]
        if let Some(client) = &context.client {
            let mut objects =
                kubelet_volume::ApiServerVolumeObjects::new(client.clone(), &*context.node_name);
            if let Some(watched) = &self.watched {
                objects = objects.attached_changes(watched.volumes_attached_changes());
            }
            volumes = volumes.objects(Arc::new(objects));
        }
        let volumes = changed(self.changes, volumes).build()?;
        let handle = Arc::new(volumes.handle());
        tasks.add("volumes", |shutdown| volumes.run(shutdown));
        late.set(&handle);
        Ok(handle)
    }
}

/// The trust bundles of the cluster, if the feature is on.
fn bundles(context: &Context, tasks: &mut Tasks) -> Arc<dyn ClusterTrustBundles> {
    #[cfg(feature = "apiserver")]
    if let Some(client) = &context.client
        && context
            .settings
            .feature_gates
            .enabled("ClusterTrustBundleProjection")
    {
        let informer = kubelet_config::ClusterTrustBundleInformer::new(client.clone());
        let bundles = Arc::new(informer.handle());
        tasks.add("trust bundles", |shutdown| informer.run(shutdown));
        return bundles;
    }
    #[cfg(not(feature = "apiserver"))]
    let _ = (context, tasks);
    Arc::new(NoClusterTrustBundles)
}
