//! `MemoryPressure`, `DiskPressure` and `PIDPressure`.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kubelet_core::{Clock, EventType, NodeEventRecorder};

use super::{name, status};
use crate::{NodeStatusSetter, Pressure, Result};

/// A pressure condition (`nodestatus.MemoryPressureCondition` and similar).
pub(crate) struct PressureCondition {
    pub(crate) of: PressureOf,
    pub(crate) pressure: Arc<dyn Pressure>,
    pub(crate) clock: Clock,
    pub(crate) events: Arc<dyn NodeEventRecorder>,
}

/// The resource.
#[derive(Clone, Copy)]
pub(crate) enum PressureOf {
    Memory,
    Disk,
    Pid,
}

impl PressureOf {
    fn condition_type(self) -> &'static str {
        match self {
            Self::Memory => "MemoryPressure",
            Self::Disk => "DiskPressure",
            Self::Pid => "PIDPressure",
        }
    }

    /// The end of the reason, and the message. Reasons start with `Kubelet`, those of events with `Node`.
    fn words(self, under: bool) -> (&'static str, &'static str) {
        match (self, under) {
            (Self::Memory, true) => (
                "HasInsufficientMemory",
                "kubelet has insufficient memory available",
            ),
            (Self::Memory, false) => ("HasSufficientMemory", "kubelet has sufficient memory available"),
            (Self::Disk, true) => ("HasDiskPressure", "kubelet has disk pressure"),
            (Self::Disk, false) => ("HasNoDiskPressure", "kubelet has no disk pressure"),
            (Self::Pid, true) => ("HasInsufficientPID", "kubelet has insufficient PID available"),
            (Self::Pid, false) => ("HasSufficientPID", "kubelet has sufficient PID available"),
        }
    }
}

#[async_trait]
impl NodeStatusSetter for PressureCondition {
    fn name(&self) -> &str {
        self.of.condition_type()
    }

    async fn set(&self, node: &mut Node) -> Result<()> {
        let under = match self.of {
            PressureOf::Memory => self.pressure.is_under_memory_pressure(),
            PressureOf::Disk => self.pressure.is_under_disk_pressure(),
            PressureOf::Pid => self.pressure.is_under_pid_pressure(),
        };
        let now = self.clock.api_now();
        let conditions = status(node).conditions.get_or_insert_default();
        let type_ = self.of.condition_type();
        let index = conditions
            .iter()
            .position(|condition| condition.type_ == type_)
            .unwrap_or_else(|| {
                conditions.push(NodeCondition {
                    type_: type_.to_owned(),
                    status: "Unknown".to_owned(),
                    ..NodeCondition::default()
                });
                conditions.len() - 1
            });
        let condition = &mut conditions[index];
        condition.last_heartbeat_time = Some(now.clone());
        let should_be = if under { "True" } else { "False" };
        if condition.status == should_be {
            return Ok(());
        }
        let (reason, message) = self.of.words(under);
        should_be.clone_into(&mut condition.status);
        condition.reason = Some(format!("Kubelet{reason}"));
        condition.message = Some(message.to_owned());
        condition.last_transition_time = Some(now);
        record_status(&*self.events, name(node), &format!("Node{reason}"));
        Ok(())
    }
}

/// (`recordNodeStatusEvent`)
pub(crate) fn record_status(events: &dyn NodeEventRecorder, node: &str, event: &str) {
    events.record_node(
        EventType::Normal,
        event,
        format!("Node {node} status is now: {event}"),
    );
}
