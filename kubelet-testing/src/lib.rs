//! Fakes and fixtures to test a Kubernetes node agent, or parts of one, without a cluster and in virtual time.
//!
//! | item | what it is |
//! |---|---|
//! | [`MemoryCri`] | a container runtime in memory that speaks CRI and behaves like containerd, with faults |
//! | [`MemoryRuntime`] | a container runtime in memory with the five verbs of `kubelet-cri`; a [`Run`] scripts a container |
//! | `ApiServer` (feature `api-server`) | an API server in memory, for kube clients and for `kubectl` |
//! | `Simulation` (feature `simulation`) | whole clusters in virtual time: agents, runtimes and an API server, from one seed |
//! | `conformance` (feature `conformance`) | checks your container runtime against the requirements of the engine above it |
//! | `MemoryCsi` (feature `plugins`) | a CSI driver in memory on a unix socket, with faults |
//! | `MemoryDra` (feature `plugins`) | a DRA driver in memory, on a unix socket or in the agent's process, with faults |
//! | `MemoryDevicePlugin` (feature `plugins`) | a device plugin in memory, on a socket or in the process, with faults |
//! | `Containerd` (feature `containerd`, Linux) | a real containerd for one test, that removes everything at its end |
//! | [`PodBuilder`], [`PodStatusBuilder`], [`RuntimeStatusBuilder`] | build pods, their statuses in the API, and a runtime's statuses |
//! | [`Calls`] | records the calls of a fake, with assertions that print the whole list |
//! | [`FakeRecorder`] | keeps the events that an agent emits |
//! | [`wait_until`], [`eventually!`] | wait for a condition instead of a time |
//! | [`subscribe`] | sets the `tracing` subscriber of one test |
//! | [`LeakCheck`] | finds leaked tasks, files and child processes |
//!
//! This test checks an agent of a few lines, which restarts a pod's container whenever it ends:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use k8s_openapi::api::core::v1::Pod;
//! use kubelet_core::{Clock, PodExt};
//! use kubelet_cri::verbs::{ContainerKey, ContainerRuntime, ContainerSpec, Result};
//! use kubelet_testing::{MemoryRuntime, PodBuilder, Run};
//!
//! /// The code under test.
//! async fn agent(runtime: Arc<dyn ContainerRuntime>, pod: Arc<Pod>) -> Result<()> {
//!     for attempt in 0.. {
//!         let key = ContainerKey::new(pod.uid(), "main", attempt);
//!         runtime.start(&ContainerSpec::new(key.clone(), "busybox:1.36")).await?;
//!         while runtime.inspect(&key).await?.is_running() {
//!             tokio::time::sleep(Duration::from_secs(1)).await;
//!         }
//!     }
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = MemoryRuntime::new(Clock::system());
//! runtime.script("main", [Run::exits(1).after(Duration::from_secs(1800))]);
//! let pod = PodBuilder::new("web").container("main", "busybox:1.36", |c| c.command(["sleep", "30m"])).build();
//! let agent = tokio::spawn(agent(Arc::new(runtime.clone()), pod.clone()));
//!
//! // Five hours pass in a moment.
//! for starts in 1..=10 {
//!     runtime.wait_until("another start", |runtime| runtime.tally(&pod.uid(), "main").starts == starts).await?;
//! }
//! assert_eq!(runtime.tally(&pod.uid(), "main").most_at_once, 1);
//! # agent.abort();
//! # Ok(())
//! # }
//! ```
//!
//! Assemble a whole agent in the same way: a `CriAdapter` on the [`MemoryRuntime`], a `CriRuntime` on the adapter and a
//! `Kubelet` on the runtime, all with one `Clock::starting_at`.
#![cfg_attr(feature = "simulation", doc = include_str!("simulation/ten_lines.md"))]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(any(feature = "conformance", all(feature = "containerd", target_os = "linux")))]
mod cgroups;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(all(feature = "containerd", target_os = "linux"))]
mod containerd;
#[cfg(feature = "plugins")]
pub mod csi_driver;
#[cfg(feature = "plugins")]
pub mod device_plugin;
#[cfg(feature = "plugins")]
pub mod dra_driver;
mod error;
mod fake_recorder;
mod leak_check;
#[cfg(feature = "plugins")]
mod matching_calls;
pub mod memory_cri;
mod memory_mounter;
mod memory_runtime;
mod pod_builder;
mod run;
#[cfg(feature = "plugins")]
mod served_plugin;
#[cfg(feature = "simulation")]
pub mod simulation;
mod status_builder;
mod subscribe;
mod wait;

#[cfg(all(feature = "containerd", target_os = "linux"))]
pub use containerd::{Containerd, Task};
#[cfg(feature = "plugins")]
pub use csi_driver::MemoryCsi;
#[cfg(feature = "plugins")]
pub use device_plugin::MemoryDevicePlugin;
#[cfg(feature = "plugins")]
pub use dra_driver::MemoryDra;
pub use error::{Error, Result};
pub use fake_recorder::{FakeRecorder, RecordedEvent};
#[cfg(feature = "api-server")]
pub use kubelet_apiserver::{self as api_server, ApiServer, User};
pub use kubelet_core::Calls;
pub use leak_check::{LeakCheck, Leaks};
pub use memory_cri::MemoryCri;
pub use memory_mounter::MemoryMounter;
pub use memory_runtime::{MemoryRuntime, Tally};
pub use pod_builder::{ContainerBuilder, PodBuilder, probe};
pub use run::Run;
#[cfg(feature = "simulation")]
pub use simulation::{FaultPlan, Simulation, Workload};
pub use status_builder::{
    ContainerStatusBuilder, PodStatusBuilder, RuntimeContainerBuilder, RuntimeStatusBuilder,
};
pub use subscribe::{Subscribed, subscribe};
pub use wait::{PATIENCE, wait_until};

/// For the expansion of `eventually!`.
#[doc(hidden)]
pub mod __wait {
    pub use crate::wait::{Patience, watched};
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
