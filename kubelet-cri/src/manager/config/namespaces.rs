//! The Linux namespaces of a pod (`kuberuntime/util`).

use k8s_openapi::api::core::v1::{Pod, PodSpec};

use super::{ConfigError, HandlerFeatures, Result};
use crate::v1::{NamespaceMode, NamespaceOption, UserNamespace};

/// The namespaces of a pod (`NamespacesForPod`).
///
/// `hostUsers: false` is refused: where the runtime can do it, because this kubelet hands out no ranges of ids yet.
pub(super) fn namespaces_for_pod(pod: &Pod, handler: HandlerFeatures) -> Result<NamespaceOption> {
    let none = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&none);
    let node_or_pod = |host: Option<bool>| match host {
        Some(true) => NamespaceMode::Node,
        _ => NamespaceMode::Pod,
    };
    let pid = match (spec.host_pid, spec.share_process_namespace) {
        (Some(true), _) => NamespaceMode::Node,
        (_, Some(true)) => NamespaceMode::Pod,
        _ => NamespaceMode::Container,
    };
    if spec.host_users == Some(false) {
        let why = if handler.user_namespaces {
            "user namespaces are not supported by this kubelet"
        } else {
            "runtime does not support user namespaces"
        };
        return Err(ConfigError::Spec(format!(
            "can't set `spec.hostUsers: false`, {why}"
        )));
    }
    Ok(NamespaceOption {
        network: node_or_pod(spec.host_network) as i32,
        pid: pid as i32,
        ipc: node_or_pod(spec.host_ipc) as i32,
        target_id: String::new(),
        userns_options: Some(UserNamespace {
            mode: NamespaceMode::Node as i32,
            ..Default::default()
        }),
    })
}
