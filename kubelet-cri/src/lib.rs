//! The Kubernetes Container Runtime Interface: messages, client, server, a runtime manager and a process runtime
//!
//! * [`v1`]: the messages of CRI v1 as of Kubernetes 1.36, all 41 calls.
//! * [`RuntimeService`], [`ImageService`]: the two services as traits over these messages.

#[cfg(feature = "client")]
mod client;
mod error;
mod manager;
#[cfg(feature = "server")]
mod server;
mod services;

pub mod v1;

#[cfg(feature = "client")]
pub use client::{CriClient, CriClientBuilder};
pub use error::{Code, Error};
#[cfg(feature = "server")]
pub use server::{CriServer, CriSocket};
pub use services::{ImageService, RuntimeService};
