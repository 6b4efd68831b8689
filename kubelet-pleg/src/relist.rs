//! The relist: what was listed against what was known, and what follows from it.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use kubelet_core::runtime::RuntimePod;
use kubelet_core::{Clock, Error, PlegHandle, PodCache, PodUid, Result, RuntimeReader};
use rustc_hash::FxHashMap;
use tokio::time::{Instant, timeout};

use crate::inspection::{Inspected, Inspections};
use crate::inspector::HangingCall;
use crate::metrics::{self, Running};
use crate::pod_lists::{PodListed, PodLists};
use crate::record::Record;
use crate::shared::Owner;
use crate::statuses::Statuses;

/// How a PLEG goes about its work.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) relist_period: Duration,
    pub(crate) relist_threshold: Duration,
    pub(crate) max_concurrent_inspections: usize,
    pub(crate) inspection_deadline: Duration,
    pub(crate) clock: Clock,
}

/// A list of the whole runtime, answered or failed.
pub(crate) struct Listed {
    number: u64,
    started: Instant,
    pods: Result<Vec<Arc<RuntimePod>>>,
}

/// All that a running PLEG knows; its only writer.
///
/// There is either one list of the whole runtime under way, or lists of single pods, never both: so what is
/// taken in is always newer than what is known. Inspections go on meanwhile.
pub(crate) struct Relist {
    runtime: Arc<dyn RuntimeReader>,
    settings: Settings,
    owner: Owner,
    /// Boxed, since a map has room for more than it holds.
    records: FxHashMap<PodUid, Box<Record>>,
    pub(crate) statuses: Statuses,
    /// The last list, each pod once; `None` once something newer is known of one of its pods.
    last_list: Option<Vec<Arc<RuntimePod>>>,
    /// Number and start of the last list that succeeded.
    list: u64,
    listed_at: Option<Instant>,
    pub(crate) pod_lists: PodLists,
    /// The pods that the last list showed to have changed, for whoever wants to know.
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
            records: FxHashMap::default(),
            last_list: None,
            list: 0,
            listed_at: None,
            found: None,
            running: Running::default(),
        }
    }

    /// Begins a list of the whole runtime. It serves the lists of single pods that are under way, too: they
    /// are dropped, so that none of them holds it up.
    pub(crate) fn start_list(&mut self) -> BoxFuture<'static, Listed> {
        let started = Instant::now();
        if let Some(last) = self.listed_at {
            metrics::relist_interval(started - last);
        }
        let number = self.owner.0.list_started();
        self.pod_lists.give_way(number);
        let runtime = self.runtime.clone();
        // An answer later than that comes too late for the health, and is given up for a new try.
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

    /// Takes in a list. One that failed changes nothing but the health. Says whether it did not.
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
                tracing::error!(%error, "unable to list the pods of the runtime");
                self.owner.0.list_failed(error);
            }
        }
        metrics::relist_duration(listed.started.elapsed());
        succeeded
    }

    /// From now on, keeps what each list found.
    pub(crate) fn keep_found(&mut self) {
        self.found = Some(Vec::new());
    }

    /// The pods that the last list showed to have changed.
    pub(crate) fn found(&self) -> &[PodUid] {
        self.found.as_deref().unwrap_or_default()
    }

    /// Lists the pods that were asked for one by one, as many at once as may be inspected at once. Only while
    /// no list of the whole runtime is under way.
    pub(crate) fn start_pod_lists(&mut self) {
        self.pod_lists.start(self.list);
    }

    /// Takes in what was listed of one pod alone, and says whether it changed. When that failed, a list of the
    /// whole runtime sees to it.
    pub(crate) fn pod_listed(&mut self, listed: PodListed) -> bool {
        let PodListed { uid, started, pod } = listed;
        self.pod_lists.ended(&uid);
        metrics::pod_relist_duration(started.elapsed());
        match pod {
            Ok(Some(mut pod)) if pod.uid == uid => {
                if let Some(record) = self.records.get(&uid)
                    && record.listed == pod
                {
                    // The runtime may have it already, as it listed all, and no second one is kept.
                    pod.clone_from(&record.listed);
                }
                // The next list may hand out again what it handed out before; now that would be a change.
                self.last_list = None;
                if self.owner.0.take_reinspect(&uid)
                    && let Some(record) = self.records.get_mut(&uid)
                {
                    record.reinspect = true;
                }
                let changed = self.take_in_pod(&pod, started);
                if !self.see_to(&uid) {
                    self.statuses.observed(&uid, started);
                }
                self.statuses.publish();
                return changed;
            }
            Ok(None) => {
                self.last_list = None;
                let changed = self.gone(&uid);
                self.statuses.observed(&uid, started);
                self.statuses.publish();
                return changed;
            }
            Ok(Some(pod)) => {
                tracing::error!(%uid, listed = %pod.uid, "the runtime listed another pod than the one asked for");
            }
            Err(error) => tracing::error!(%uid, %error, "unable to list the pod alone"),
        }
        self.owner.0.ask_list();
        false
    }

    /// Takes in the outcome of an inspection.
    pub(crate) fn inspected(&mut self, inspected: Inspected) {
        if let Some(record) = self.records.get_mut(&inspected.pod.uid) {
            let period = self.settings.relist_period;
            self.statuses.inspected(record, inspected, self.listed_at, period);
            self.statuses.publish();
        }
    }

    fn take_in(&mut self, mut pods: Vec<Arc<RuntimePod>>, started: Instant) {
        let mut see_to: Vec<PodUid> = self.statuses.unsettled().iter().cloned().collect();
        for uid in self.owner.0.take_reinspects() {
            if let Some(record) = self.records.get_mut(&uid) {
                record.reinspect = true;
                see_to.push(uid);
            }
        }
        if let Some(found) = &mut self.found {
            found.clear();
        }
        let last = self.last_list.take().filter(|last| same_pods(last, &pods));
        if let Some(last) = last {
            for (last, pod) in last.iter().zip(&mut pods) {
                if Arc::ptr_eq(last, pod) {
                    continue;
                }
                if last == pod {
                    // The record has it already, and no second one is kept.
                    pod.clone_from(last);
                } else {
                    self.take_in_listed(pod, started);
                }
            }
            self.last_list = Some(pods);
        } else {
            let mut count = 0;
            for pod in &pods {
                match self.records.get(&pod.uid) {
                    Some(record) if record.list == self.list => {
                        tracing::error!(pod = %pod.key, uid = %pod.uid, "the runtime listed the pod twice");
                        continue;
                    }
                    _ => {}
                }
                count += 1;
                self.take_in_listed(pod, started);
            }
            if self.records.len() > count {
                let gone: Vec<PodUid> = self
                    .records
                    .iter()
                    .filter(|(_, record)| record.list != self.list)
                    .map(|(uid, _)| uid.clone())
                    .collect();
                for uid in &gone {
                    self.gone(uid);
                }
                if let Some(found) = &mut self.found {
                    found.extend(gone);
                }
            }
            self.last_list = (count == pods.len()).then_some(pods);
        }
        for uid in see_to {
            self.see_to(&uid);
        }
        // All else is known as of this list now.
        let records = &self.records;
        self.statuses.all_observed(started, |uid| {
            records.get(uid).is_some_and(|record| record.inspection.is_some())
        });
        self.statuses.publish();
        self.running.publish();
    }

    pub(crate) fn pods(&self) -> usize {
        self.records.len()
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

    /// Asks for the lists of single pods that would else wait for the next list of all, when that comes rarely:
    /// those to be read again, by request or because it failed before, and those that somebody waits for. Says
    /// whether somebody does.
    pub(crate) fn tend(&self) -> bool {
        let shared = &self.owner.0;
        shared.relist_reinspects();
        let failed = self.statuses.unsettled().iter().filter(|uid| {
            let record = self.records.get(*uid);
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

    /// Takes in one pod of the list of all.
    fn take_in_listed(&mut self, pod: &Arc<RuntimePod>, started: Instant) {
        if self.take_in_pod(pod, started)
            && let Some(found) = &mut self.found
        {
            found.push(pod.uid.clone());
        }
    }

    /// Takes in one pod of a list, and sees to it if it changed: while it is at hand, for lists are long. Says whether
    /// it did.
    fn take_in_pod(&mut self, pod: &Arc<RuntimePod>, started: Instant) -> bool {
        let Some(record) = self.records.get_mut(&pod.uid) else {
            self.running.add(pod);
            let mut record = Record::new(pod.clone(), started, self.list);
            self.statuses.see_to(&mut record, self.listed_at);
            self.records.insert(pod.uid.clone(), Box::new(record));
            return true;
        };
        record.list = self.list;
        record.listed_at = started;
        if Arc::ptr_eq(&record.listed, pod) {
            return false;
        }
        self.running.remove(&record.listed);
        self.running.add(pod);
        let changed = record.list_again(pod);
        if changed {
            self.statuses.see_to(record, self.listed_at);
        }
        changed
    }

    /// Starts the pod's inspection if it needs one; says whether one is under way.
    fn see_to(&mut self, uid: &PodUid) -> bool {
        let record = self.records.get_mut(uid);
        record.is_some_and(|record| self.statuses.see_to(record, self.listed_at))
    }

    /// Says whether the pod was known.
    fn gone(&mut self, uid: &PodUid) -> bool {
        let Some(record) = self.records.remove(uid) else {
            return false;
        };
        self.running.remove(&record.listed);
        self.statuses.gone(*record);
        true
    }
}

/// Whether two lists have the same pods in the same order: so it is mostly, and nothing needs to be looked up then.
fn same_pods(last: &[Arc<RuntimePod>], now: &[Arc<RuntimePod>]) -> bool {
    last.len() == now.len()
        && last
            .iter()
            .zip(now)
            .all(|(last, now)| Arc::ptr_eq(last, now) || last.uid == now.uid)
}
