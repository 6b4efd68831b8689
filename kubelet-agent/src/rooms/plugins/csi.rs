//! Volumes of CSI drivers, and the registration of the drivers.

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::{Jitter, ServiceAccountTokens};
use kubelet_volume::csi::{
    AllocatableUpdater, ApiServerCsiObjects, CsiDrivers, CsiNodeInfo, CsiNodeReporter, CsiObjects, CsiPlugin,
    CsiRegistration, FixedCsiObjects, NoCsiNodeInfo, migration,
};
use kubelet_volume::{HostMounter, NodeVolumesBuilder, SelinuxContexts};

use super::PluginRoom;
use crate::context::Context;
use crate::rooms::cluster::ClusterRoom;
use crate::tasks::Tasks;

/// How long the node waits before it tries again to create its `CSINode`.
const INITIALIZE_RETRY: Duration = Duration::from_secs(1);

impl PluginRoom {
    /// Adds the plugin of CSI volumes, and what registers their drivers. Calls `initialized` when the node has its `CSINode`, or
    /// needs none.
    pub(crate) fn volumes(
        &self,
        volumes: NodeVolumesBuilder,
        context: &Context,
        cluster: &ClusterRoom,
        tokens: &Arc<dyn ServiceAccountTokens>,
        initialized: impl FnOnce() + Send + 'static,
        tasks: &mut Tasks,
    ) -> NodeVolumesBuilder {
        let gates = &context.settings.feature_gates;
        let drivers = CsiDrivers::new();
        let (objects, node_info) = objects(context, cluster, initialized, tasks);
        if gates.enabled("MutableCSINodeAllocatableCount") {
            let updater = AllocatableUpdater::new(drivers.clone(), objects.clone(), node_info.clone());
            tasks.add("CSI allocatable", |shutdown| updater.run(shutdown));
        }
        let registration = CsiRegistration::new(drivers.clone(), node_info.clone());
        self.handle(kubelet_plugins::CSI_PLUGIN, Arc::new(registration));
        let csi = CsiPlugin::builder(
            context.root_dir.clone(),
            &*context.node_name,
            drivers,
            objects,
            Arc::new(HostMounter::new()),
        )
        .tokens(tokens.clone())
        .recorder(context.recorder.clone())
        .node_info(node_info)
        .selinux(SelinuxContexts::of_host().is_some())
        .volume_health(gates.enabled("CSIVolumeHealth"));
        volumes
            .plugin(Arc::new(csi.build()))
            .translate(migration::translate)
    }
}

/// The drivers and the `CSINode` in the cluster. Until the node has its `CSINode`, it is not ready.
fn objects(
    context: &Context,
    cluster: &ClusterRoom,
    initialized: impl FnOnce() + Send + 'static,
    tasks: &mut Tasks,
) -> (Arc<dyn CsiObjects>, Arc<dyn CsiNodeInfo>) {
    let (Some(client), Some(node)) = (cluster.client(), cluster.node()) else {
        initialized();
        return (Arc::new(FixedCsiObjects::new()), Arc::new(NoCsiNodeInfo));
    };
    let of_server = ApiServerCsiObjects::new(client.clone(), &*context.node_name);
    let reporter = CsiNodeReporter::new(
        &*context.node_name,
        Arc::new(of_server.clone()),
        Jitter::default(),
    );
    let reporter = Arc::new(reporter);
    let objects = Arc::new(of_server.clone());
    tasks.add("CSI objects", |shutdown| of_server.run(shutdown));
    let (node, csi_node) = (node.clone(), reporter.clone());
    tasks.add("CSINode", |shutdown| async move {
        let initialize = async {
            node.registered().await;
            while let Err(error) = csi_node.initialize().await {
                tracing::error!(%error, "Failed to initialize CSINode");
                tokio::time::sleep(INITIALIZE_RETRY).await;
            }
            initialized();
        };
        shutdown.run_until_cancelled(initialize).await;
    });
    (objects, reporter)
}
