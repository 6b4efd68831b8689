//! The generic runtime manager (`pkg/kubelet/kuberuntime`).

pub(crate) mod config;
pub(crate) mod images;
