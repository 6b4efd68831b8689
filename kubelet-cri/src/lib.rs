//! The Kubernetes Container Runtime Interface: messages, client, server, five verbs and a process runtime.
//!
//! * [`v1`]: the messages of CRI v1 as of Kubernetes 1.36, all 41 calls.
//! * [`RuntimeService`], [`ImageService`]: the two services as traits over these messages.
//! * `CriClient` (feature `client`, on by default): the two services behind a `unix://` or `tcp://` endpoint.
//! * [`ContainerRuntime`], [`CriAdapter`]: five verbs for a runtime of one's own, and CRI made of them.
//! * `ProcessRuntime` (feature `process`): containers as child processes of the host; no root, no daemon, no image.
//! * `CriServer` (feature `server`): serves the two services on a unix socket, for `crictl` or a Go kubelet.
//!
//! Pods are run on these services by `CriRuntime` of `kubelet-kuberuntime`.
//!
//! Without `client` and `server` there is no gRPC or HTTP in the tree.
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
pub use listed::{ListedContainer, ListedSandbox};
#[cfg(feature = "server")]
pub use server::{CriServer, CriSocket};
pub use services::{ImageService, KUBELET_API_VERSION, RuntimeService};
pub use verbs::{ContainerRuntime, CriAdapter};
