//! Graceful shutdown: when the host shuts down, pods end in the order of their priority, each with its grace period
//! (`pkg/kubelet/nodeshutdown`).
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! use std::sync::Arc;
//! use std::time::Duration;
//! use kubelet_core::LogEvents;
//! use kubelet_node::shutdown::{
//!     NodeShutdown, ShutdownGracePeriods, ShutdownManager, ShutdownParts, ShutdownTrigger,
//! };
//! # use async_trait::async_trait;
//! # use k8s_openapi::api::core::v1::Pod;
//! # struct NoPods;
//! # #[async_trait]
//! # impl kubelet_node::shutdown::ShutdownPods for NoPods {
//! #     fn active_pods(&self) -> Vec<Arc<Pod>> { Vec::new() }
//! #     async fn kill(&self, _: &Arc<Pod>, _: Duration, _: kubelet_core::PodStatusFn) -> Result<(), kubelet_node::BoxError> { Ok(()) }
//! #     async fn wait_for_unmount(&self, _: &Arc<Pod>) {}
//! # }
//! # let pods = Arc::new(NoPods);
//!
//! // The field `shutdownGracePeriod`, and the part of it for critical pods.
//! let periods = ShutdownGracePeriods::new(Duration::from_secs(30), Duration::from_secs(10));
//! let (state, trigger) = (NodeShutdown::new(), ShutdownTrigger::new());
//! let parts = ShutdownParts::new(pods, Arc::new(LogEvents));
//! let manager = ShutdownManager::new(periods, parts, state.clone());
//! let running = tokio::spawn(manager.run(trigger.clone(), Default::default()));
//!
//! trigger.shut_down().await; // returns when the pods have ended
//! assert!(state.is_shutting_down());
//! # running.abort();
//! # }
//! ```

#[cfg(feature = "systemd")]
mod logind;
mod manager;
mod plan;
mod pods;
mod source;
mod state;
mod state_file;
mod trigger;

#[cfg(feature = "systemd")]
pub use self::logind::Logind;
pub use self::manager::{ShutdownManager, ShutdownParts};
pub use self::plan::{ShutdownGracePeriods, ShutdownGroup, terminated};
pub use self::pods::{KubeletPods, ShutdownPods};
pub use self::source::{Inhibitor, ShutdownEvent, ShutdownSource};
pub use self::state::NodeShutdown;
pub use self::trigger::ShutdownTrigger;
