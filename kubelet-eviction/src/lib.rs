//! Eviction by a kubelet: when a node runs out of memory, disk or process ids, this crate decides which conditions the node
//! reports, what is freed first, and which pod must go.
//!
//! The [decision](decide) is a pure function of the settings, the state before, the usage, the pods and the time. It does no
//! I/O, so you can use it with an agent of your own, or to try out thresholds.
//!
//! # Example: whom would these thresholds evict?
//!
//! ```toml
//! [dependencies]
//! k8s-openapi = { version = "0.29", features = ["v1_36"] } # your program selects the API version
//! kubelet-core = "0.2"
//! kubelet-eviction = "0.2"
//! serde_json = "1"
//! tokio = { version = "1", features = ["time"] }
//! ```
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::sync::Arc;
//!
//! use k8s_openapi::api::core::v1::Pod;
//! use kubelet_core::PodExt;
//! use kubelet_core::stats::Summary;
//! use kubelet_eviction::{EvictionConfig, EvictionSettings, EvictionState, FileSystems, decide};
//! use serde_json::{from_value, json};
//! use tokio::time::Instant;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (hard, none) = (BTreeMap::from([("memory.available".into(), "100Mi".into())]), BTreeMap::new());
//! let config = EvictionConfig::parse(EvictionSettings {
//!     hard: &hard,
//!     soft: &none,
//!     soft_grace_period: &none,
//!     minimum_reclaim: &none,
//!     enforce_node_allocatable: &[],
//! })?;
//! // What `/stats/summary` of a node reports: 50 MiB are left.
//! let usage = |pod: &str, bytes: u64| {
//!     json!({"podRef": {"name": pod, "uid": pod}, "memory": {"workingSetBytes": bytes}})
//! };
//! let summary: Summary = from_value(json!({
//!     "node": {"memory": {"availableBytes": 50 << 20, "workingSetBytes": 950 << 20}},
//!     "pods": [usage("small", 100 << 20), usage("leaks", 700 << 20)],
//! }))?;
//! let pod = |name: &str| -> serde_json::Result<Arc<Pod>> {
//!     Ok(Arc::new(from_value(json!({"metadata": {"name": name, "uid": name}, "spec": {"containers": []}}))?))
//! };
//! let pods = [pod("small")?, pod("leaks")?];
//!
//! let state = EvictionState::default();
//! let (decision, _) = decide(&config, FileSystems::default(), &state, &summary, &pods, Instant::now());
//! let eviction = decision.starved.and_then(|starved| starved.eviction).ok_or("nothing is starved")?;
//! assert_eq!(&*eviction.pod.key().name, "leaks");
//! assert_eq!(
//!     eviction.message,
//!     "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
//! );
//! # Ok(())
//! # }
//! ```
//!
//! # The parts
//!
//! | part                                   | does                                                                       |
//! |----------------------------------------|----------------------------------------------------------------------------|
//! | [`decide`], [`is_relieved`]            | the decision, with an [`EvictionConfig`] and an [`EvictionState`]          |
//! | [`EvictionManager`]                    | decides every 10 s, and does it: reclaim, evict, wait for the clean-up      |
//! | [`notifier`]                           | notifications of the kernel that memory runs short: the manager decides at once |
//! | [`NodePressure`]                       | the node's conditions, and admission under pressure                        |
//! | [`oom`]                                | the OOM watcher: event `SystemOOM`                                         |
//!
//! The numbers come from a [`SummaryProvider`](kubelet_core::SummaryProvider). Pods are ended by the pod workers of
//! `kubelet-core` ([`KubeletPods`]), or by whatever implements [`NodePods`].
//!
//! # Time and tasks
//!
//! All time is tokio's; the times of conditions come from a [`Clock`](kubelet_core::Clock). The engines spawn no tasks: each is one
//! future, which you spawn or join.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

mod config;
mod decision;
mod error;
mod eviction;
mod local_storage;
mod manager;
mod message;
pub mod notifier;
mod observation;
pub mod oom;
mod pressure;
mod rank;
#[cfg(target_os = "linux")]
mod readiness;
mod reclaim;
mod signal;
mod state;
mod threshold;
mod usage;

pub use config::{EvictionConfig, EvictionSettings, FileSystems};
pub use decision::{Decision, Starvation, decide, is_relieved};
pub use error::{BoxError, Error, Result};
pub use eviction::{Eviction, REASON};
pub use manager::{
    ContainerGc, EvictionManager, EvictionParts, FileSystemInfo, ImageGc, KubeletPods, NodePods,
};
pub use notifier::ThresholdNotifier;
pub use observation::{Observation, Observations, observe};
pub use pressure::NodePressure;
pub use reclaim::Reclaim;
pub use signal::{PressureCondition, Resource, Signal};
pub use state::EvictionState;
pub use threshold::{Threshold, ThresholdValue};
