//! The types and traits of a kubelet, and the pod lifecycle engine. The other crates of the project build on this one,
//! except `kubelet-plugins`, which stands alone. It depends on no gRPC, HTTP or API client.
//!
//! You implement traits for the parts that differ between node agents; this crate contains the engines that use them:
//!
//! | trait that you implement                    | engine in this crate                              |
//! |---------------------------------------------|---------------------------------------------------|
//! | [`PodSource`], merged as [`PodUpdates`]     | [`PodManager`]: the desired pods                  |
//! | [`Runtime`]: list, status, sync, kill       | [`PodWorkers`]: one state machine per pod         |
//! | [`PodLifecycleEventGenerator`]              | [`PodCache`]: the latest status of each pod       |
//! | [`PodStatusManager`], [`StatusSink`]        | [`SyncLoop`]: passes changes to the pod workers   |
//! | [`PodAdmitHandler`]: may a pod run here?    | [`AllocationManager`]: admission and resizes      |
//! | [`Prober`]: one probe of a container        | [`ProbeManager`]: liveness, readiness, startup    |
//! | [`EventRecorder`], [`VolumeManager`] …      | [`Kubelet`]: all engines, assembled               |
//!
//! Implementations of the traits are in other crates: `kubelet-config` (sources), `kubelet-pleg`, `kubelet-status` and
//! `kubelet-kuberuntime` (a runtime on CRI). Each is optional.
//!
//! # Example: only the pod workers
//!
//! ```toml
//! [dependencies]
//! async-trait = "0.1"
//! k8s-openapi = { version = "0.29", features = ["v1_36"] } # your program selects the API version
//! kubelet-core = "0.2"
//! tokio = { version = "1", features = ["macros", "rt"] }
//! tokio-util = "0.7"
//! ```
//!
//! The pod workers are the core of a kubelet. They sync each pod in one task at a time, with its newest update. They
//! terminate each pod once: first its containers stop, then its resources are released.
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
//! /// Prints what to do with a pod.
//! #[derive(Default)]
//! struct Print {
//!     synced: Notify,
//! }
//!
//! #[async_trait]
//! impl PodSyncer for Print {
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
//!         println!("stop {}, which no source lists", running.key);
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
//!     // In a node agent, the PLEG updates the cache.
//!     let observed = cache.clone();
//!     let pleg = tokio::spawn(async move {
//!         loop {
//!             observed.update_time(Instant::now());
//!             tokio::time::sleep(Duration::from_millis(100)).await;
//!         }
//!     });
//!     let print = Arc::new(Print::default());
//!     let workers = PodWorkers::new(print.clone(), cache.clone(), Default::default(), Jitter::from_seed(1));
//!     let (handle, shutdown) = (workers.handle(), CancellationToken::new());
//!     let running = tokio::spawn(workers.run(shutdown.clone()));
//!
//!     let mut pod = Pod::default();
//!     pod.metadata.name = Some("web".into());
//!     pod.metadata.uid = Some("1234".into());
//!     let pod = Arc::new(pod);
//!     handle.update_pod(UpdatePod::new(SyncPodType::Create, pod.clone()));
//!     print.synced.notified().await;
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
//! All delays use `tokio::time`, so a test can simulate a day in moments with `tokio::time::pause`. Wall-clock time comes
//! from a [`Clock`], randomness from a [`Jitter`]. There is no global state: one process can run hundreds of agents. Every
//! spawned task is joined before the `run` of its engine returns.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

mod active_deadline;
pub mod admission;
mod allocation;
pub mod annotations;
mod calls;
pub mod cgroups;
mod changes;
mod checkpoint;
pub mod clock;
mod cluster_trust_bundles;
mod config_objects;
mod container_deletor;
mod container_id;
mod container_resources;
mod deadline;
mod debug;
mod dirty_pods;
mod disk;
mod dynamic_resources;
mod error;
mod event;
mod explain;
mod field_path;
pub mod files;
mod fnv32a;
mod go_duration;
mod health;
pub mod image_name;
pub mod jitter;
mod kubelet;
pub mod labels;
mod mirror_pods;
mod node_getter;
mod node_runtime;
mod paths;
mod pleg;
mod pod;
mod pod_cache;
mod pod_certificates;
mod pod_container_manager;
mod pod_dirs;
mod pod_manager;
mod pod_resources;
mod pod_source;
mod pod_syncer;
mod pod_watch;
mod pod_workers;
mod pressure;
mod probe;
mod qos;
pub mod quantity;
mod rate_limit;
mod requirements;
mod resource_health;
pub mod restart_rules;
pub mod runtime;
mod runtime_classes;
mod runtime_state;
mod service_account_tokens;
mod service_accounts;
mod services;
mod start_failures;
pub mod stats;
mod status;
mod strategic_merge_patch;
mod sub_paths;
mod sync_loop;
mod sync_pod;
mod volume_leases;
mod volume_manager;

pub use admission::{Admission, PodAdmitAttributes, PodAdmitHandler, Rejection};
pub use allocation::{AllocationManager, AllocationState, InPlaceResize, RetryTrigger};
pub use calls::Calls;
pub use checkpoint::Checkpoints;
pub use clock::Clock;
pub use cluster_trust_bundles::{ClusterTrustBundles, NoClusterTrustBundles};
pub use config_objects::{
    ConfigObjectChanges, ConfigObjectKind, ConfigObjectRef, ConfigObjects, NoConfigObjects,
};
pub use container_id::{ContainerId, ParseContainerIdError};
pub use container_resources::{
    AddedDevice, AddedMount, ContainerAdditions, ContainerResources, NoContainerResources,
};
pub use disk::Disk;
pub use dynamic_resources::{DynamicResources, DynamicResourcesError};
pub use error::{Error, Result};
pub use event::{Event, EventRecorder, EventType, LogEvents, NodeEventRecorder};
pub use explain::Step;
pub use field_path::FieldPath;
pub use fnv32a::fnv32a;
pub use go_duration::{GoDuration, ParseGoDurationError};
pub use health::HealthChecks;
pub use jitter::Jitter;
pub use kubelet::{Kubelet, KubeletBuilder, KubeletHandle};
pub use mirror_pods::{MirrorClient, MirrorPods, is_mirror_pod_of, mirror_pod_of};
pub use node_getter::{FixedNode, NodeGetter};
pub use node_runtime::{NodeRuntime, RuntimeFeatures, RuntimeHandler, RuntimeImage};
pub use paths::RootDir;
pub use pleg::{
    PlegEvents, PlegHandle, PlegPublisher, PodLifecycleEvent, PodLifecycleEventGenerator,
    PodLifecycleEventType, PodLifecycleEvents,
};
pub use pod::{PodExt, PodKey, PodUid, QosClass};
pub use pod_cache::PodCache;
pub use pod_certificates::{PodCertificates, PodCredential};
pub use pod_container_manager::{NoPodContainers, PodContainerManager};
pub use pod_manager::PodManager;
pub use pod_resources::{has_pod_level_resources, needed_at_once, pod_limit, pod_request};
pub use pod_source::{
    PodOperation, PodSource, PodUpdate, PodUpdates, SourceUpdate, SourcesReady, StreamSource,
};
pub use pod_syncer::{PodStatusFn, PodSyncer, SyncOutcome, SyncPodType};
pub use pod_watch::PodWatch;
pub use pod_workers::{
    KillPod, PodWorkerState, PodWorkerSync, PodWorkers, PodWorkersConfig, PodWorkersHandle, UpdatePod,
};
pub use pressure::{NoPressure, Pressure};
pub use probe::{
    NoProbes, ProbeKind, ProbeManager, ProbeManagerConfig, ProbeManagerHandle, ProbeOutcome, ProbeResult,
    ProbeResultCache, ProbeResults, ProbeTarget, ProbeUpdates, Prober,
};
pub use qos::{compute_qos_class, qos_class};
pub use rate_limit::{RateLimit, TokenBucket};
pub use resource_health::{ResourceHealth, ResourceUpdates};
pub use runtime::{PodStateProvider, Runtime, RuntimeReader};
pub use runtime_classes::RuntimeClasses;
pub use runtime_state::RuntimeState;
pub use service_account_tokens::{NoServiceAccountTokens, ServiceAccountToken, ServiceAccountTokens};
pub use service_accounts::{NoServiceAccounts, ServiceAccounts};
pub use services::{NoServices, Services};
pub use start_failures::StartFailures;
pub use stats::{StatsProvider, SummaryProvider};
pub use status::{Eviction, PodStatusInput, PodStatusManager, PodStatusReporter, SinkPod, StatusSink};
pub use strategic_merge_patch::strategic_merge_patch;
pub use sub_paths::clean_volume_sub_paths;
pub use sync_loop::{SyncLoop, SyncLoopMonitor};
pub use sync_pod::RuntimePodSyncer;
pub use volume_leases::{LockedVolume, VolumeLease, VolumeLeases};
pub use volume_manager::{
    MountedVolume, NoVolumes, NoVolumesInUse, VolumeManager, VolumeUsage, VolumeUsages, VolumesInUse,
};
