//! What all pods have together (`enforceNodeAllocatableCgroups`).

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::{EventType, NodeEventRecorder};
use tokio::time::{Instant, sleep};

use super::limits::Limits;
use super::{PodCgroups, observe};

/// The wait after bounds that the kernel refused.
const TRY_AGAIN: Duration = Duration::from_secs(60);

impl PodCgroups {
    /// Bounds what all pods may use together: CPU shares (`cpu`), `memory`, huge pages (`hugepages-2Mi`…) and processes
    /// (`pid`). Returns when that is done, and says so by the event `NodeAllocatableEnforced`.
    ///
    /// The kernel refuses a bound on memory below what is in use: that is told as `FailedNodeAllocatableEnforcement`, and tried
    /// again each minute. Without the driver cgroupfs there is nothing to do, and nothing is told.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn enforce_node_allocatable(
        &self,
        resources: &BTreeMap<String, Quantity>,
        events: &dyn NodeEventRecorder,
    ) {
        let Some(tree) = &self.tree else { return };
        let name: Vec<String> = tree.class(None).iter().map(|part| format!("{part:?}")).collect();
        while let Err(error) = self.bound_all_pods(resources).await {
            let problem = format!(
                "Failed to update Node Allocatable Limits [{}]: {error}",
                name.join(" ")
            );
            events.record_node(EventType::Warning, "FailedNodeAllocatableEnforcement", problem);
            sleep(TRY_AGAIN).await;
        }
        let done = "Updated Node Allocatable limit across pods".to_owned();
        events.record_node(EventType::Normal, "NodeAllocatableEnforced", done);
    }

    async fn bound_all_pods(&self, resources: &BTreeMap<String, Quantity>) -> io::Result<()> {
        let limits = Limits::of_all_pods(&self.node, resources).map_err(io::Error::other)?;
        let started = Instant::now();
        let set = self.on_tree(move |tree| tree.set(&tree.class(None), &limits));
        let set = set.await;
        observe("update", started);
        set
    }
}
