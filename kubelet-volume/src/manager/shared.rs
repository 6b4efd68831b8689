//! What the engine, its handles and its operations share.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{Clock, Disk, Event, EventRecorder, EventType, Jitter, NodeGetter, RootDir, VolumeLeases};
use parking_lot::Mutex;
use tokio::sync::{Notify, SetOnce};

use super::resolve::Resolver;
use super::state::{Refresh, State};
use super::usages::Usages;
use crate::{Error, Mounter, VolumeObjects};

pub(crate) struct Shared {
    pub(crate) resolver: Resolver,
    pub(crate) objects: Arc<dyn VolumeObjects>,
    pub(crate) recorder: Arc<dyn EventRecorder>,
    pub(crate) node: Arc<dyn NodeGetter>,
    pub(crate) node_name: String,
    pub(crate) root_dir: RootDir,
    pub(crate) clock: Clock,
    pub(crate) disk: Disk,
    pub(crate) jitter: Jitter,
    pub(crate) mounter: Option<Arc<dyn Mounter>>,
    pub(crate) controller_attaches: bool,
    pub(crate) state: Mutex<State>,
    /// Wakes the engine: something is dirty.
    pub(crate) wake: Notify,
    /// Whether what an earlier agent left is known.
    pub(crate) is_read: SetOnce<()>,
    /// Which sources are not observed. The engine changes it when a subscription ends.
    pub(crate) refresh: Mutex<Refresh>,
    pub(crate) usages: Usages,
    pub(crate) leases: VolumeLeases,
}

impl Shared {
    /// Emits an event with the kubelet's text.
    pub(crate) fn warn(&self, pod: &Pod, reason: &str, message: &str) {
        self.recorder
            .record(Event::about(pod, EventType::Warning, reason, message));
    }

    pub(crate) fn mounter(&self) -> crate::Result<&dyn Mounter> {
        let mounter = self.mounter.as_deref();
        mounter.ok_or_else(|| Error::failed("this agent has no mounter for block devices"))
    }

    pub(crate) fn inform(&self, pod: &Pod, reason: &str, message: &str) {
        self.recorder
            .record(Event::about(pod, EventType::Normal, reason, message));
    }
}

/// The message of an operation that failed, as in the kubelet's events (`GenerateError`).
pub(crate) fn message_of(what: &str, volume: &str, why: &str) -> String {
    format!("{what} for volume {volume:?} : {why}")
}
