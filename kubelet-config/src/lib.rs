//! Pods from many sources, merged into one ordered stream of updates.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

mod error;
#[cfg(feature = "file")]
mod file_source;
pub mod manifest;
mod pod_config;
mod pod_diff;
mod pod_storage;
mod source_status;

pub use error::{Error, Result};
#[cfg(feature = "file")]
pub use file_source::FileSource;
pub use kubelet_core::{PodOperation, PodSource, PodUpdate, PodUpdates, SourceUpdate, StreamSource};
pub use pod_config::{PodConfig, PodConfigBuilder, PodConfigHandle, PodConfigNotificationMode};
pub use pod_storage::PodStorage;
pub use source_status::SourceStatus;
