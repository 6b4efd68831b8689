//! Fakes that behave: test a Kubernetes node agent without a cluster, in virtual time
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "containerd")]
mod containerd;
mod error;
mod fake_recorder;
mod memory_runtime;
mod pod_builder;
mod wait;

#[cfg(feature = "containerd")]
pub use containerd::{Containerd, Task};
pub use error::{Error, Result};
pub use fake_recorder::{FakeRecorder, RecordedEvent};
pub use memory_runtime::{MemoryRuntime, Run, Tally};
pub use pod_builder::{ContainerBuilder, PodBuilder};
pub use wait::{PATIENCE, wait_until};
