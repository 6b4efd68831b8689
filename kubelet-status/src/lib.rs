//! Generates the API `PodStatus` of pods from their runtime status, and sends it to an API server or another sink. Without
//! the feature `apiserver` it depends on no API client and no HTTP.
//!
//! * [`generate_api_pod_status`] is a pure function from a pod, its runtime status and its previous API status to the new
//!   API status: phase, conditions, container statuses, IPs, QoS class and resources, exactly as in kubelet v1.36. It is
//!   tested against 1,500 statuses and the complete lives of 74 pods that were recorded from the kubelet.
//! * [`StatusManager`] keeps one status per pod and sends changes to a [`StatusSink`](kubelet_core::StatusSink) at once. A
//!   burst of changes is one patch, an unchanged status is not sent, and failed requests are retried.
//! * Sinks: [`MemorySink`], [`JsonLines`], [`LogSink`], `ApiServerSink` (feature `apiserver`), and [`FanOut`] for
//!   several at once.
//! * [`EventBroadcaster`] sends events to an [`EventSink`], such as `ApiServerEvents` (feature `apiserver`). It counts,
//!   combines and limits them as the kubelet does.
//!
//! The `Kubelet` assembly of `kubelet-core` takes the manager as its `statuses`; `cargo run --example status-lines` is such
//! a node agent, with its own sink. The manager also works alone. This example sends statuses to its own sink:
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
//! /// Sends one line for each change.
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
//! # Differences from the kubelet
//!
//! * Requests for different pods are made in parallel; the kubelet makes one at a time.
//! * A status takes one request if the API server's version of the pod is known; the kubelet reads the pod before each patch.
//! * A terminal phase is sent after [`containers_ended`](kubelet_core::PodStatusReporter::containers_ended), if a sync of the pod has
//!   begun, and else when no container is reported as running; the kubelet asks its pod workers.
//! * `status.resources` of a pod that the API server shows as `Running` keeps its value; it is not read from the pod's
//!   cgroup.
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
mod transitions;

pub use events::{EventBroadcaster, EventRecorderHandle, EventSink, EventSinkError};
pub use generate::{NodeFacts, generate_api_pod_status};
pub use handle::StatusManagerHandle;
pub use manager::{StatusManager, StatusManagerConfig};
#[cfg(feature = "apiserver")]
pub use sink::{ApiServerEvents, ApiServerMirrorClient, ApiServerNode, ApiServerSink};
pub use sink::{Blocking, FanOut, JsonLines, LogSink, MemorySink, ReportedPod};
