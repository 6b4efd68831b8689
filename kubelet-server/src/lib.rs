//! The HTTPS API of a Kubernetes node.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

#[cfg(feature = "streaming")]
pub mod streaming;
