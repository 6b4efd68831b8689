//! What a node says of its pods: from what the runtime says to the API `PodStatus`, and from there to any
//! sink. No runtime and, but with the feature `apiserver`, no API client and no HTTP.
//!
//! * [`generate_api_pod_status`] is a pure function from a pod, its runtime's status and the status reported
//!   before to the API status: phase, conditions, container statuses, IPs, QoS class and resources, to the
//!   letter of kubelet v1.36. 1,500 statuses and 74 lives of pods recorded from the real kubelet hold it to that.
//! * [`StatusManager`] keeps one status per pod and tells a [`StatusSink`](kubelet_core::StatusSink) what
//!   changed: at once, each burst as one patch, never what did not change, again where it failed.
//! * Sinks: [`MemorySink`], [`JsonLines`], [`LogSink`], `ApiServerSink` (feature `apiserver`), and [`FanOut`] for
//!   several at once.
//! * [`EventBroadcaster`] brings events to an [`EventSink`], such as `ApiServerEvents` (feature `apiserver`), counted,
//!   combined and limited as the kubelet's are.
//!
//! The manager is what the `Kubelet` assembly of `kubelet-core` takes as its `statuses`
//! (`cargo run --example status-lines` is a whole agent that tells its own sink). It works alone just as well. Here it
//! reports to a sink of one's own:
//!
//! ```
//! use std::sync::Arc;
//! use async_trait::async_trait;
//! use k8s_openapi::api::core::v1::{Pod, PodStatus};
//! use kubelet_core::{PodExt, PodStatusReporter, Result, StatusSink};
//! use kubelet_status::StatusManager;
//! use tokio::sync::mpsc;
//! use tokio_util::sync::CancellationToken;
//!
//! /// Tells in one line what became of a pod.
//! struct Lines(mpsc::UnboundedSender<String>);
//!
//! #[async_trait]
//! impl StatusSink for Lines {
//!     async fn patch_status(
//!         &self,
//!         pod: &Arc<Pod>,
//!         old: &PodStatus,
//!         new: &PodStatus,
//!     ) -> Result<Option<Arc<Pod>>> {
//!         let phase = |status: &PodStatus| status.phase.clone().unwrap_or_else(|| "new".to_owned());
//!         let line = format!("{} {} -> {}", pod.key(), phase(old), phase(new));
//!         self.0.send(line).ok();
//!         Ok(None)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let (sender, mut lines) = mpsc::unbounded_channel();
//! let manager = StatusManager::new(Lines(sender));
//! let handle = manager.handle();
//! let shutdown = CancellationToken::new();
//! let running = tokio::spawn(manager.run(shutdown.clone()));
//!
//! let mut pod = Pod::default();
//! pod.metadata.namespace = Some("default".to_owned());
//! pod.metadata.name = Some("web".to_owned());
//! pod.metadata.uid = Some("1".to_owned());
//! let pod = Arc::new(pod);
//! let phase = |phase: &str| PodStatus { phase: Some(phase.to_owned()), ..PodStatus::default() };
//! for phase_now in ["Pending", "Pending", "Running"] {
//!     handle.set_pod_status(&pod, phase(phase_now));
//! }
//! assert_eq!(lines.recv().await.unwrap(), "default/web new -> Running");
//! handle.set_pod_status(&pod, phase("Succeeded"));
//! assert_eq!(lines.recv().await.unwrap(), "default/web Running -> Succeeded");
//!
//! shutdown.cancel();
//! running.await.unwrap();
//! # }
//! ```
//!
//! # Where it goes its own way
//!
//! * Sends of different pods overlap; the kubelet's are one after the other.
//! * A status is one request where what the API server has is known; the kubelet reads the pod before each patch.
//! * A terminal phase is told once no container of the pod is reported as running, or its end is complete;
//!   the kubelet asks its pod workers.
//! * What a pod's cgroup holds is not looked at for `status.resources` of a pod that the API server shows as
//!   `Running`: what was shown stays.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

mod conditions;
mod container_statuses;
mod equality;
mod error;
mod events;
mod generate;
mod handle;
mod manager;
mod merge;
mod metrics;
mod normalize;
mod phase;
mod pod_ips;
mod pod_startup_latency;
mod quantity;
mod readiness;
mod records;
mod resize;
mod resources;
mod restart_rules;
mod send;
mod sink;
mod status_ext;
mod terminate;
mod token_bucket;
mod transitions;

pub use events::{EventBroadcaster, EventRecorderHandle, EventSink, EventSinkError};
pub use generate::{NodeFacts, generate_api_pod_status};
pub use handle::StatusManagerHandle;
pub use manager::{StatusManager, StatusManagerConfig};
#[cfg(feature = "apiserver")]
pub use sink::{ApiServerEvents, ApiServerMirrorClient, ApiServerNode, ApiServerSink};
pub use sink::{Blocking, FanOut, JsonLines, LogSink, MemorySink, ReportedPod};
