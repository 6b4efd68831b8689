//! The sync loop: hears of changes from all sides and tells the pod workers.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::pod_cache::PodCache;
use crate::pod_dirs::OrphanedPodDirs;
use crate::pod_manager::PodManager;
use crate::pod_source::{PodOperation, PodUpdate, SourcesReady};
use crate::pod_syncer::SyncPodType;
use crate::pod_workers::{KillPod, PodWorkerState, PodWorkersHandle, UpdatePod};
use crate::runtime::{Runtime, RuntimePod};
use crate::runtime_state::RuntimeState;
use crate::start_failures::StartFailures;
use crate::{
    Disk, PlegEvents, PodExt, PodLifecycleEvent, PodLifecycleEventType, PodStatusReporter, PodUid,
    ProbeManagerHandle, ProbeUpdates, RootDir,
};

/// Brings configuration and lifecycle events to the pod workers, and every 2 s cleans up after pods that are
/// gone. Answers to the kubelet's `syncLoop` and `HandlePodCleanups`.
///
/// While the runtime is not ready nothing is taken from either side; it waits where it is.
/// [`Kubelet`](crate::Kubelet) makes one; for an assembly of your own the parts are public.
pub struct SyncLoop {
    /// The merged sources.
    pub updates: mpsc::Receiver<PodUpdate>,
    /// What changed in the runtime.
    pub events: PlegEvents,
    /// Who probes, if anyone does: told which pods may run.
    pub prober: Option<ProbeManagerHandle>,
    /// The pods to sync because of their probes.
    pub probe_updates: Option<ProbeUpdates>,
    /// Which sources were heard; the loop notes it.
    pub sources: SourcesReady,
    /// The desired pods; the loop writes them.
    pub pods: PodManager,
    /// Who does the work.
    pub workers: PodWorkersHandle,
    /// What the runtime last said.
    pub cache: PodCache,
    /// Told when a pod is gone for good.
    pub runtime: Arc<dyn Runtime>,
    /// Whether the runtime can be worked with.
    pub runtime_state: RuntimeState,
    /// Told of pods as their sources have them, and which are still known.
    pub statuses: Arc<dyn PodStatusReporter>,
    /// Forgotten with their pods.
    pub start_failures: StartFailures,
    /// Where the folders of gone pods are removed.
    pub root_dir: RootDir,
    /// Who removes them.
    pub disk: Disk,
}

/// `housekeepingPeriod`
const HOUSEKEEPING_PERIOD: Duration = Duration::from_secs(2);
/// The wait while the runtime is not ready doubles from the first to the second (`syncLoop`).
const NOT_READY_BACK_OFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How long a first status and list of the runtime are waited for before the loop looks whether it is ready.
const FIRST_ANSWERS: Duration = Duration::from_secs(1);

enum Heard {
    Config(PodUpdate),
    Pleg(PodUid, Vec<PodLifecycleEvent>),
    Probe(PodUid),
    /// Sources and PLEG have no more to say.
    End,
}

impl SyncLoop {
    /// Loops until `shutdown`, or until there is nothing more to hear.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut removal = JoinSet::new();
        // Nothing is half done at an await below: the loop may be dropped at any of them.
        shutdown.run_until_cancelled(self.run_on(&mut removal)).await;
        removal.shutdown().await;
    }

    async fn run_on(&mut self, removal: &mut JoinSet<()>) {
        let mut heard = self.listen();
        let mut housekeeping = tokio::time::interval(HOUSEKEEPING_PERIOD);
        housekeeping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut gone_pods = GonePods::default();
        let mut back_off = NOT_READY_BACK_OFF.0;
        // A runtime that is well has answered within moments: that it was not asked yet is no reason to complain.
        let first_answers = async {
            self.runtime_state.asked().await;
            self.cache.listed().await;
        };
        let _ = tokio::time::timeout(FIRST_ANSWERS, first_answers).await;
        loop {
            if let Err(error) = self.runtime_state.runtime_errors() {
                tracing::warn!(%error, "Skipping pod synchronization");
                tokio::time::sleep(back_off).await;
                back_off = (back_off * 2).min(NOT_READY_BACK_OFF.1);
                continue;
            }
            back_off = NOT_READY_BACK_OFF.0;
            tokio::select! {
                biased;
                _ = housekeeping.tick() => {
                    let started = Instant::now();
                    self.clean_up(&mut gone_pods, removal);
                    metrics::histogram!("kubelet_housekeeping_duration_seconds").record(started.elapsed());
                }
                next = heard.next() => match next {
                    Some(Heard::Config(update)) => self.handle_update(update),
                    Some(Heard::Pleg(uid, events)) => self.handle_events(&uid, &events),
                    Some(Heard::Probe(uid)) => self.sync_known_pod(&uid),
                    Some(Heard::End) | None => return,
                },
            }
        }
    }

    /// Configuration, lifecycle events and probes in turns, so that none starves another.
    fn listen(&mut self) -> BoxStream<'static, Heard> {
        let (_, closed) = mpsc::channel(1);
        let updates = std::mem::replace(&mut self.updates, closed);
        let config = stream::unfold(updates, async |mut updates| {
            let update = updates.recv().await?;
            Some((Heard::Config(update), updates))
        });
        let events = std::mem::replace(&mut self.events, crate::PlegPublisher::new().subscribe());
        let pleg = stream::unfold(events, async |mut events| {
            let (uid, of_pod) = events.next().await?;
            Some((Heard::Pleg(uid, of_pod), events))
        });
        let heard = stream::select(config, pleg).chain(stream::iter([Heard::End]));
        let Some(updates) = self.probe_updates.take() else {
            return heard.boxed();
        };
        let probes = stream::unfold(updates, async |mut updates| {
            let uid = updates.next().await;
            Some((Heard::Probe(uid), updates))
        });
        stream::select(heard, probes).boxed()
    }

    /// `HandlePodAdditions`, `…Updates`, `…Removes`, `…Reconcile`
    fn handle_update(&self, update: PodUpdate) {
        tracing::debug!(source = %update.source, op = ?update.op, pods = update.pods.len(), "SyncLoop");
        let PodUpdate { op, mut pods, source } = update;
        match op {
            PodOperation::Add => {
                // Older pods first, so that those that were admitted before a restart are again.
                pods.sort_by(|a, b| a.metadata.creation_timestamp.cmp(&b.metadata.creation_timestamp));
                pods.into_iter()
                    .for_each(|pod| self.set_pod(pod, SyncPodType::Create));
            }
            PodOperation::Update | PodOperation::Delete => {
                pods.into_iter()
                    .for_each(|pod| self.set_pod(pod, SyncPodType::Update));
            }
            PodOperation::Remove => pods.into_iter().for_each(|pod| {
                self.pods.remove_pod(&pod);
                match pod.is_mirror() {
                    true => self.sync_owner_of_mirror(&pod),
                    false => self.workers.update_pod(UpdatePod::kill(pod, KillPod::default())),
                }
            }),
            PodOperation::Reconcile => pods.into_iter().for_each(|pod| {
                // Others may have ended it, or opened a readiness gate; all else in a status is our own word.
                if pod.is_mirror() || pod.is_terminal_phase() || has_readiness_gates(&pod) {
                    self.set_pod(pod, SyncPodType::Sync);
                } else {
                    self.statuses.observe_pod(&pod);
                    self.pods.set_pod(pod);
                }
            }),
            // Sent by a source that knows of no differences; the merger makes them of it.
            PodOperation::Set => self.handle_set(pods, &source),
        }
        self.sources.add(&source);
    }

    /// All pods of a source at once: what a merger in snapshot mode sends.
    fn handle_set(&self, pods: Vec<Arc<Pod>>, source: &str) {
        let listed: HashSet<PodUid> = pods.iter().map(|pod| pod.uid()).collect();
        let known = self.pods.pods();
        let of_source = known.into_iter().filter(|pod| pod.source() == Some(source));
        for gone in of_source.filter(|pod| !listed.contains(&pod.uid())) {
            self.pods.remove_pod(&gone);
            self.workers.update_pod(UpdatePod::kill(gone, KillPod::default()));
        }
        for pod in pods {
            let kind = match self.pods.pod(&pod.uid()) {
                Some(_) => SyncPodType::Update,
                None => SyncPodType::Create,
            };
            self.set_pod(pod, kind);
        }
    }

    fn set_pod(&self, pod: Arc<Pod>, update: SyncPodType) {
        self.statuses.observe_pod(&pod);
        self.pods.set_pod(pod.clone());
        if pod.is_mirror() {
            self.sync_owner_of_mirror(&pod);
            return;
        }
        let mirror = self.pods.mirror_of(&pod);
        self.workers
            .update_pod(UpdatePod::new(update, pod).with_mirror(mirror));
    }

    /// A mirror came, changed or went: its static pod looks after it (`HandleMirrorPod`).
    fn sync_owner_of_mirror(&self, mirror: &Pod) {
        if let Some(pod) = self.pods.pod_of_mirror(mirror) {
            let mirror = self.pods.mirror_of(&pod);
            self.workers
                .update_pod(UpdatePod::new(SyncPodType::Update, pod).with_mirror(mirror));
        }
    }

    fn handle_events(&self, uid: &PodUid, events: &[PodLifecycleEvent]) {
        // A container that was removed tells nothing that its end did not (`isSyncPodWorthy`).
        let worth_a_sync = events
            .iter()
            .any(|event| event.event_type != PodLifecycleEventType::ContainerRemoved);
        if worth_a_sync {
            self.sync_known_pod(uid);
        }
    }

    /// `HandlePodSyncs`
    fn sync_known_pod(&self, uid: &PodUid) {
        if let Some(pod) = self.pods.pod(uid) {
            let mirror = self.pods.mirror_of(&pod);
            self.workers
                .update_pod(UpdatePod::new(SyncPodType::Sync, pod).with_mirror(mirror));
        }
    }

    /// `HandlePodCleanups`
    fn clean_up(&self, gone: &mut GonePods, removal: &mut JoinSet<()>) {
        if !self.sources.all_ready() {
            // What is not listed yet may still come.
            return;
        }
        // A pod may have come, ended and be forgotten by its worker since the last time.
        gone.known.extend(self.workers.uids());
        let desired = self.pods.pods();
        let listed: HashSet<PodUid> = desired.iter().map(|pod| pod.uid()).collect();
        let known = self.workers.sync_known_pods(&listed);
        if let Some(prober) = &self.prober {
            let may_run = known
                .iter()
                .filter(|(_, sync)| sync.state != PodWorkerState::Terminated);
            prober.cleanup_pods(&may_run.map(|(uid, _)| uid.clone()).collect());
        }
        let mut known: HashSet<PodUid> = known.into_keys().collect();

        let restarted = desired
            .iter()
            .filter(|pod| !known.contains(pod.uid_str()) && !pod.is_terminal_phase());
        for pod in restarted {
            tracing::info!(pod = %pod.key(), uid = pod.uid_str(), "Pod is restarted: a former one of its UID has ended");
            metrics::counter!("kubelet_restarted_pods_total", "static" => if pod.is_static() { "true" } else { "" })
                .increment(1);
            let mirror = self.pods.mirror_of(pod);
            self.workers
                .update_pod(UpdatePod::new(SyncPodType::Create, pod.clone()).with_mirror(mirror));
        }
        known.extend(listed);

        for (uid, key) in self.cache.running_pods() {
            if known.insert(uid.clone()) {
                tracing::info!(pod = %key, %uid, "Clean up containers for orphaned pod we had not seen before");
                metrics::counter!("kubelet_orphaned_runtime_pods_total").increment(1);
                self.workers
                    .update_pod(UpdatePod::kill_runtime_pod(Arc::new(RuntimePod::empty(uid, key))));
            }
        }
        self.statuses.remove_orphaned_statuses(&known);
        self.start_failures.retain(&known);
        if removal.try_join_next().is_some() || removal.is_empty() {
            let (root_dir, cache, workers) =
                (self.root_dir.clone(), self.cache.clone(), self.workers.clone());
            removal.spawn(
                OrphanedPodDirs {
                    root_dir,
                    disk: self.disk,
                    cache,
                    workers,
                    known: known.clone(),
                }
                .remove(),
            );
        }
        for uid in gone.since_last(known) {
            self.runtime.forget_pod(&uid);
        }
    }
}

fn has_readiness_gates(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_ref());
    gates.is_some_and(|gates| !gates.is_empty())
}

/// Which pods were known at the last clean-up, or since, and are not any more.
#[derive(Default)]
struct GonePods {
    known: HashSet<PodUid>,
}

impl GonePods {
    fn since_last(&mut self, known: HashSet<PodUid>) -> Vec<PodUid> {
        let before = std::mem::replace(&mut self.known, known);
        let mut gone: Vec<PodUid> = before
            .into_iter()
            .filter(|uid| !self.known.contains(uid))
            .collect();
        // In one order in every run.
        gone.sort_unstable();
        gone
    }
}
