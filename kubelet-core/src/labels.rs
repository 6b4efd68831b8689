//! Labels that the kubelet puts on sandboxes and containers, so that any kubelet finds them again
//! (`pkg/kubelet/types/labels.go`, in the cri-client package since v1.33).

/// The pod's name.
pub const POD_NAME: &str = "io.kubernetes.pod.name";
/// The pod's namespace.
pub const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
/// The pod's UID.
pub const POD_UID: &str = "io.kubernetes.pod.uid";
/// The container's name.
pub const CONTAINER_NAME: &str = "io.kubernetes.container.name";
