//! Decides whether a pod needs a new sandbox.

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::PodExt;
use kubelet_core::runtime::{PodStatus, SandboxState};

/// The desired sandbox of a pod.
pub(super) struct NeededSandbox {
    /// Whether it must be created.
    pub(super) create: bool,
    /// Its attempt.
    pub(super) attempt: u32,
    /// The present sandbox, or the sandbox that it replaces.
    pub(super) id: Option<String>,
}

/// `PodSandboxChanged`: a sandbox is kept if it is the only ready one, the newest, on the right network, and has its
/// IP.
pub(super) fn needed_sandbox(pod: &Pod, status: &PodStatus) -> NeededSandbox {
    let Some(newest) = status.sandboxes.first() else {
        return NeededSandbox {
            create: true,
            attempt: 0,
            id: None,
        };
    };
    let replace = |id| NeededSandbox {
        create: true,
        attempt: newest.attempt.saturating_add(1),
        id,
    };
    let ready = status
        .sandboxes
        .iter()
        .filter(|sandbox| sandbox.state == SandboxState::Ready)
        .count();
    if ready > 1 || newest.state != SandboxState::Ready {
        replace(Some(newest.id.clone()))
    } else if newest.host_network != pod.host_network() {
        replace(None)
    } else if !pod.host_network() && newest.network_reported && newest.ips.is_empty() {
        replace(Some(newest.id.clone()))
    } else {
        NeededSandbox {
            create: false,
            attempt: newest.attempt,
            id: Some(newest.id.clone()),
        }
    }
}
