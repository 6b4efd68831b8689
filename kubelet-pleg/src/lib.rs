//! The kubelet's pod lifecycle event generator (*PLEG*), for any container runtime. It watches the pods of a runtime,
//! keeps a cache of the newest status of each pod, and publishes an event for each change.
//!
//! A runtime is anything that can list its pods and read the status of one ([`RuntimeReader`]). It needs no CRI, no gRPC
//! and no cluster. This example watches a runtime in memory:
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
//! * **No change is lost.** There is no queue that can overflow. A subscription is a set of pods, each with its changes
//!   in order. There may be any number of subscribers, and a slow one does not delay the others.
//! * **The cache is written first.** When an event is published, the [`PodCache`] has the status that belongs to it, or a
//!   newer one. The time of that status is the time before the list, so the status is at least that new.
//! * **Each container that was listed and then ended gets one `ContainerDied` event**, even if the status of its pod could
//!   not be read at that time, or if the container was removed before a list showed that it ended.
//!
//! What a subscriber may not rely on: events are *level-triggered*. If something changes and changes back between two
//! lists, or before a slow subscriber takes its events, there may be fewer events than changes. A container that starts
//! and is removed between two lists makes no event. Events are in order within one pod, not between pods. An event is a
//! reason to read the cache; the cache has the current state.
//!
//! # Which one to use
//!
//! [`GenericPleg`] lists all pods once a second and works with any runtime. [`EventedPleg`] does the same at first. Once
//! the runtime's hints ([`pod_hints`]) have proven to be complete, it looks at a pod as soon as a hint arrives, and lists
//! all pods less and less often. Hints are never data, so it sees the same as a `GenericPleg`, and you may use it with any
//! runtime. An [`Inspector`] reports the state of either one in words.
//!
//! # What a list costs
//!
//! The next list mostly has the same pods in the same order. Each pod is compared with the one that stood at its place:
//! its UID and the ids and states of its containers and sandboxes, and nothing else. A pod that is the same `Arc` is not
//! looked at. [`RuntimeReader::pods`] says what each costs.
//!
//! [`RuntimeReader::pods`]: kubelet_core::RuntimeReader::pods
//!
//! # Metrics
//!
//! They have the kubelet's names, and go through the [`metrics`](https://docs.rs/metrics) facade:
//! `kubelet_pleg_relist_duration_seconds`, `kubelet_pleg_relist_interval_seconds`,
//! `kubelet_pleg_pod_relist_duration_seconds`, `kubelet_pleg_last_seen_seconds`, `kubelet_pleg_discard_events`
//! (always 0), `kubelet_running_pods`, `kubelet_running_containers{container_state}`. For hints:
//! `kubelet_evented_pleg_connection_success_count`, `kubelet_evented_pleg_connection_error_count`,
//! `kubelet_evented_pleg_connection_latency_seconds` (the time to open the stream; some servers answer only with the
//! first event), and `kubelet_evented_pleg_missed_changes_total`, which the kubelet does not have.
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
