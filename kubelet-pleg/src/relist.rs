//! The relist: compares what was listed with what was known, and does what follows.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use kubelet_core::runtime::RuntimePod;
use kubelet_core::{Error, PlegHandle, PodCache, PodUid, Result, RuntimeReader};
use tokio::time::{Instant, timeout};

use crate::inspection::{Inspected, Inspections};
use crate::inspector::HangingCall;
use crate::listed_pods::{Found, ListedPods};
use crate::metrics::{self, Running};
use crate::pod_lists::{PodListed, PodLists};
use crate::record::Record;
use crate::replaced::Replaced;
use crate::settings::Settings;
use crate::shared::Owner;
use crate::statuses::Statuses;
use crate::transition;

/// A list of the whole runtime, answered or failed.
pub(crate) struct Listed {
    number: u64,
    started: Instant,
    pods: Result<Vec<Arc<RuntimePod>>>,
}

/// All that a running PLEG knows; its only writer.
///
/// Either one list of all pods is under way, or lists of single pods, never both. So an answer is always newer than what
/// is known. Inspections go on meanwhile.
pub(crate) struct Relist {
    runtime: Arc<dyn RuntimeReader>,
    settings: Settings,
    owner: Owner,
    pods: ListedPods,
    pub(crate) statuses: Statuses,
    /// The pods of the list before the last, until they are freed.
    pub(crate) replaced: Replaced,
    /// Number and start of the last list that succeeded.
    list: u64,
    listed_at: Option<Instant>,
    pub(crate) pod_lists: PodLists,
    /// The pods that changed in the last list, if somebody wants to know.
    found: Option<Vec<PodUid>>,
    running: Running,
}

impl Relist {
    pub(crate) fn new(
        runtime: Arc<dyn RuntimeReader>,
        cache: PodCache,
        settings: Settings,
        owner: Owner,
    ) -> Self {
        let inspections = Inspections::new(
            runtime.clone(),
            settings.max_concurrent_inspections,
            settings.relist_period,
            settings.inspection_deadline,
        );
        Self {
            statuses: Statuses::new(cache, owner.0.clone(), inspections),
            pod_lists: PodLists::new(
                runtime.clone(),
                owner.0.clone(),
                settings.max_concurrent_inspections,
                settings.relist_period,
                settings.inspection_deadline,
            ),
            runtime,
            settings,
            owner,
            pods: ListedPods::default(),
            replaced: Replaced::default(),
            list: 0,
            listed_at: None,
            found: None,
            running: Running::default(),
        }
    }

    /// Starts a list of all pods. It replaces the lists of single pods that are under way: they are cancelled, so that none
    /// of them delays it.
    pub(crate) fn start_list(&mut self) -> BoxFuture<'static, Listed> {
        let started = Instant::now();
        if let Some(last) = self.listed_at {
            metrics::relist_interval(started - last);
        }
        let number = self.owner.0.list_started();
        self.pod_lists.give_way(number);
        let runtime = self.runtime.clone();
        // By then the PLEG is not healthy: cancel the call, and try again.
        let deadline = self.settings.relist_threshold;
        async move {
            let pods = timeout(deadline, runtime.pods(true))
                .await
                .unwrap_or(Err(Error::Timeout {
                    what: "GetPods",
                    pod: None,
                    after: deadline,
                }));
            Listed {
                number,
                started,
                pods,
            }
        }
        .boxed()
    }

    /// Processes a list. One that failed changes only the health. Returns whether it succeeded.
    pub(crate) fn listed(&mut self, listed: Listed) -> bool {
        let succeeded = listed.pods.is_ok();
        match listed.pods {
            Ok(pods) => {
                self.list = listed.number;
                self.listed_at = Some(listed.started);
                self.owner.0.list_succeeded(listed.started);
                metrics::last_seen(self.settings.clock.now().as_second());
                self.take_in(pods, listed.started);
            }
            Err(error) => {
                tracing::error!(%error, "failed to list the pods of the runtime");
                self.owner.0.list_failed(error);
            }
        }
        metrics::relist_duration(listed.started.elapsed());
        succeeded
    }

    /// From now on, keeps which pods changed in each list.
    pub(crate) fn keep_found(&mut self) {
        self.found = Some(Vec::new());
    }

    /// The pods that changed in the last list.
    pub(crate) fn found(&self) -> &[PodUid] {
        self.found.as_deref().unwrap_or_default()
    }

    /// Lists the pods that were requested one by one, as many at once as may be inspected at once. Only while no list of
    /// all pods is under way.
    pub(crate) fn start_pod_lists(&mut self) {
        self.pod_lists.start(self.list);
    }

    /// Processes the list of a single pod, and returns whether the pod changed. If the call failed, a list of all pods
    /// follows.
    pub(crate) fn pod_listed(&mut self, listed: PodListed) -> bool {
        let PodListed { uid, started, pod } = listed;
        self.pod_lists.ended(&uid);
        metrics::pod_relist_duration(started.elapsed());
        match pod {
            Ok(Some(pod)) if pod.uid == uid => {
                if self.owner.0.take_reinspect(&uid)
                    && let Some((_, record)) = self.pods.get_mut(&uid)
                {
                    record.reinspect = true;
                }
                let changed = self.take_in_pod(pod, started);
                if !self.see_to(&uid) {
                    self.statuses.observed(&uid, started);
                }
                self.statuses.publish();
                return changed;
            }
            Ok(None) => {
                let gone = self.pods.remove(&uid);
                let changed = gone.is_some();
                if let Some((pod, record)) = gone {
                    self.gone(&pod, record);
                }
                self.statuses.observed(&uid, started);
                self.statuses.publish();
                return changed;
            }
            Ok(Some(pod)) => {
                tracing::error!(%uid, listed = %pod.uid, "the runtime returned another pod than the one requested");
            }
            Err(error) => tracing::error!(%uid, %error, "failed to list a single pod"),
        }
        self.owner.0.ask_list();
        false
    }

    /// Processes the result of an inspection.
    pub(crate) fn inspected(&mut self, inspected: Inspected) {
        if let Some((pod, record)) = self.pods.get_mut(&inspected.pod.uid) {
            let period = self.settings.relist_period;
            self.statuses
                .inspected(pod, record, inspected, self.listed_at, period);
            self.statuses.publish();
        }
    }

    fn take_in(&mut self, pods: Vec<Arc<RuntimePod>>, started: Instant) {
        let mut see_to: Vec<PodUid> = self.statuses.unsettled().iter().cloned().collect();
        for uid in self.owner.0.take_reinspects() {
            if let Some((_, record)) = self.pods.get_mut(&uid) {
                record.reinspect = true;
                see_to.push(uid);
            }
        }
        if let Some(found) = &mut self.found {
            found.clear();
        }
        self.take_in_pods(pods, started);
        for uid in see_to {
            self.see_to(&uid);
        }
        // All else is known as of this list now.
        let pods = &self.pods;
        self.statuses.all_observed(started, |uid| {
            pods.record(uid).is_some_and(|record| record.inspection.is_some())
        });
        self.statuses.publish();
        self.running.publish();
    }

    /// Processes the pods of a list. While they come in the order of the last list, each is compared with the pod at its
    /// place.
    fn take_in_pods(&mut self, mut pods: Vec<Arc<RuntimePod>>, started: Instant) {
        let mut known = std::mem::take(&mut self.pods);
        let mut in_order = 0;
        let mut replaces = false;
        for ((listed, record), pod) in known.iter_mut().zip(&mut pods) {
            if !Arc::ptr_eq(listed, pod) {
                if listed.uid != pod.uid {
                    break;
                }
                // The newer one is always kept, so that nothing that makes no event need be compared.
                std::mem::swap(listed, pod);
                replaces = true;
                self.take_in_listed(pod, listed, record, started);
            }
            in_order += 1;
        }
        if in_order < pods.len() || in_order < known.len() {
            let rest = pods.split_off(in_order);
            pods.extend(self.take_in_rest(&mut known, in_order, rest, started));
            replaces = true;
        }
        self.pods = known;
        if replaces {
            self.replaced.put(pods);
        }
    }

    /// Processes the rest of a list, which from this place on is not in the order of the last one: each pod is looked up.
    /// Returns the pods that were replaced.
    fn take_in_rest(
        &mut self,
        known: &mut ListedPods,
        place: usize,
        pods: Vec<Arc<RuntimePod>>,
        started: Instant,
    ) -> Vec<Arc<RuntimePod>> {
        let mut replaced = Vec::with_capacity(pods.len());
        let mut taken = known.take_from(place, pods.len());
        for pod in pods {
            match known.find(&pod.uid, &mut taken) {
                Found::New => {
                    let record = self.take_in_new(&pod, started);
                    self.note_found(&pod.uid);
                    known.push(pod, record);
                }
                Found::Known(before, mut record) => {
                    self.take_in_listed(&before, &pod, &mut record, started);
                    known.put_back(pod, record);
                    replaced.push(before);
                }
                Found::Twice => {
                    tracing::error!(pod = %pod.key, uid = %pod.uid, "the runtime listed the pod twice");
                }
            }
        }
        for (pod, record) in known.gone(taken) {
            self.note_found(&pod.uid);
            self.gone(&pod, record);
        }
        replaced
    }

    /// Processes a pod of a list of all pods that was listed before.
    fn take_in_listed(
        &mut self,
        before: &Arc<RuntimePod>,
        pod: &Arc<RuntimePod>,
        record: &mut Record,
        started: Instant,
    ) {
        if !Arc::ptr_eq(before, pod)
            && !transition::have_same_states(before, pod)
            && self.take_in_again(before, pod, record, started)
        {
            self.note_found(&pod.uid);
        }
    }

    fn note_found(&mut self, uid: &PodUid) {
        if let Some(found) = &mut self.found {
            found.push(uid.clone());
        }
    }

    pub(crate) fn pods(&self) -> usize {
        self.pods.len()
    }

    pub(crate) fn unsettled_pods(&self) -> usize {
        self.statuses.unsettled().len()
    }

    pub(crate) fn listed_at(&self) -> Option<Instant> {
        self.listed_at
    }

    /// The calls under way that are about one pod.
    pub(crate) fn pod_calls(&self) -> impl Iterator<Item = HangingCall> {
        let lists = self.pod_lists.running.iter();
        let lists = lists.map(|list| ("GetPod", &list.uid, list.started));
        let readings = self.statuses.inspections.running.iter();
        let readings = readings.map(|reading| ("GetPodStatus", &reading.pod.uid, reading.since));
        lists.chain(readings).map(|(call, pod, since)| HangingCall {
            call,
            pod: Some(pod.clone()),
            elapsed: since.elapsed(),
        })
    }

    /// Whether there are pods to be read again.
    pub(crate) fn has_to_tend(&self) -> bool {
        !self.statuses.unsettled().is_empty() || self.owner.0.has_reinspects()
    }

    /// Requests lists of single pods that must not wait for the next list of all pods, while those are rare: pods to be
    /// inspected again, by request or because the last inspection failed, and pods that somebody waits for. Returns
    /// whether somebody waits.
    pub(crate) fn tend(&self) -> bool {
        let shared = &self.owner.0;
        shared.relist_reinspects();
        let failed = self.statuses.unsettled().iter().filter(|uid| {
            let record = self.pods.record(uid);
            record.is_some_and(|record| record.needs_inspection())
        });
        for uid in failed {
            shared.request_relist(uid);
        }
        let awaited = self.statuses.awaited();
        for uid in &awaited {
            shared.request_relist(uid);
        }
        !awaited.is_empty()
    }

    /// Processes a pod that was listed alone. Returns whether it changed.
    fn take_in_pod(&mut self, pod: Arc<RuntimePod>, started: Instant) -> bool {
        let mut known = std::mem::take(&mut self.pods);
        let changed = match known.get_mut(&pod.uid) {
            Some((listed, record)) => {
                record.listed_at = started;
                // If they are equal, the runtime may keep the older one too: then there is one pod in memory, not two.
                *listed != pod && {
                    let before = std::mem::replace(listed, pod);
                    self.take_in_again(&before, listed, record, started)
                }
            }
            None => {
                let record = self.take_in_new(&pod, started);
                known.push(pod, record);
                true
            }
        };
        self.pods = known;
        changed
    }

    /// Processes a pod that was not listed before, and starts its inspection.
    fn take_in_new(&mut self, pod: &Arc<RuntimePod>, started: Instant) -> Record {
        self.running.add(pod);
        let mut record = Record::new(pod, started);
        self.statuses.see_to(pod, &mut record, self.listed_at);
        record
    }

    /// Processes a pod that is listed otherwise than before, and starts its inspection if it changed. Returns whether it
    /// did.
    fn take_in_again(
        &mut self,
        before: &Arc<RuntimePod>,
        pod: &Arc<RuntimePod>,
        record: &mut Record,
        started: Instant,
    ) -> bool {
        self.running.remove(before);
        self.running.add(pod);
        record.listed_at = started;
        let changed = record.list_again(before, pod);
        if changed {
            self.statuses.see_to(pod, record, self.listed_at);
        }
        changed
    }

    /// Starts the inspection of a pod if it needs one; returns whether one is under way.
    fn see_to(&mut self, uid: &PodUid) -> bool {
        let known = self.pods.get_mut(uid);
        known.is_some_and(|(pod, record)| self.statuses.see_to(pod, record, self.listed_at))
    }

    /// The runtime does not have the pod any more.
    fn gone(&mut self, pod: &RuntimePod, record: Record) {
        self.running.remove(pod);
        self.statuses.gone(pod, record);
    }
}
