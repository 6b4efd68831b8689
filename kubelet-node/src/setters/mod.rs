//! The kubelet's setters (`pkg/kubelet/nodestatus`).

pub(crate) mod addresses;
pub(crate) mod condition;
pub(crate) mod info;
mod last_answer;
pub(crate) mod machine;
pub(crate) mod ready;
pub(crate) mod runtime;
pub(crate) mod schedulable;
pub(crate) mod volumes;

use k8s_openapi::api::core::v1::{Node, NodeStatus, NodeSystemInfo};

pub(crate) use last_answer::LastAnswer;

pub(crate) fn status(node: &mut Node) -> &mut NodeStatus {
    node.status.get_or_insert_default()
}

pub(crate) fn node_info(node: &mut Node) -> &mut NodeSystemInfo {
    status(node).node_info.get_or_insert_default()
}

/// The node's name, for logs and messages.
pub(crate) fn name(node: &Node) -> &str {
    node.metadata.name.as_deref().unwrap_or_default()
}
