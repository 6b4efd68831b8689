//! The room of volumes: the plugins, the manager, and what they read.

mod late;

use std::sync::Arc;

use kubelet_core::{NodeGetter, PodCertificates, VolumeManager};
use kubelet_volume::{
    Error, HostMounter, InTreePlugins, Mounter, NodeVolumes, NodeVolumesBuilder, NodeVolumesHandle,
    SelinuxContexts, VolumePlugin, VolumeQuotas,
};

pub(crate) use self::late::LateVolumes;
use super::cluster::ClusterRoom;
use super::objects::Objects;
use super::plugins::PluginRoom;
use crate::configured::time;
use crate::context::{Change, Context, changed, with};
use crate::error::Result;
use crate::tasks::Tasks;

/// What the builder gathers for the volumes.
#[derive(Default)]
pub(crate) struct Parts {
    /// Instead of the volume manager of `kubelet-volume`.
    pub(crate) manager: Option<Arc<dyn VolumeManager>>,
    pub(crate) plugins: Vec<Arc<dyn VolumePlugin>>,
    pub(crate) changes: Change<NodeVolumesBuilder>,
}

/// What the volumes use of other parts.
pub(crate) struct Uses<'a> {
    pub(crate) cluster: &'a ClusterRoom,
    pub(crate) plugins: &'a PluginRoom,
    pub(crate) objects: &'a Objects,
    pub(crate) node: Arc<dyn NodeGetter>,
    pub(crate) certificates: Option<Arc<dyn PodCertificates>>,
}

/// What mounts volumes.
pub(crate) struct VolumeRoom {
    pub(crate) manager: Arc<dyn VolumeManager>,
    /// The volume manager, if it is the one of `kubelet-volume`.
    pub(crate) own: Option<Arc<NodeVolumesHandle>>,
}

/// Makes the folder of the agent one whose mounts are seen by containers, and the other way round. Pods without mounts run
/// without this permission, too.
pub(crate) async fn share(context: &Context) -> Result<()> {
    match HostMounter::new().share(context.root_dir.path()).await {
        Err(error @ Error::NotPermitted { .. }) => tracing::warn!(%error),
        shared => shared?,
    }
    Ok(())
}

impl VolumeRoom {
    /// Builds the volume manager, and adds its engines. `late` gets it.
    pub(crate) fn open(
        context: &Context,
        parts: Parts,
        uses: Uses<'_>,
        late: &LateVolumes,
        tasks: &mut Tasks,
    ) -> Result<Self> {
        if let Some(manager) = parts.manager {
            late.set_initialized();
            return Ok(Self { manager, own: None });
        }
        let config = &context.settings.configuration;
        let mounter: Arc<dyn Mounter> = Arc::new(HostMounter::new());
        let bundles = uses.cluster.trust_bundles(context, tasks);
        let mut plugins = InTreePlugins::new(context.root_dir.path())
            .mounter(mounter.clone())
            .recorder(context.recorder.clone())
            .config_objects(uses.objects.config_objects.clone())
            .tokens(uses.objects.tokens.clone())
            .trust_bundles(bundles.clone())
            .node(uses.node.clone());
        plugins = with(plugins, uses.certificates.clone(), InTreePlugins::certificates);
        let gates = &context.settings.feature_gates;
        if gates.enabled("LocalStorageCapacityIsolationFSQuotaMonitoring") {
            plugins = plugins.quotas(VolumeQuotas::on_host());
        }
        let volumes = NodeVolumes::builder(context.root_dir.path())
            .plugins(plugins.build())
            .plugins(parts.plugins)
            .selinux(SelinuxContexts::of_host())
            .mounter(mounter)
            .recorder(context.recorder.clone())
            .clock(context.clock)
            .disk(context.disk)
            .node_name(&*context.node_name)
            .config_objects(uses.objects.config_objects.clone())
            .trust_bundles(bundles)
            .controller_attach_detach(config.enable_controller_attach_detach)
            .usage_period(time(config.volume_stats_agg_period))
            .node(uses.node);
        let volumes = with(volumes, uses.certificates, NodeVolumesBuilder::certificates);
        let (late_csi, tokens) = (late.clone(), &uses.objects.tokens);
        let initialized = move || late_csi.set_initialized();
        let of_csi = uses.plugins;
        let volumes = of_csi.volumes(volumes, context, uses.cluster, tokens, initialized, tasks);
        let volumes = changed(parts.changes, uses.cluster.volumes(volumes, context)).build()?;
        let handle = Arc::new(volumes.handle());
        tasks.add("volumes", |shutdown| volumes.run(shutdown));
        late.set(&handle);
        Ok(Self {
            manager: handle.clone(),
            own: Some(handle),
        })
    }
}
