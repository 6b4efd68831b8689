//! No plugins: no devices, no claims, no volumes of CSI drivers.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use kubelet_core::{
    DynamicResources, HealthChecks, KubeletHandle, NodeGetter, ResourceHealth, ResourceUpdates,
    ServiceAccountTokens,
};
use kubelet_node::LocalNodeBuilder;
use kubelet_resources::{Machine, PluginAllocator, ResourceManagerHandle};
use kubelet_volume::NodeVolumesBuilder;

use crate::context::Context;
use crate::error::Result;
use crate::rooms::cluster::ClusterRoom;
use crate::tasks::Tasks;

#[allow(dead_code, reason = "the room of plugins uses them")]
pub(crate) struct Uses<'a> {
    pub(crate) cluster: &'a ClusterRoom,
    pub(crate) has_containers: bool,
    pub(crate) devices: Option<(&'a Machine, BTreeSet<(String, String)>)>,
    pub(crate) updates: Option<ResourceUpdates>,
}

pub(crate) struct PluginRoom;

/// Nothing of the node's status is reset.
pub(crate) fn had_devices(_: &Path) -> bool {
    true
}

impl PluginRoom {
    pub(crate) async fn open(_: &Context, _: Uses<'_>) -> Result<Self> {
        Ok(Self)
    }

    pub(crate) fn allocator(&self) -> Option<Arc<dyn PluginAllocator>> {
        None
    }

    pub(crate) fn claims(&self) -> Option<Arc<dyn DynamicResources>> {
        None
    }

    pub(crate) fn health(&self) -> Vec<Arc<dyn ResourceHealth>> {
        Vec::new()
    }

    pub(crate) fn report(&self, node: LocalNodeBuilder) -> LocalNodeBuilder {
        node
    }

    pub(crate) fn node(&self, node: Arc<dyn NodeGetter>) -> Arc<dyn NodeGetter> {
        node
    }

    pub(crate) fn checks(&self, checks: HealthChecks) -> HealthChecks {
        checks
    }

    pub(crate) fn volumes(
        &self,
        volumes: NodeVolumesBuilder,
        _: &Context,
        _: &ClusterRoom,
        _: &Arc<dyn ServiceAccountTokens>,
        initialized: impl FnOnce() + Send + 'static,
        _: &mut Tasks,
    ) -> NodeVolumesBuilder {
        initialized();
        volumes
    }

    pub(crate) fn start(
        &mut self,
        _: &Context,
        _: &KubeletHandle,
        _: Option<&ResourceManagerHandle>,
        _: &mut Tasks,
    ) -> Result<()> {
        Ok(())
    }
}
