//! The limits of all pods together (`enforceNodeAllocatableCgroups`).

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::{EventType, NodeEventRecorder};
use tokio::time::{Instant, sleep};

use super::limits::Limits;
use super::{PodCgroups, observe};

/// The wait before limits that the kernel refused are tried again.
const TRY_AGAIN: Duration = Duration::from_secs(60);

impl PodCgroups {
    /// Limits what all pods may use together: CPU shares (`cpu`), `memory`, huge pages (`hugepages-2Mi`…) and processes
    /// (`pid`). Emits the event `NodeAllocatableEnforced` and returns when this is done.
    ///
    /// The kernel refuses a memory limit below the present usage. Then it emits the event
    /// `FailedNodeAllocatableEnforcement` and tries again every minute. With another driver than cgroupfs it does
    /// nothing and emits no event.
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
