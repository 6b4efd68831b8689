//! Annotations that the kubelet reads from and writes to pods (`pkg/kubelet/types`).

/// Which source a pod came from: `file`, `http`, `api` or a custom name.
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// On a mirror pod: the hash of the static pod that it shows.
pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
/// When the kubelet first saw the pod, RFC 3339 with nanoseconds.
pub const CONFIG_FIRST_SEEN: &str = "kubernetes.io/config.seen";
/// The hash of a static pod's manifest.
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";

/// The value of [`CONFIG_SOURCE`] for pods from manifests on disk.
pub const FILE_SOURCE: &str = "file";
/// The value of [`CONFIG_SOURCE`] for pods from a URL.
pub const HTTP_SOURCE: &str = "http";
/// The value of [`CONFIG_SOURCE`] for pods from the API server.
pub const API_SOURCE: &str = "api";
