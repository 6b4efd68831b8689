#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

mod agent;
#[cfg(feature = "api")]
mod api;
mod builder;
mod cgroups;
mod check;
#[cfg(feature = "dra")]
mod claims;
#[cfg(feature = "apiserver")]
mod cluster;
mod compose;
mod configured;
#[cfg(feature = "console")]
mod console;
mod context;
mod dynamic;
mod engines;
mod error;
mod events;
mod eviction;
pub mod guide;
mod handle;
mod host;
#[cfg(feature = "stats")]
mod image_fs;
mod machine;
#[cfg(feature = "apiserver")]
mod node;
mod objects;
#[cfg(any(feature = "csi", feature = "resources"))]
mod plugins;
#[cfg(feature = "program")]
pub mod program;
mod refused;
#[cfg(feature = "resources")]
mod resources;
mod runtime;
#[cfg(feature = "server")]
mod server;
mod settings;
mod shutdown;
mod sources;
mod stats;
mod statuses;
mod tasks;
#[cfg(feature = "volumes")]
mod volumes;

pub use agent::NodeAgent;
#[cfg(feature = "api")]
pub use api::OwnApiServer;
pub use builder::{NoRuntime, NodeAgentBuilder, OfContainers, OfPods};
#[cfg(feature = "console")]
pub use console::ConsoleAt;
pub use dynamic::Reconfigured;
pub use error::{Error, Result};
pub use events::AgentEvent;
pub use handle::AgentHandle;
pub use settings::{KUBELET_VERSION, Settings};
