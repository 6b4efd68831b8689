//! The room of claims: dynamic resource allocation.

use std::sync::Arc;

use kubelet_core::{DynamicResources, KubeletHandle, ResourceHealth, ResourceUpdates};
use kubelet_resources::KubeletPods;
use kubelet_resources::checkpoint::StateFolder;
use kubelet_resources::dra::{ApiServerClaims, DraGates, DraManager};

use crate::Result;
use crate::context::Context;
use crate::plugins::PluginRoom;
use crate::tasks::Tasks;

/// The manager of claims.
pub(crate) struct ClaimRoom {
    manager: DraManager,
}

impl ClaimRoom {
    /// Takes over the claims of the agent before, and offers the manager to the plugins of DRA drivers. `None` without an API server,
    /// because claims are its objects, and without the gate `DynamicResourceAllocation`. `updates` gets the pods whose devices changed
    /// their health, if their statuses show it.
    pub(crate) async fn new(
        context: &Context,
        plugins: &PluginRoom,
        updates: Option<ResourceUpdates>,
    ) -> Result<Option<Self>> {
        let gates = &context.settings.feature_gates;
        let Some(client) = &context.client else {
            return Ok(None);
        };
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
        let manager = match updates {
            Some(updates) => manager.updates(updates),
            None => manager,
        };
        let manager = manager.start().await?;
        plugins.add(kubelet_plugins::DRA_PLUGIN, Arc::new(manager.plugins()));
        Ok(Some(Self { manager }))
    }

    pub(crate) fn handle(&self) -> Arc<dyn DynamicResources> {
        Arc::new(self.manager.handle())
    }

    /// For the statuses of pods.
    pub(crate) fn health(&self) -> Arc<dyn ResourceHealth> {
        Arc::new(self.manager.handle())
    }

    /// For the pod-resources API.
    pub(crate) fn listed(&self) -> Arc<dyn kubelet_resources::pod_resources::DynamicResourcesProvider> {
        Arc::new(self.manager.handle())
    }

    /// Adds the engine.
    pub(crate) fn start(self, kubelet: &KubeletHandle, tasks: &mut Tasks) {
        let pods = Arc::new(KubeletPods::new(kubelet.clone()));
        tasks.add("claims", |shutdown| self.manager.run(pods, shutdown));
    }
}
