//! Reports that the node was cordoned.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Node;
use kubelet_core::NodeEventRecorder;

use super::condition::record_status;
use super::name;
use crate::{NodeStatusSetter, Result};

/// Sets nothing. Emits an event when the node is cordoned or uncordoned (`recordNodeSchedulableEvent`).
pub(crate) struct Schedulable {
    pub(crate) events: Arc<dyn NodeEventRecorder>,
    pub(crate) was_unschedulable: AtomicBool,
}

#[async_trait]
impl NodeStatusSetter for Schedulable {
    fn name(&self) -> &str {
        "schedulable"
    }

    async fn set(&self, node: &mut Node) -> Result<()> {
        let unschedulable = node
            .spec
            .as_ref()
            .and_then(|spec| spec.unschedulable)
            .unwrap_or(false);
        if self.was_unschedulable.swap(unschedulable, Ordering::Relaxed) != unschedulable {
            let event = if unschedulable {
                "NodeNotSchedulable"
            } else {
                "NodeSchedulable"
            };
            record_status(&*self.events, name(node), event);
        }
        Ok(())
    }
}
