//! The bottom of the house: the words of the field, the traits between the parts of a kubelet, and the
//! pod lifecycle engine that drives them. No gRPC, no HTTP, no API client.
//!
//! Everything a node agent is made of meets here:
//!
//! | you bring (a trait)                         | this crate brings (an engine)                     |
//! |---------------------------------------------|---------------------------------------------------|
//! | [`PodSource`], merged as [`PodUpdates`]     | [`PodManager`]: the desired pods                  |
//! | [`Runtime`]: list, status, sync, kill       | [`PodWorkers`]: one state machine per pod         |
//! | [`PodLifecycleEventGenerator`]              | [`PodCache`]: the newest status of each pod       |
//! | [`PodStatusManager`], [`StatusSink`]        | [`SyncLoop`]: who wakes whom                      |
//! | [`PodAdmitHandler`]: may it run here?       | [`AllocationManager`]: who gets what, and resizes |
//! | [`Prober`]: one attempt at a container      | [`ProbeManager`]: liveness, readiness, startup    |
//! | [`EventRecorder`], [`VolumeManager`] …      | [`Kubelet`]: all of it, assembled                 |
//!
//! Implementations of the traits live in sister crates: `kubelet-config` (sources), `kubelet-pleg`,
//! `kubelet-status`, `kubelet-cri` (runtimes at three heights). Take those you like.
//!
//! # Example: pod workers, and nothing else
//!
//! ```toml
//! [dependencies]
//! async-trait = "0.1"
//! k8s-openapi = { version = "0.29", features = ["v1_36"] } # the program chooses the version of the API
//! kubelet-core = "0.1"
//! tokio = { version = "1", features = ["macros", "rt"] }
//! tokio-util = "0.7"
//! ```
//!
//! The pod workers are the heart of a kubelet: they see to it that each pod is synced by one task at a time,
//! that only the newest wish counts, and that a pod that is to end ends, in order, exactly once.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use async_trait::async_trait;
//! use k8s_openapi::api::core::v1::Pod;
//! use kubelet_core::runtime::{PodStatus, RuntimePod};
//! use kubelet_core::{
//!     Jitter, PodCache, PodExt, PodStatusFn, PodSyncer, PodWorkers, Result, SyncOutcome, SyncPodType,
//!     UpdatePod,
//! };
//! use tokio::sync::Notify;
//! use tokio::time::Instant;
//! use tokio_util::sync::CancellationToken;
//!
//! /// What to do with a pod: here, to say so.
//! #[derive(Default)]
//! struct Say {
//!     synced: Notify,
//! }
//!
//! #[async_trait]
//! impl PodSyncer for Say {
//!     async fn sync_pod(
//!         &self, update: SyncPodType, pod: &Arc<Pod>, _: Option<&Arc<Pod>>, _: &Arc<PodStatus>,
//!     ) -> Result<SyncOutcome> {
//!         println!("{update:?} {}", pod.key());
//!         self.synced.notify_one();
//!         Ok(SyncOutcome::default())
//!     }
//!     async fn sync_terminating_pod(
//!         &self, pod: &Arc<Pod>, _: &Arc<PodStatus>, grace: Option<Duration>, _: Option<&PodStatusFn>,
//!     ) -> Result<()> {
//!         println!("stop {} within {grace:?}", pod.key());
//!         Ok(())
//!     }
//!     async fn sync_terminating_runtime_pod(&self, running: &Arc<RuntimePod>) -> Result<()> {
//!         println!("stop {}, of which nobody knows", running.key);
//!         Ok(())
//!     }
//!     async fn sync_terminated_pod(&self, pod: &Arc<Pod>, _: &Arc<PodStatus>) -> Result<()> {
//!         println!("clean up after {}", pod.key());
//!         Ok(())
//!     }
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() {
//!     let cache = PodCache::new();
//!     // A PLEG does this: it looks at the runtime, again and again.
//!     let looked = cache.clone();
//!     let pleg = tokio::spawn(async move {
//!         loop {
//!             looked.update_time(Instant::now());
//!             tokio::time::sleep(Duration::from_millis(100)).await;
//!         }
//!     });
//!     let say = Arc::new(Say::default());
//!     let workers = PodWorkers::new(say.clone(), cache.clone(), Default::default(), Jitter::from_seed(1));
//!     let (handle, shutdown) = (workers.handle(), CancellationToken::new());
//!     let running = tokio::spawn(workers.run(shutdown.clone()));
//!
//!     let mut pod = Pod::default();
//!     pod.metadata.name = Some("web".into());
//!     pod.metadata.uid = Some("1234".into());
//!     let pod = Arc::new(pod);
//!     handle.update_pod(UpdatePod::new(SyncPodType::Create, pod.clone()));
//!     say.synced.notified().await;
//!     handle.end_pods(vec![pod.clone()], None).await;
//!     assert!(handle.should_pod_be_finished(&pod.uid()));
//!
//!     shutdown.cancel();
//!     pleg.abort();
//!     running.await.unwrap();
//! }
//! ```
//!
//! # Time, randomness, tasks
//!
//! Every delay is `tokio::time`'s, so that under `tokio::time::pause` a day takes moments; wall-clock time comes
//! from a [`Clock`], randomness from a [`Jitter`]. There is no global state: two hundred agents fit into one
//! process. No task is spawned that its engine's `run` does not join.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

mod active_deadline;
pub mod admission;
mod allocation;
pub mod annotations;
mod changes;
mod checkpoint;
pub mod clock;
mod config_objects;
mod container_deletor;
mod container_id;
mod deadline;
mod dirty_pods;
mod disk;
mod error;
mod event;
mod explain;
pub mod image_name;
pub mod jitter;
mod kubelet;
pub mod labels;
mod mirror_pods;
mod node_getter;
mod node_runtime;
mod packed_json;
mod packed_status;
mod paths;
mod pleg;
mod pod;
mod pod_cache;
mod pod_container_manager;
mod pod_dirs;
mod pod_manager;
mod pod_source;
mod pod_syncer;
mod pod_watch;
mod pod_workers;
mod probe;
mod qos;
pub mod quantity;
pub mod restart_rules;
pub mod runtime;
mod runtime_classes;
mod runtime_state;
mod services;
mod start_failures;
mod status;
mod strategic_merge_patch;
mod sync_loop;
mod sync_pod;
mod volume;

pub use admission::{Admission, PodAdmitAttributes, PodAdmitHandler, Rejection};
pub use allocation::{AllocationManager, AllocationState, InPlaceResize, RetryTrigger};
pub use checkpoint::Checkpoints;
pub use clock::Clock;
pub use config_objects::{ConfigObjects, NoConfigObjects};
pub use container_id::{ContainerId, ParseContainerIdError};
pub use disk::Disk;
pub use error::{Error, Result};
pub use event::{Event, EventRecorder, EventType, LogEvents, NodeEventRecorder};
pub use explain::Step;
pub use jitter::Jitter;
pub use kubelet::{Kubelet, KubeletBuilder, KubeletHandle};
pub use mirror_pods::{MirrorClient, MirrorPods, is_mirror_pod_of, mirror_pod_of};
pub use node_getter::{FixedNode, NodeGetter};
pub use node_runtime::{NodeRuntime, RuntimeFeatures, RuntimeHandler, RuntimeImage};
pub use packed_status::PackedStatus;
pub use paths::RootDir;
pub use pleg::{
    PlegEvents, PlegHandle, PlegPublisher, PodLifecycleEvent, PodLifecycleEventGenerator,
    PodLifecycleEventType, PodLifecycleEvents,
};
pub use pod::{PodExt, PodKey, PodUid, QosClass};
pub use pod_cache::PodCache;
pub use pod_container_manager::{NoPodContainers, PodContainerManager};
pub use pod_manager::PodManager;
pub use pod_source::{
    PodOperation, PodSource, PodUpdate, PodUpdates, SourceUpdate, SourcesReady, StreamSource,
};
pub use pod_syncer::{PodStatusFn, PodSyncer, SyncOutcome, SyncPodType};
pub use pod_watch::PodWatch;
pub use pod_workers::{
    KillPod, PodWorkerState, PodWorkerSync, PodWorkers, PodWorkersConfig, PodWorkersHandle, UpdatePod,
};
pub use probe::{
    NoProbes, ProbeKind, ProbeManager, ProbeManagerConfig, ProbeManagerHandle, ProbeOutcome, ProbeResult,
    ProbeResultCache, ProbeResults, ProbeTarget, ProbeUpdates, Prober,
};
pub use qos::{compute_qos_class, qos_class};
pub use runtime::{PodStateProvider, Runtime, RuntimeReader};
pub use runtime_classes::RuntimeClasses;
pub use runtime_state::RuntimeState;
pub use services::{NoServices, Services};
pub use start_failures::StartFailures;
pub use status::{Eviction, PodStatusInput, PodStatusManager, PodStatusReporter, SinkPod, StatusSink};
pub use strategic_merge_patch::strategic_merge_patch;
pub use sync_loop::{SyncLoop, SyncLoopMonitor};
pub use sync_pod::RuntimePodSyncer;
pub use volume::{LocalVolumes, NoServiceAccountTokens, NoVolumes, ServiceAccountTokens, VolumeManager};
