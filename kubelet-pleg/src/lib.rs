//! The kubelet's pod lifecycle event generator (*PLEG*), for any container runtime: it watches what a runtime
//! has, keeps a cache of the newest status of each pod, and tells which pods changed and how.
//!
//! A runtime is anything that can list its pods and read one's status ([`RuntimeReader`]): no CRI, no gRPC, no
//! cluster. Here is one in memory, watched:
//!
//! ```
//! use std::sync::Arc;
//!
//! use kubelet_core::runtime::{Container, ContainerState, ContainerStatus, PodStatus, RuntimePod};
//! use kubelet_core::{ContainerId, PodCache, PodKey, PodLifecycleEventType, PodUid, Result, RuntimeReader};
//! use kubelet_pleg::GenericPleg;
//!
//! struct MyRuntime(Vec<Arc<RuntimePod>>);
//!
//! #[async_trait::async_trait]
//! impl RuntimeReader for MyRuntime {
//!     async fn pods(&self, _all: bool) -> Result<Vec<Arc<RuntimePod>>> {
//!         Ok(self.0.clone())
//!     }
//!     async fn pod_status(&self, pod: &RuntimePod) -> Result<Arc<PodStatus>> {
//!         let now = tokio::time::Instant::now();
//!         let mut status = PodStatus::empty(pod.uid.clone(), pod.key.clone(), now);
//!         for listed in &pod.containers {
//!             status.containers.push(ContainerStatus::new(listed.id.clone(), &*listed.name, listed.state));
//!         }
//!         Ok(Arc::new(status))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<()> {
//! let mut pod = RuntimePod::empty(PodUid::from("0b57"), PodKey::new("default", "web"));
//! pod.containers.push(Container::new(ContainerId::new("mine", "1"), "nginx", ContainerState::Running));
//!
//! let cache = PodCache::new();
//! let pleg = GenericPleg::new(Arc::new(MyRuntime(vec![Arc::new(pod)])), cache.clone());
//! let mut events = pleg.handle().subscribe();
//! let shutdown = tokio_util::sync::CancellationToken::new();
//! let watching = tokio::spawn(pleg.run(shutdown.clone()));
//!
//! if let Some((uid, changes)) = events.next().await {
//!     assert_eq!(changes[0].event_type, PodLifecycleEventType::ContainerStarted);
//!     assert_eq!(cache.get(&uid)?.containers[0].name, "nginx");
//! }
//! shutdown.cancel();
//! # watching.await.ok();
//! # Ok(())
//! # }
//! ```
//!
//! # What a subscriber may rely on
//!
//! * **No change is lost.** There is no queue to overflow: what waits to be taken is a set of pods, each with
//!   its changes in their order, bounded by what exists. Any number may subscribe, and a slow one slows down
//!   nobody.
//! * **The cache comes first.** When an event is told, the [`PodCache`] has the status that goes with it, or a
//!   newer one. It is stamped with the time before the list, so it is at least as new as that.
//! * **Each container that a list showed and that ended is told to have died**, once, even if its pod could
//!   not be read at that time, or it was gone before anybody saw it end.
//!
//! And on what not: events are *level-triggered*. What changed and changed back between two lists, or between
//! two takes of a slow subscriber, may be told as less than it was; a container that lived and went between
//! two lists was never there. The order of events is that within one pod, not between pods. An event is a reason
//! to look into the cache; what is there now is the truth.
//!
//! # Which one
//!
//! [`GenericPleg`] lists once a second and works with any runtime. [`EventedPleg`] does that, too, until the
//! runtime's hints ([`pod_hints`]) have proven that they tell of everything; then it sees a change as soon as it
//! is hinted at, and lists ever rarer. Hints are never data, so it sees the same, and may be left on with any
//! runtime. Both tell humans how they do: [`Inspector`].
//!
//! # Metrics
//!
//! By the kubelet's names, through the [`metrics`](https://docs.rs/metrics) facade:
//! `kubelet_pleg_relist_duration_seconds`, `kubelet_pleg_relist_interval_seconds`,
//! `kubelet_pleg_pod_relist_duration_seconds`, `kubelet_pleg_last_seen_seconds`, `kubelet_pleg_discard_events`
//! (always 0), `kubelet_running_pods`, `kubelet_running_containers{container_state}`; and of hints
//! `kubelet_evented_pleg_connection_success_count`, `kubelet_evented_pleg_connection_error_count`,
//! `kubelet_evented_pleg_connection_latency_seconds` (from asking for the stream to having it: some servers
//! answer with the first event only), and, for want of one of the kubelet's,
//! `kubelet_evented_pleg_missed_changes_total`.
//!
//! [`RuntimeReader`]: kubelet_core::RuntimeReader
//! [`pod_hints`]: kubelet_core::RuntimeReader::pod_hints
//! [`PodCache`]: kubelet_core::PodCache
#![cfg_attr(docsrs, feature(doc_cfg))]

mod engine;
mod error;
mod evented;
mod generic;
mod inspection;
mod inspector;
mod listed_pods;
mod metrics;
mod pleg;
mod pod_lists;
mod record;
mod relist;
mod replaced;
mod settings;
mod shared;
mod statuses;
mod transition;

pub use error::Error;
pub use evented::{EventedPleg, Hints};
pub use generic::{GenericPleg, NoHints};
pub use inspector::{HangingCall, Inspection, Inspector, Mode};
pub use pleg::Pleg;
