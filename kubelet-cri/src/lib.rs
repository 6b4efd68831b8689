//! The Kubernetes Container Runtime Interface: messages, client, server, a runtime manager and a process runtime
//!
//! * [`v1`]: the messages of CRI v1 as of Kubernetes 1.36, all 41 calls.
//! * [`RuntimeService`], [`ImageService`]: the two services as traits over these messages.

mod error;
mod services;

pub mod v1;

pub use error::{Code, Error};
pub use services::{ImageService, RuntimeService};
