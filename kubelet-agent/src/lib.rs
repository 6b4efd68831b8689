#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

// The ground: plain parts.
mod configured;
mod context;
mod dynamic;
mod error;
mod inspection;
mod problem;
mod settings;
mod tasks;

// The rooms of a node.
mod rooms;

// The composition: what was gathered, what is wrong with it, and the story of a node.
mod agent;
mod check;
mod compose;
mod handle;
mod parts;
mod refused;

// The face.
mod builder;
pub mod guide;
#[cfg(feature = "program")]
pub mod program;

pub use agent::NodeAgent;
pub use builder::{NoRuntime, NodeAgentBuilder, OfContainers, OfPods};
pub use dynamic::Reconfigured;
pub use error::{Error, Result};
pub use handle::AgentHandle;
pub use kubelet_config::kubelet_configuration::Origin;
pub use problem::{FoundBy, Problem};
#[cfg(feature = "server")]
pub use rooms::console::ConsoleAt;
pub use rooms::events::AgentEvent;
#[cfg(feature = "api")]
pub use rooms::own_api::OwnApiServer;
pub use settings::{KUBELET_VERSION, Settings};
