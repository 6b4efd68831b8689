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
//! | [`EventRecorder`]                           | [`Kubelet`]: all of it, assembled                 |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

pub mod annotations;
pub mod clock;
mod config_objects;
mod container_id;
mod error;
mod event;
pub mod jitter;
mod kubelet;
pub mod labels;
mod paths;
mod pleg;
mod pod;
mod pod_cache;
mod pod_manager;
mod pod_source;
mod pod_syncer;
mod pod_workers;
mod probe;
mod qos;
pub mod quantity;
pub mod runtime;
mod runtime_state;
mod start_failures;
mod status;
mod sync_loop;
mod sync_pod;
mod volume;

pub use clock::Clock;
pub use config_objects::{ConfigObjects, NoConfigObjects};
pub use container_id::{ContainerId, ParseContainerIdError};
pub use error::{Error, Result};
pub use event::{Event, EventRecorder, EventType, LogEvents};
pub use jitter::Jitter;
pub use kubelet::{Kubelet, KubeletBuilder, KubeletHandle};
pub use paths::RootDir;
pub use pleg::{
    PlegEvents, PlegHandle, PlegPublisher, PodLifecycleEvent, PodLifecycleEventGenerator,
    PodLifecycleEventType,
};
pub use pod::{PodExt, PodKey, PodUid, QosClass};
pub use pod_cache::PodCache;
pub use pod_manager::PodManager;
pub use pod_source::{
    PodOperation, PodSource, PodUpdate, PodUpdates, SourceUpdate, SourcesReady, StreamSource,
};
pub use pod_syncer::{PodStatusFn, PodSyncer, SyncOutcome, SyncPodType};
pub use pod_workers::{
    KillPod, PodWorkerState, PodWorkerSync, PodWorkers, PodWorkersConfig, PodWorkersHandle, UpdatePod,
};
pub use probe::{NoProbes, ProbeResult, ProbeResults};
pub use qos::{compute_qos_class, qos_class};
pub use runtime::{PodStateProvider, Runtime, RuntimeReader};
pub use runtime_state::RuntimeState;
pub use start_failures::StartFailures;
pub use status::{Eviction, PodStatusInput, PodStatusManager, PodStatusReporter, SinkPod, StatusSink};
pub use sync_loop::SyncLoop;
pub use sync_pod::RuntimePodSyncer;
pub use volume::{NoVolumes, VolumeManager};
