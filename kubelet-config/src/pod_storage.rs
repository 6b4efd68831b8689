//! The merger: a pure state machine from what sources say to what is to be done.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{
    Clock, Event, EventRecorder, EventType, PodExt, PodKey, PodOperation, PodUid, PodUpdate, SourceUpdate,
};

use crate::pod_diff::{self, Change};
use crate::{PodConfigNotificationMode, SourceStatus};

/// The reason of the event about a skipped pod (`events.FailedValidation`).
const FAILED_VALIDATION: &str = "FailedValidation";

/// Holds the pods of all sources and computes what each update changes. Corresponds to the kubelet's `podStorage`.
///
/// It is pure: no task, no channel, and no time but that of its [`Clock`]. [`PodConfig`](crate::PodConfig) runs it
/// over streams. If you have your own loop, call [`merge`](Self::merge) directly.
///
/// The cost of a delta is that of its one pod. A snapshot that hands out the same `Arc`s as before costs a
/// look-up for each pod and compares nothing. A pod is copied only if it is new or changed and someone else
/// holds it too.
pub struct PodStorage {
    mode: PodConfigNotificationMode,
    recorder: Arc<dyn EventRecorder>,
    clock: Clock,
    sources: HashMap<Arc<str>, SourcePods>,
}

impl PodStorage {
    /// An empty storage. `recorder` gets an event for each skipped pod. `clock` sets the time in the annotation
    /// `kubernetes.io/config.seen`.
    pub fn new(mode: PodConfigNotificationMode, recorder: Arc<dyn EventRecorder>, clock: Clock) -> Self {
        Self {
            mode,
            recorder,
            clock,
            sources: HashMap::new(),
        }
    }

    /// Merges an update of a source and returns the operations, in order. The list is empty if nothing changed.
    ///
    /// A problem of the source changes no pod. It is logged and shown in [`source_status`](Self::source_status). A
    /// delta before the first snapshot of the source is ignored, since the snapshot will hold the pod.
    pub fn merge(&mut self, source: &str, update: SourceUpdate) -> Vec<PodUpdate> {
        if !self.sources.contains_key(source) {
            let name = Arc::<str>::from(source);
            self.sources.insert(name.clone(), SourcePods::new(name));
        }
        let Some(pods) = self.sources.get_mut(source) else {
            return Vec::new();
        };
        let first = !pods.status.is_seen();
        let mut changes = Changes::default();
        match update {
            SourceUpdate::Snapshot(given) => {
                pods.set(given, &mut changes, self.recorder.as_ref(), &self.clock);
                pods.mark_seen();
            }
            SourceUpdate::Applied(_) | SourceUpdate::Deleted(_) if first => {
                tracing::warn!(
                    source,
                    "ignored a change to one pod: the source has not listed all its pods yet"
                );
            }
            SourceUpdate::Applied(given) => {
                pods.apply(given, &mut changes, self.recorder.as_ref(), &self.clock);
                pods.mark_seen();
            }
            SourceUpdate::Deleted(uid) => {
                changes.removes.extend(pods.remove(&uid));
                pods.mark_seen();
            }
            SourceUpdate::Unavailable { message } => pods.lose(message, &self.clock),
            SourceUpdate::Available if first => {}
            SourceUpdate::Available => pods.mark_seen(),
            SourceUpdate::Problem { item, message } => {
                tracing::warn!(source, "{item}: {message}");
            }
            other => tracing::warn!(source, update = ?other, "ignored an update of an unknown kind"),
        }
        let first = first && pods.status.is_seen();
        changes.into_updates(self.mode, first, pods)
    }

    /// One `SET` with all pods for each seen source, by name. It is the state of a consumer that got every update.
    pub fn sync(&self) -> Vec<PodUpdate> {
        let mut seen: Vec<_> = self
            .sources
            .values()
            .filter(|pods| pods.status.is_seen())
            .collect();
        seen.sort_by(|a, b| a.name.cmp(&b.name));
        let set = |pods: &SourcePods| PodUpdate {
            op: PodOperation::Set,
            pods: pods.all(),
            source: pods.name.clone(),
        };
        seen.into_iter().map(set).collect()
    }

    /// Marks a source that will say no more. Its pods stay.
    pub(crate) fn end(&mut self, source: &str) {
        if let Some(pods) = self.sources.get_mut(source) {
            pods.lose("the source has ended".into(), &self.clock);
        }
    }

    /// All pods of all sources, as a consumer of the updates knows them: by source, within one in the
    /// order of arrival.
    pub fn merged_state(&self) -> Vec<Arc<Pod>> {
        let mut sources: Vec<_> = self.sources.values().collect();
        sources.sort_by(|a, b| a.name.cmp(&b.name));
        sources.into_iter().flat_map(SourcePods::all).collect()
    }

    /// How this source stands.
    pub fn source_status(&self, source: &str) -> SourceStatus {
        self.sources
            .get(source)
            .map_or(SourceStatus::NotSeen, |pods| pods.status.clone())
    }
}

/// The pods of one source.
struct SourcePods {
    name: Arc<str>,
    status: SourceStatus,
    pods: HashMap<PodUid, Known>,
    /// Which pod has a name at present: a name that comes again under another UID is another pod.
    names: HashMap<PodKey, PodUid>,
    /// Counts looks at snapshots, and arrivals.
    ticks: u64,
}

struct Known {
    pod: Arc<Pod>,
    /// What the source handed in, if it kept a hold of it: the same again is no news.
    given: Weak<Pod>,
    key: PodKey,
    arrived: u64,
    /// The snapshot that listed it last.
    listed: u64,
}

impl SourcePods {
    fn new(name: Arc<str>) -> Self {
        Self {
            name,
            status: SourceStatus::NotSeen,
            pods: HashMap::new(),
            names: HashMap::new(),
            ticks: 0,
        }
    }

    fn mark_seen(&mut self) {
        if self.status != SourceStatus::Ready {
            tracing::debug!(source = %self.name, "source is ready");
            self.status = SourceStatus::Ready;
        }
    }

    fn lose(&mut self, message: String, clock: &Clock) {
        tracing::warn!(source = %self.name, "source is unavailable, its pods stay as they are: {message}");
        self.status = match &self.status {
            SourceStatus::NotSeen => SourceStatus::NotSeen,
            SourceStatus::Ready => SourceStatus::Stale {
                since: clock.now(),
                message,
            },
            SourceStatus::Stale { since, .. } => SourceStatus::Stale {
                since: *since,
                message,
            },
        };
    }

    fn set(
        &mut self,
        given: Vec<Arc<Pod>>,
        changes: &mut Changes,
        recorder: &dyn EventRecorder,
        clock: &Clock,
    ) {
        if self.is_unchanged(&given) {
            return;
        }
        self.ticks += 1;
        let snapshot = self.ticks;
        let mut refused = vec![false; given.len()];
        {
            let mut names = HashSet::with_capacity(given.len());
            let mut uids = HashSet::with_capacity(given.len());
            for (pod, refused) in given.iter().zip(&mut refused) {
                let metadata = &pod.metadata;
                let new_name = names.insert((metadata.namespace.as_deref(), metadata.name.as_deref()));
                *refused = if let Some(why) = unusable_identity(pod) {
                    refuse(pod, &self.name, why, recorder);
                    true
                } else if !new_name {
                    report_duplicate(pod, "name", pod.metadata.name.as_deref(), &self.name, recorder);
                    true
                } else if !uids.insert(pod.uid_str()) {
                    report_duplicate(pod, "UID", pod.metadata.uid.as_deref(), &self.name, recorder);
                    true
                } else {
                    false
                };
            }
        }
        let mut listed = 0;
        for (pod, refused) in given.into_iter().zip(refused) {
            if !refused {
                self.take(pod, snapshot, changes, clock);
                listed += 1;
            }
        }
        if listed < self.pods.len() {
            let mut gone: Vec<_> = self
                .pods
                .iter()
                .filter(|(_, known)| known.listed != snapshot)
                .map(|(uid, known)| (known.arrived, uid.clone()))
                .collect();
            gone.sort();
            for (_, uid) in gone {
                changes.removes.extend(self.remove(&uid));
            }
        }
    }

    /// Whether these are the very pods that the source handed in before, all of them and no other. Most snapshots are.
    fn is_unchanged(&mut self, given: &[Arc<Pod>]) -> bool {
        self.ticks += 1;
        let look = self.ticks;
        given.len() == self.pods.len()
            && given.iter().all(|pod| {
                self.pods.get_mut(pod.uid_str()).is_some_and(|known| {
                    let first_time = std::mem::replace(&mut known.listed, look) != look;
                    first_time && std::ptr::eq(known.given.as_ptr(), Arc::as_ptr(pod))
                })
            })
    }

    fn apply(&mut self, given: Arc<Pod>, changes: &mut Changes, recorder: &dyn EventRecorder, clock: &Clock) {
        if let Some(why) = unusable_identity(&given) {
            refuse(&given, &self.name, why, recorder);
            return;
        }
        // The source has one pod of a name: if this one is new, the former is gone.
        let former = self
            .names
            .get(&given.key())
            .filter(|uid| uid.as_str() != given.uid_str());
        if let Some(former) = former.cloned() {
            changes.removes.extend(self.remove(&former));
        }
        self.take(given, self.ticks, changes, clock);
    }

    fn take(&mut self, given: Arc<Pod>, snapshot: u64, changes: &mut Changes, clock: &Clock) {
        // While somebody else holds the pod it is copied before it is changed, and may come again.
        let handle = if Arc::strong_count(&given) > 1 {
            Arc::downgrade(&given)
        } else {
            Weak::new()
        };
        if let Some(known) = self.pods.get_mut(given.uid_str()) {
            known.listed = snapshot;
            if std::ptr::eq(known.given.as_ptr(), Arc::as_ptr(&given)) {
                return;
            }
            known.given = handle;
            let changed = match pod_diff::change(&known.pod, &given) {
                Change::Nothing => return,
                Change::Status => {
                    known.pod = pod_diff::reconciled(&known.pod, given);
                    &mut changes.reconciles
                }
                Change::Update => {
                    known.pod = pod_diff::updated(&known.pod, given, &self.name);
                    &mut changes.updates
                }
                Change::GracefulDelete => {
                    known.pod = pod_diff::updated(&known.pod, given, &self.name);
                    &mut changes.deletes
                }
            };
            changed.push(known.pod.clone());
            return;
        }
        let pod = pod_diff::first_seen(given, &self.name, clock);
        let (uid, key) = (pod.uid(), pod.key());
        self.ticks += 1;
        self.names.insert(key.clone(), uid.clone());
        changes.adds.push(pod.clone());
        let known = Known {
            pod,
            given: handle,
            key,
            arrived: self.ticks,
            listed: snapshot,
        };
        self.pods.insert(uid, known);
    }

    fn remove(&mut self, uid: &PodUid) -> Option<Arc<Pod>> {
        let known = self.pods.remove(uid)?;
        // By now the name may have passed on to another pod.
        if self.names.get(&known.key) == Some(uid) {
            self.names.remove(&known.key);
        }
        Some(known.pod)
    }

    fn all(&self) -> Vec<Arc<Pod>> {
        let mut pods: Vec<_> = self.pods.values().collect();
        pods.sort_by_key(|known| known.arrived);
        pods.into_iter().map(|known| known.pod.clone()).collect()
    }
}

/// What one word of a source changes.
#[derive(Default)]
struct Changes {
    removes: Vec<Arc<Pod>>,
    adds: Vec<Arc<Pod>>,
    updates: Vec<Arc<Pod>>,
    deletes: Vec<Arc<Pod>>,
    reconciles: Vec<Arc<Pod>>,
}

impl Changes {
    fn into_updates(self, mode: PodConfigNotificationMode, first: bool, pods: &SourcePods) -> Vec<PodUpdate> {
        use PodConfigNotificationMode::{Incremental, Snapshot, SnapshotAndUpdates};
        use PodOperation::{Add, Delete, Reconcile, Remove, Set, Update};

        let came_or_went = first || !self.adds.is_empty() || !self.removes.is_empty();
        let changed = !self.updates.is_empty() || !self.deletes.is_empty() || !self.reconciles.is_empty();
        // The first snapshot of a source without pods sends an empty ADD.
        let mark_seen = first && self.adds.is_empty();
        let mut steps = Vec::new();
        let mut step = |op, pods: Vec<Arc<Pod>>, always: bool, source: &Arc<str>| {
            if always || !pods.is_empty() {
                let source = source.clone();
                steps.push(PodUpdate { op, pods, source });
            }
        };
        match mode {
            Incremental => {
                step(Remove, self.removes, false, &pods.name);
                step(Add, self.adds, mark_seen, &pods.name);
                step(Update, self.updates, false, &pods.name);
                step(Delete, self.deletes, false, &pods.name);
                step(Reconcile, self.reconciles, false, &pods.name);
            }
            SnapshotAndUpdates => {
                if came_or_went {
                    step(Set, pods.all(), true, &pods.name);
                }
                step(Update, self.updates, false, &pods.name);
                step(Delete, self.deletes, false, &pods.name);
                step(Reconcile, self.reconciles, false, &pods.name);
            }
            Snapshot => {
                if came_or_went || changed {
                    step(Set, pods.all(), true, &pods.name);
                }
            }
        }
        steps
    }
}

fn report_duplicate(pod: &Pod, what: &str, value: Option<&str>, source: &str, recorder: &dyn EventRecorder) {
    let value = value.unwrap_or_default();
    refuse(
        pod,
        source,
        &format!("due to duplicate pod {what} {value:?}"),
        recorder,
    );
}

/// Why a pod cannot be identified, or its folder named: its UID, name and namespace become parts of paths, and
/// sources of all kinds may say anything.
fn unusable_identity(pod: &Pod) -> Option<&'static str> {
    let metadata = &pod.metadata;
    let hostile = |part: &Option<String>| {
        let part = part.as_deref().unwrap_or_default();
        part.contains(['/', '\0']) || part == "." || part == ".." || part.len() > 253
    };
    if pod.uid_str().is_empty() {
        return Some("due to its missing UID");
    }
    let wrong = hostile(&metadata.uid) || hostile(&metadata.name) || hostile(&metadata.namespace);
    wrong.then_some("since its UID, name or namespace cannot be part of a path")
}

fn refuse(pod: &Pod, source: &str, why: &str, recorder: &dyn EventRecorder) {
    let (key, uid) = (pod.key(), pod.uid_str());
    tracing::warn!(pod = %key, uid, source, "pod ignored {why}");
    let name = key.full_name();
    recorder.record(Event::about(
        pod,
        EventType::Warning,
        FAILED_VALIDATION,
        format!("Error validating pod {name}({uid}) from {source} {why}, ignoring"),
    ));
}
