//! The claims of pods: dynamic resource allocation.

use std::sync::Arc;

use kubelet_core::ResourceUpdates;
use kubelet_plugins::PluginHandler;
use kubelet_resources::KubeletPods;
use kubelet_resources::checkpoint::StateFolder;
use kubelet_resources::dra::{ApiServerClaims, DraGates, DraManager, DraManagerHandle};

use crate::context::{Context, with};
use crate::error::Result;
use crate::rooms::cluster::Client;
use crate::tasks::Tasks;

/// The manager of claims.
pub(super) struct Claims {
    /// Until it is started.
    manager: Option<DraManager>,
    handle: DraManagerHandle,
    plugins: Arc<dyn PluginHandler>,
}

impl Claims {
    /// Takes over the claims of the agent before. `None` without the gate `DynamicResourceAllocation`.
    pub(super) async fn open(
        context: &Context,
        client: &Client,
        updates: Option<ResourceUpdates>,
    ) -> Result<Option<Self>> {
        let gates = &context.settings.feature_gates;
        if !gates.enabled("DynamicResourceAllocation") {
            return Ok(None);
        }
        let store = Arc::new(StateFolder::new(context.root_dir.path()));
        let objects = Arc::new(ApiServerClaims::new(client.clone(), &*context.node_name));
        let mut of_claims = DraGates::default();
        of_claims.extended_resource = gates.enabled("DRAExtendedResource");
        of_claims.workload_claims = gates.enabled("DRAWorkloadResourceClaims");
        of_claims.health = gates.enabled("ResourceHealthStatus");
        of_claims.health_message = gates.enabled("ResourceHealthStatusMessage");
        let manager = DraManager::builder(store, objects)
            .disk(context.disk)
            .gates(of_claims)
            .clock(context.clock);
        let manager = with(manager, updates, |manager, updates| manager.updates(updates));
        let manager = manager.start().await?;
        Ok(Some(Self {
            handle: manager.handle(),
            plugins: Arc::new(manager.plugins()),
            manager: Some(manager),
        }))
    }

    pub(super) fn handle(&self) -> DraManagerHandle {
        self.handle.clone()
    }

    /// For the plugins of DRA drivers.
    pub(super) fn plugins(&self) -> Arc<dyn PluginHandler> {
        self.plugins.clone()
    }

    pub(super) fn start(&mut self, pods: Arc<KubeletPods>, tasks: &mut Tasks) {
        if let Some(manager) = self.manager.take() {
            tasks.add("claims", |shutdown| manager.run(pods, shutdown));
        }
    }
}
