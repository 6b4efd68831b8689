//! The HTTPS API of a Kubernetes node.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

#[cfg(feature = "pods-api")]
pub mod pods_api;
#[cfg(feature = "prometheus")]
pub mod prometheus;
#[cfg(feature = "streaming")]
pub mod streaming;
#[cfg(feature = "system-logs")]
pub mod system_logs;
