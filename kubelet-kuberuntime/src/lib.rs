#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod calls;
mod cgroups;
mod config;
#[cfg(feature = "logs")]
mod container_logs;
mod containers;
#[cfg(test)]
mod counted;
mod credential_provider;
mod error;
mod events;
mod gc;
mod hooks;
mod image_gc;
mod images;
mod kill;
#[cfg(feature = "logs")]
pub mod logs;
mod node_runtime;
pub mod pod_actions;
mod probe;
mod read;
mod runtime;
mod sandbox;
mod stats;
mod streaming;
mod sync;

pub use builder::CriRuntimeBuilder;
pub use cgroups::{CgroupMounts, PodCgroups};
pub use config::{CgroupDriver, NodeIps, NodeSettings};
pub use credential_provider::CredentialProvider;
pub use error::Error;
pub use image_gc::{FsStats, ImageFsStats, ImageGcManager, ImageGcPolicy};
pub use images::{ImagePullCredentialsVerificationPolicy, ImagePullSettings};
pub use node_runtime::CriNodeRuntime;
#[cfg(feature = "probes")]
pub use probe::NetworkProber;
pub use probe::NodeProber;
pub use runtime::CriRuntime;
pub use sandbox::user_namespaces::UserNamespaceIds;
pub use stats::{ContainerStats, ImageFsInfo, PodStats};
pub use streaming::StreamOptions;
