//! What follows from a change: the status of the pod is read and stored, then the events are published.

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::runtime::{PodStatus, RuntimePod, SandboxState, SandboxStatus};
use kubelet_core::{PodCache, PodLifecycleEvent, PodLifecycleEventType, PodLifecycleEvents, PodUid};
use rustc_hash::FxHashSet;
use tokio::time::Instant;

use crate::inspection::{Inspected, Inspections, Start};
use crate::record::Record;
use crate::shared::Shared;

/// Memory for so many changes is kept. At the start all pods change at once, later only a few.
const KEPT_ROOM: usize = 16;

/// Reads the statuses of pods that changed; the only writer of the cache.
///
/// The cache is written first, because a subscriber that gets an event reads the cache. Events are collected, and
/// [published](Self::publish) together.
pub(crate) struct Statuses {
    cache: PodCache,
    shared: Arc<Shared>,
    pub(crate) inspections: Inspections,
    /// Pods whose inspection is under way or failed: the relist looks at them although nothing changed.
    unsettled: FxHashSet<PodUid>,
    /// The events that are not published yet.
    changed: Vec<(PodUid, PodLifecycleEvents)>,
}

impl Statuses {
    pub(crate) fn new(cache: PodCache, shared: Arc<Shared>, inspections: Inspections) -> Self {
        Self {
            cache,
            shared,
            inspections,
            unsettled: FxHashSet::default(),
            changed: Vec::new(),
        }
    }

    /// The pods whose inspection is under way or failed.
    pub(crate) fn unsettled(&self) -> &FxHashSet<PodUid> {
        &self.unsettled
    }

    /// The pods that somebody waits for.
    pub(crate) fn awaited(&self) -> Vec<PodUid> {
        self.cache.awaited()
    }

    /// Starts the inspection of a pod if it needs one; returns whether one is under way. `listed_at` is when the last list
    /// of all pods began.
    pub(crate) fn see_to(
        &mut self,
        pod: &Arc<RuntimePod>,
        record: &mut Record,
        listed_at: Option<Instant>,
    ) -> bool {
        let uid = &pod.uid;
        if record.needs_inspection() {
            let listed_at = listed_at.max(Some(record.listed_at)).unwrap_or(record.listed_at);
            record.reinspect = false;
            match self.inspections.start(pod, listed_at) {
                Start::Ended(status) => {
                    if !self.unsettled.is_empty() {
                        self.unsettled.remove(uid);
                    }
                    let status = self.with_ips(uid, record.last_status.take(), status);
                    let events = record.inspected_as_listed(pod);
                    self.collect(pod, events, Some(&status));
                    self.cache.set(uid, Ok(status), listed_at);
                    return false;
                }
                Start::UnderWay(abort) => record.inspection = Some(abort),
            }
        }
        if record.is_settled() {
            self.unsettled.remove(uid);
        } else if !self.unsettled.contains(uid) {
            self.unsettled.insert(uid.clone());
        }
        record.inspection.is_some()
    }

    /// Processes the result of an inspection.
    pub(crate) fn inspected(
        &mut self,
        listed: &Arc<RuntimePod>,
        record: &mut Record,
        inspected: Inspected,
        last_list: Option<Instant>,
        relist_period: Duration,
    ) {
        let Inspected {
            pod,
            listed_at,
            status,
        } = inspected;
        // Until then, lists have shown the pod without a change.
        let newest = last_list.max(Some(record.listed_at)).unwrap_or(record.listed_at);
        match status {
            Ok(status) => {
                let status = self.with_ips(&pod.uid, record.last_status.take(), status);
                let events = record.inspected(pod.clone(), listed);
                self.collect(&pod, events, Some(&status));
                self.cache.set(&pod.uid, Ok(status), listed_at);
                if !self.see_to(listed, record, last_list) && newest > listed_at {
                    self.observed(&pod.uid, newest);
                }
            }
            Err(error) => {
                tracing::error!(pod = %pod.key, uid = %pod.uid, %error, "failed to read the status of the pod");
                record.failed(Instant::now(), relist_period);
                if record.last_status.is_none() {
                    record.last_status = self.cache.get(&pod.uid).ok();
                }
                // The error is as new as the last list, however long the call took.
                self.cache.set(&pod.uid, Err(error), newest);
            }
        }
    }

    /// States that what is stored of the pod was still true at that time.
    pub(crate) fn observed(&self, uid: &PodUid, time: Instant) {
        self.cache.set_observed_time(uid, time);
    }

    /// States that all that is stored was still true at that time, except for pods under inspection: those who wait for
    /// such a pod wait for the inspection.
    pub(crate) fn all_observed(&self, time: Instant, is_inspected: impl Fn(&PodUid) -> bool) {
        let inspected = self.unsettled.iter().filter(|uid| is_inspected(uid));
        self.cache.update_time_except(time, inspected.cloned());
    }

    /// The runtime does not have the pod any more: removes it from the cache.
    pub(crate) fn gone(&mut self, pod: &RuntimePod, record: Record) {
        self.unsettled.remove(&pod.uid);
        self.cache.delete(&pod.uid);
        self.collect(pod, record.gone(pod), None);
    }

    /// Publishes the events since the last time.
    pub(crate) fn publish(&mut self) {
        self.shared.publish(&mut self.changed);
        self.changed.shrink_to(KEPT_ROOM);
    }

    /// A pod whose sandboxes all ended has no IPs any more, but the API expects those that it had
    /// (`GenericPLEG.getPodIPs`).
    fn with_ips(
        &self,
        uid: &PodUid,
        last: Option<Arc<PodStatus>>,
        mut status: Arc<PodStatus>,
    ) -> Arc<PodStatus> {
        let is_ready = |sandbox: &SandboxStatus| sandbox.state == SandboxState::Ready;
        if status.ips.is_empty()
            && !status.sandboxes.iter().any(is_ready)
            && let Some(last) = last.or_else(|| self.cache.get(uid).ok())
            && !last.ips.is_empty()
        {
            Arc::make_mut(&mut status).ips.clone_from(&last.ips);
        }
        status
    }

    /// Collects the events of a pod, to be published once the cache is written.
    fn collect(&mut self, pod: &RuntimePod, mut events: PodLifecycleEvents, status: Option<&PodStatus>) {
        if tracing::enabled!(tracing::Level::INFO) {
            for event in &events {
                trace_event(pod, event, status);
            }
        }
        // The kubelet does not publish these either: a subscriber cannot act on an unknown state.
        events.retain(|event| event.event_type != PodLifecycleEventType::ContainerChanged);
        if !events.is_empty() {
            self.changed.push((pod.uid.clone(), events));
        }
    }
}

fn trace_event(pod: &RuntimePod, event: &PodLifecycleEvent, status: Option<&PodStatus>) {
    let RuntimePod { key: pod, uid, .. } = pod;
    let PodLifecycleEvent {
        event_type,
        container,
    } = event;
    let container = container.as_ref().map(tracing::field::display);
    tracing::debug!(%pod, %uid, container, event = ?event_type, "pod lifecycle event");
    let ended = status
        .filter(|_| *event_type == PodLifecycleEventType::ContainerDied)
        .and_then(|status| {
            let mut containers = status.containers.iter();
            containers.find(|container| Some(&container.id) == event.container.as_ref())
        });
    if let Some(ended) = ended {
        tracing::info!(%pod, %uid, container = %ended.id, exit_code = ended.exit_code, "container finished");
    }
}
