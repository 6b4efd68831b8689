//! The Linux namespaces of a pod (`kuberuntime/util`).

use k8s_openapi::api::core::v1::{Pod, PodSpec};

use kubelet_cri::v1::{NamespaceMode, NamespaceOption, UserNamespace};

/// The namespaces of a pod (`NamespacesForPod`).
pub(super) fn namespaces_for_pod(pod: &Pod, user_namespace: UserNamespace) -> NamespaceOption {
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
    NamespaceOption {
        network: node_or_pod(spec.host_network) as i32,
        pid: pid as i32,
        ipc: node_or_pod(spec.host_ipc) as i32,
        target_id: String::new(),
        userns_options: Some(user_namespace),
    }
}

/// The user namespace of a pod on the host's user namespace.
pub(crate) fn user_namespace_of_host() -> UserNamespace {
    UserNamespace {
        mode: NamespaceMode::Node as i32,
        ..Default::default()
    }
}
