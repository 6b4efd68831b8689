//! Volumes of CSI drivers, and the registration of the drivers.

use std::sync::Arc;
#[cfg(feature = "apiserver")]
use std::time::Duration;

#[cfg(feature = "apiserver")]
use kubelet_core::Jitter;
use kubelet_volume::csi::{
    AllocatableUpdater, CsiDrivers, CsiNodeInfo, CsiObjects, CsiPlugin, CsiRegistration, FixedCsiObjects,
    NoCsiNodeInfo,
};
#[cfg(feature = "apiserver")]
use kubelet_volume::csi::{ApiServerCsiObjects, CsiNodeReporter};
use kubelet_volume::{Mounter, SelinuxContexts};

use super::{LateVolumes, Storage};
use crate::tasks::Tasks;

/// How long the node waits before it tries again to create its `CSINode`.
#[cfg(feature = "apiserver")]
const INITIALIZE_RETRY: Duration = Duration::from_secs(1);

impl Storage<'_> {
    /// Builds the plugin of CSI volumes, and adds what registers their drivers.
    pub(super) fn csi(&self, mounter: &Arc<dyn Mounter>, late: &LateVolumes, tasks: &mut Tasks) -> CsiPlugin {
        let (context, gates) = (self.context, &self.context.settings.feature_gates);
        let drivers = CsiDrivers::new();
        let (objects, node_info) = self.csi_objects(late, tasks);
        if gates.enabled("MutableCSINodeAllocatableCount") {
            let updater = AllocatableUpdater::new(drivers.clone(), objects.clone(), node_info.clone());
            tasks.add("CSI allocatable", |shutdown| updater.run(shutdown));
        }
        let registration = CsiRegistration::new(drivers.clone(), node_info.clone());
        self.registry
            .add(kubelet_plugins::CSI_PLUGIN, Arc::new(registration));
        let csi = CsiPlugin::builder(
            context.root_dir.clone(),
            &*context.node_name,
            drivers,
            objects,
            mounter.clone(),
        )
        .tokens(self.tokens.clone())
        .recorder(context.recorder.clone())
        .node_info(node_info)
        .selinux(SelinuxContexts::of_host().is_some())
        .volume_health(gates.enabled("CSIVolumeHealth"));
        csi.build()
    }

    /// The drivers and the `CSINode` in the cluster. Until the node has its `CSINode`, it is not ready.
    fn csi_objects(
        &self,
        late: &LateVolumes,
        tasks: &mut Tasks,
    ) -> (Arc<dyn CsiObjects>, Arc<dyn CsiNodeInfo>) {
        #[cfg(feature = "apiserver")]
        if let (Some(client), Some(node)) = (&self.context.client, &self.watched) {
            let of_server = ApiServerCsiObjects::new(client.clone(), &*self.context.node_name);
            let reporter = CsiNodeReporter::new(
                &*self.context.node_name,
                Arc::new(of_server.clone()),
                Jitter::default(),
            );
            let reporter = Arc::new(reporter);
            let objects = Arc::new(of_server.clone());
            tasks.add("CSI objects", |shutdown| of_server.run(shutdown));
            let (late, node, initialized) = (late.clone(), node.clone(), reporter.clone());
            tasks.add("CSINode", |shutdown| async move {
                let initialize = async {
                    node.registered().await;
                    while let Err(error) = initialized.initialize().await {
                        tracing::error!(%error, "Failed to initialize CSINode");
                        tokio::time::sleep(INITIALIZE_RETRY).await;
                    }
                    late.is_initialized();
                };
                shutdown.run_until_cancelled(initialize).await;
            });
            return (objects, reporter);
        }
        let _ = tasks;
        late.is_initialized();
        (Arc::new(FixedCsiObjects::new()), Arc::new(NoCsiNodeInfo))
    }
}
