#![doc = include_str!("../README.md")]
//!
//! # Where to look
//!
//! | you want | look at |
//! |---|---|
//! | to call containerd or CRI-O | `CriClient` (feature `client`), with the methods of [`RuntimeService`] and [`ImageService`] |
//! | a runtime of your own | [`verbs`], then [`CriAdapter`]; `process` (feature `process`) as a model |
//! | to implement CRI without the five verbs | [`RuntimeService`] and [`ImageService`]; [`Error`] says which code to return |
//! | to serve a runtime on a socket | `CriServer` (feature `server`) |
//! | a message or an enum of the protocol | [`v1`] |
//!
//! # List the running containers of containerd
//!
//! ```no_run
//! # #[cfg(feature = "client")]
//! # async fn list() -> Result<(), kubelet_cri::Error> {
//! use kubelet_cri::{CriClient, RuntimeService, v1};
//!
//! let runtime = CriClient::connect("unix:///run/containerd/containerd.sock").await?;
//! let running = v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning as i32 };
//! let filter = v1::ContainerFilter { state: Some(running), ..Default::default() };
//! let answer = runtime.list_containers(v1::ListContainersRequest { filter: Some(filter) }).await?;
//! for container in answer.containers {
//!     println!("{} {:?}", container.id, container.state());
//! }
//! # Ok(())
//! # }
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "client")]
mod client;
mod error;
mod listed;
#[cfg(feature = "server")]
mod server;
mod services;

#[cfg(all(feature = "process", target_os = "linux"))]
pub mod process;
pub mod v1;
pub mod verbs;

#[cfg(feature = "client")]
pub use client::{CriClient, CriClientBuilder};
pub use error::{Code, Error};
pub use listed::{ListedContainer, ListedSandbox, ListedStats};
#[cfg(feature = "server")]
pub use server::{CriServer, CriSocket};
pub use services::{ImageService, KUBELET_API_VERSION, RuntimeService};
pub use verbs::{ContainerRuntime, CriAdapter};
