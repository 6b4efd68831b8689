//! A runtime's answers about a resize in place.

use serde::{Deserialize, Serialize};

/// Why a runtime cannot resize a running pod, whatever the node's capacity: the resize is `Infeasible`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResizeRefusal {
    /// The message of the condition `PodResizePending`.
    pub message: String,
    /// The label `reason_detail` of `kubelet_pod_infeasible_resizes_total`.
    pub reason_detail: &'static str,
}

impl ResizeRefusal {
    /// A refusal with this message, counted under this detail.
    pub fn new(message: impl Into<String>, reason_detail: &'static str) -> Self {
        Self {
            message: message.into(),
            reason_detail,
        }
    }

    /// Nothing on this node can be resized (`IsInPlacePodVerticalScalingAllowed`).
    pub fn unsupported() -> Self {
        Self::new(
            "In-place pod resize is not supported on this node",
            "unsupported_platform",
        )
    }
}

/// The CPU and memory that a container, or its pod as a whole, was given last, 0 for unset. Kept over a restart of the
/// agent (the kubelet's `actuated_pods_state`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActuatedResources {
    /// The container's name; empty for the pod as a whole.
    pub container: String,
    /// In thousandths of a CPU.
    pub cpu_request: i64,
    /// In thousandths of a CPU.
    pub cpu_limit: i64,
    /// In bytes.
    pub memory_request: i64,
    /// In bytes.
    pub memory_limit: i64,
}
