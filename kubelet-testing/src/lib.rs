//! Fakes that behave: test a Kubernetes node agent without a cluster, in virtual time
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "containerd")]
mod containerd;
mod error;

#[cfg(feature = "containerd")]
pub use containerd::{Containerd, Task};
pub use error::{Error, Result};
