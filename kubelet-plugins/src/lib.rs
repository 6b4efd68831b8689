//! The plugin watcher of a kubelet (`pkg/kubelet/pluginmanager`): it finds the sockets of CSI drivers, device plugins and
//! DRA drivers, and registers them.
//!
//! A plugin creates a socket below the folder `plugins_registry` and serves the gRPC service `Registration` on it.
//! [`PluginWatcher`] asks the plugin for its type, name and versions, gives it to the [`PluginHandler`] of that type, and
//! sends the plugin the result. When the socket is gone, the handler deregisters the plugin.
//!
//! ```
//! use std::sync::Arc;
//!
//! use async_trait::async_trait;
//! use kubelet_plugins::{CSI_PLUGIN, Error, Plugin, PluginHandler, PluginWatcher, Result};
//! use tokio_util::sync::CancellationToken;
//!
//! struct Drivers;
//!
//! #[async_trait]
//! impl PluginHandler for Drivers {
//!     async fn validate(&self, plugin: &Plugin) -> Result<()> {
//!         match plugin.versions.iter().any(|version| version.starts_with("1.")) {
//!             true => Ok(()),
//!             false => Err(Error::refused("this node uses version 1 only")),
//!         }
//!     }
//!
//!     async fn register(&self, plugin: &Plugin) -> Result<()> {
//!         println!("{} serves at {}", plugin.name, plugin.endpoint.display());
//!         Ok(())
//!     }
//!
//!     async fn deregister(&self, plugin: &Plugin) {
//!         println!("{} is gone", plugin.name);
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let folder = dir.path().join("plugins_registry");
//! let watcher = PluginWatcher::builder(folder).handler(CSI_PLUGIN, Arc::new(Drivers)).build()?;
//! let shutdown = CancellationToken::new();
//! # shutdown.cancel();
//! watcher.run(shutdown).await;
//! # Ok(())
//! # }
//! ```
//!
//! To write a plugin or a fake one, [`v1::registration_server`] has the gRPC service that it serves.
#![warn(missing_docs)]

mod error;
pub mod grpc_go;
mod handler;
mod names;
mod register;
mod sockets;
mod state;
mod transport;
pub mod v1;
mod watch;
mod watcher;

pub use error::{Error, Result};
pub use handler::{CSI_PLUGIN, DEVICE_PLUGIN, DRA_PLUGIN, Plugin, PluginHandler};
pub use state::PluginState;
pub use transport::Transport;
pub use watcher::{PluginWatcher, PluginWatcherBuilder, PluginWatcherHandle};

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
