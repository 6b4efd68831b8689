//! The sync loop: receives changes from all parts and updates the pod workers.

mod declared_features;
mod housekeeping;
mod monitor;
mod resizes;
mod schedule;

pub use monitor::SyncLoopMonitor;

use std::collections::HashSet;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::admission::DeclaredFeatures;
use crate::container_deletor::ContainerDeletor;
use crate::explain::count_deferral;
use crate::pod_cache::PodCache;
use crate::pod_manager::PodManager;
use crate::pod_source::{PodOperation, PodUpdate, SourcesReady};
use crate::pod_syncer::SyncPodType;
use crate::pod_workers::{KillPod, PodWorkersHandle, UpdatePod};
use crate::runtime::{PodStateProvider, Runtime};
use crate::runtime_state::RuntimeState;
use crate::start_failures::StartFailures;
use crate::{
    AllocationManager, Checkpoints, Disk, EventRecorder, MirrorPods, PlegEvents, PodContainerManager, PodExt,
    PodLifecycleEvent, PodLifecycleEventType, PodLifecycleEvents, PodStatusReporter, PodUid,
    ProbeManagerHandle, ProbeUpdates, Rejection, ResourceUpdates, RetryTrigger, RootDir, VolumeManager,
};
use housekeeping::{GonePods, Removals, WorkingPods};
use schedule::Schedule;

/// Passes configuration and lifecycle events to the pod workers. Every 2 s, if something has changed, it cleans up
/// after pods that are gone. Answers to the kubelet's `syncLoop` and `HandlePodCleanups`.
///
/// While the runtime is not ready, nothing is received; the channels hold the events. [`Kubelet`](crate::Kubelet)
/// creates one; for an assembly of your own the fields are public.
pub struct SyncLoop {
    /// The updates of the merged sources.
    pub updates: mpsc::Receiver<PodUpdate>,
    /// The lifecycle events of the runtime.
    pub events: PlegEvents,
    /// The probe manager, if there is one; it must know which pods may run.
    pub prober: Option<ProbeManagerHandle>,
    /// The pods to sync because of their probes.
    pub probe_updates: Option<ProbeUpdates>,
    /// The pods to sync because the health of a device changed.
    pub resource_updates: Option<ResourceUpdates>,
    /// Which sources have sent updates; the loop writes it.
    pub sources: SourcesReady,
    /// The desired pods; the loop writes them.
    pub pods: PodManager,
    /// The pod workers.
    pub workers: PodWorkersHandle,
    /// The latest runtime statuses.
    pub cache: PodCache,
    /// The runtime; it drops its state of pods that are gone.
    pub runtime: Arc<dyn Runtime>,
    /// Whether the runtime is ready.
    pub runtime_state: RuntimeState,
    /// The status manager; it receives the pods of the sources, and which pods are still known.
    pub statuses: Arc<dyn PodStatusReporter>,
    /// Failed starts; removed with their pods.
    pub start_failures: StartFailures,
    /// Contains the folders of gone pods to remove.
    pub root_dir: RootDir,
    /// Does that file work.
    pub disk: Disk,
    /// Removes the cgroups of gone pods.
    pub pod_containers: Arc<dyn PodContainerManager>,
    /// Unmounts the volumes of gone pods.
    pub volumes: Arc<dyn VolumeManager>,
    /// Admits new pods, and decides on resizes.
    pub allocations: AllocationManager,
    /// The features that the node declares, to check pod updates.
    pub declared_features: Option<DeclaredFeatures>,
    /// Records events about rejected pods.
    pub recorder: Arc<dyn EventRecorder>,
    /// The records of pods on disk, if they are kept.
    pub checkpoints: Option<Checkpoints>,
    /// Deletes the mirrors of static pods that are gone.
    pub mirrors: MirrorPods,
    /// How many dead containers are kept per container name, at least one
    /// ([`GcPolicy::max_per_pod_container`](crate::runtime::GcPolicy::max_per_pod_container)).
    pub max_per_pod_container: Option<u32>,
    /// Notified in each iteration of the loop.
    pub monitor: SyncLoopMonitor,
}

/// The wait while the runtime is not ready doubles from the first value to the second (`syncLoop`).
const NOT_READY_BACK_OFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How long the loop waits for a first status and list of the runtime before it checks whether the runtime is ready.
const FIRST_ANSWERS: Duration = Duration::from_secs(1);

/// Sorted by UID.
type ActivePods = Vec<Arc<Pod>>;

enum Heard {
    Config(PodUpdate),
    Pleg(PodUid, PodLifecycleEvents),
    Probe(PodUid),
    Resource(PodUid),
    /// The sources and the PLEG have ended.
    End,
}

/// The next action of the loop.
enum Next {
    Housekeeping,
    Resizes,
    Heard(Heard),
}

impl SyncLoop {
    /// Runs until `shutdown`, or until the sources and the PLEG have ended.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut removals = Removals::of(&self);
        let deletor = ContainerDeletor::new(self.max_per_pod_container);
        let deleting = deletor.clone().run(self.runtime.clone());
        let (checkpoints, allocations) = (self.checkpoints.clone(), self.allocations.state().clone());
        let writing = async move {
            match checkpoints {
                Some(checkpoints) => checkpoints.write_resources(allocations).await,
                None => std::future::pending().await,
            }
        };
        let (mirrors, pods) = (self.mirrors.clone(), self.pods.clone());
        let registering = async move {
            mirrors.reconcile_once_registered(pods).await;
            std::future::pending().await
        };
        // No state is half changed at an await below: the loop may be dropped at any of them.
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = self.run_on(&deletor, &mut removals) => {}
            () = deleting => {}
            () = writing => {}
            () = registering => {}
        }
        removals.shutdown().await;
    }

    async fn run_on(&mut self, deletor: &ContainerDeletor, removals: &mut Removals) {
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.load().await;
            self.allocations.state().restore(checkpoints.allocations());
        }
        let mut heard = self.listen();
        let of_workers = self.workers.changes();
        let changes = [
            self.pods.changes().clone(),
            of_workers,
            self.cache.changes().clone(),
            removals.changes().clone(),
        ];
        let mut housekeeping = Schedule::new(changes);
        let (mut gone_pods, mut working_pods) = (GonePods::default(), WorkingPods::default());
        // A healthy runtime answers within moments: do not log a problem before its first answer.
        let first_answers = async {
            self.runtime_state.asked().await;
            self.cache.listed().await;
        };
        let _ = tokio::time::timeout(FIRST_ANSWERS, first_answers).await;
        loop {
            self.runtime_is_ready().await;
            self.monitor.rest_until(housekeeping.at());
            let next = tokio::select! {
                biased;
                () = housekeeping.due() => Next::Housekeeping,
                () = self.resizes_are_due() => Next::Resizes,
                next = heard.next() => Next::Heard(next.unwrap_or(Heard::End)),
            };
            self.monitor.beat();
            // It may have been idle for long.
            self.runtime_is_ready().await;
            // Rare work with large futures is boxed: the loop sleeps most of the time.
            match next {
                Next::Housekeeping => {
                    let started = Instant::now();
                    housekeeping.begin();
                    let is_settled = self.clean_up(&mut gone_pods, &mut working_pods, removals);
                    housekeeping.done(is_settled);
                    metrics::histogram!("kubelet_housekeeping_duration_seconds").record(started.elapsed());
                    Box::pin(self.retry_resizes_after_ends()).await;
                }
                Next::Resizes => Box::pin(self.retry_pending_resizes(RetryTrigger::Periodic)).await,
                Next::Heard(Heard::Config(update)) => Box::pin(self.handle_update(update)).await,
                Next::Heard(Heard::Pleg(uid, events)) => self.handle_events(&uid, &events, deletor),
                Next::Heard(Heard::Probe(uid) | Heard::Resource(uid)) => self.sync_known_pod(&uid),
                Next::Heard(Heard::End) => return,
            }
        }
    }

    /// Waits while the runtime is not ready.
    async fn runtime_is_ready(&self) {
        let mut back_off = NOT_READY_BACK_OFF.0;
        while let Err(error) = self.runtime_state.runtime_errors() {
            tracing::warn!(%error, "Skipping pod synchronization");
            if back_off == NOT_READY_BACK_OFF.0 {
                count_deferral("runtime");
            }
            tokio::time::sleep(back_off).await;
            back_off = (back_off * 2).min(NOT_READY_BACK_OFF.1);
        }
    }

    /// Configuration, lifecycle events, probes and devices take turns, so that none starves the others.
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
        let mut heard = heard.boxed();
        if let Some(updates) = self.probe_updates.take() {
            let probes = stream::unfold(updates, async |mut updates| {
                let uid = updates.next().await;
                Some((Heard::Probe(uid), updates))
            });
            heard = stream::select(heard, probes).boxed();
        }
        if let Some(updates) = self.resource_updates.take() {
            let resources = stream::unfold(updates, async |updates| {
                let uid = updates.next().await;
                Some((Heard::Resource(uid), updates))
            });
            heard = stream::select(heard, resources).boxed();
        }
        heard
    }

    /// `HandlePodAdditions`, `…Updates`, `…Removes`, `…Reconcile`
    async fn handle_update(&self, update: PodUpdate) {
        tracing::debug!(source = %update.source, op = ?update.op, pods = update.pods.len(), "SyncLoop");
        let PodUpdate { op, mut pods, source } = update;
        match op {
            PodOperation::Add => {
                // Older pods first, so that pods that were admitted before a restart are admitted again.
                pods.sort_by(|a, b| a.metadata.creation_timestamp.cmp(&b.metadata.creation_timestamp));
                self.add_pods(pods).await;
            }
            PodOperation::Update | PodOperation::Delete => {
                for pod in pods {
                    self.change_pod(pod).await;
                }
            }
            PodOperation::Remove => {
                pods.into_iter().for_each(|pod| self.remove_pod(pod));
                self.retry_pending_resizes(RetryTrigger::PodsRemoved).await;
            }
            PodOperation::Reconcile => self.reconcile_pods(pods).await,
            // A merger converts these into the operations below.
            PodOperation::Set => self.handle_set(pods, &source).await,
        }
        self.sources.add(&source);
    }

    /// All pods of a source at once: what a merger in snapshot mode sends.
    async fn handle_set(&self, pods: Vec<Arc<Pod>>, source: &str) {
        let listed: HashSet<PodUid> = pods.iter().map(|pod| pod.uid()).collect();
        let known = self.pods.pods();
        let known = known.into_iter().chain(self.pods.mirrors());
        let of_source = known.filter(|pod| pod.source() == Some(source));
        for gone in of_source.filter(|pod| !listed.contains(&pod.uid())) {
            self.remove_pod(gone);
        }
        for pod in pods {
            match self.pods.pod(&pod.uid()) {
                Some(_) => self.change_pod(pod).await,
                None => self.add_pods(vec![pod]).await,
            }
        }
    }

    /// `HandlePodAdditions`
    async fn add_pods(&self, pods: Vec<Arc<Pod>>) {
        let (mut active, mut resized) = (None, Vec::new());
        for pod in pods {
            if let Some(pod) = self.add_pod(pod, &mut active).await
                && self.allocations.state().differs(&pod)
            {
                resized.push(pod.uid());
            }
        }
        // Only after all pods are known that have an allocation.
        self.decide_resizes(&resized, RetryTrigger::PodsAdded).await;
    }

    /// `HandlePodUpdates`
    async fn change_pod(&self, pod: Arc<Pod>) {
        let before = self.pods.pod(&pod.uid());
        self.know(&pod);
        if !pod.is_mirror() {
            self.note_resize(before.clone(), &pod).await;
            if let Some(before) = before {
                self.tell_of_missing_features(&before, &pod);
            }
        }
        self.dispatch(pod, SyncPodType::Update);
    }

    /// `HandlePodReconcile`
    async fn reconcile_pods(&self, pods: Vec<Arc<Pod>>) {
        let mut freed = None;
        for pod in pods {
            if self.allocations.has_pending_resizes()
                && let Some(before) = self.pods.pod(&pod.uid())
            {
                freed = freed.or_else(|| self.freed(&before, &pod));
            }
            self.know(&pod);
            // Another client may have ended the pod or set a readiness gate; everything else in a status comes from
            // this agent.
            if pod.is_mirror() || self.has_ended_elsewhere(&pod) || has_readiness_gates(&pod) {
                self.dispatch(pod, SyncPodType::Sync);
            } else {
                self.workers.observe_pod(&pod);
            }
        }
        if let Some(trigger) = freed {
            self.retry_pending_resizes(trigger).await;
        }
    }

    /// Starts a new pod if it is admitted beside the active ones. `active` is updated for the next pod of the same
    /// batch. Returns the pod if it was checked and admitted.
    async fn add_pod(&self, pod: Arc<Pod>, active: &mut Option<ActivePods>) -> Option<Arc<Pod>> {
        let pod = match &self.checkpoints {
            Some(checkpoints) => checkpoints.restore(pod),
            None => pod,
        };
        self.statuses.backfill_pod_resize_conditions(&pod);
        // Before its admission: who frees the resources of pods that are gone must find it from the moment it has some.
        self.know(&pod);
        // A pod that is ending, or has ended, keeps its resources until it is gone.
        let asks = !pod.is_mirror()
            && !pod.is_terminal_phase()
            && !self.workers.is_pod_termination_requested(&pod.uid());
        if !asks {
            // It may hold resources all the same.
            *active = None;
        } else if let Err(rejection) = self.admit(&pod, active).await {
            rejection.tell(&pod, &*self.recorder, &*self.statuses);
            return None;
        }
        self.dispatch(pod.clone(), SyncPodType::Create);
        asks.then_some(pod)
    }

    /// `AllocationManager.AddPod`
    async fn admit(&self, pod: &Arc<Pod>, active: &mut Option<ActivePods>) -> Result<(), Rejection> {
        if self.allocations.admits_all() {
            return self.allocations.add_pod(pod, &[]).await.map(drop);
        }
        let mut others = active.take().unwrap_or_else(|| self.active_pods());
        let place = others.binary_search_by(|other| other.uid_str().cmp(pod.uid_str()));
        if let Ok(itself) = place {
            others.remove(itself);
        }
        let admitted = {
            let mut admission = pin!(self.allocations.add_pod(pod, &others));
            match futures::poll!(&mut admission) {
                Poll::Ready(admitted) => admitted,
                // Preemption or time may have ended other pods.
                Poll::Pending => return admission.await.map(drop),
            }
        };
        let admitted = admitted.map(|allocated| {
            let (Ok(at) | Err(at)) = place;
            others.insert(at, allocated);
        });
        *active = Some(others);
        admitted
    }

    /// The pods that hold resources, with what they were allocated, sorted by UID, so that each run has the same order
    /// (`getAllocatedPods`).
    fn active_pods(&self) -> ActivePods {
        let mut active = self.pods.pods();
        active.retain(|pod| !self.is_inactive(pod));
        active.sort_by_cached_key(|pod| pod.uid());
        let allocations = self.allocations.state();
        for pod in &mut active {
            *pod = allocations.update_pod_from_allocation(pod);
        }
        active
    }

    /// Stores the source's current version of the pod.
    fn know(&self, pod: &Arc<Pod>) {
        self.statuses.observe_pod(pod);
        self.pods.set_pod(pod.clone());
    }

    /// Queues a sync of the pod, or of the static pod of the mirror.
    fn dispatch(&self, pod: Arc<Pod>, update: SyncPodType) {
        if pod.is_mirror() {
            self.sync_owner_of_mirror(&pod);
            return;
        }
        let mirror = self.pods.mirror_of(&pod);
        self.workers
            .update_pod(UpdatePod::new(update, pod).with_mirror(mirror));
    }

    /// Its source reports that it has ended, and this agent has not.
    fn has_ended_elsewhere(&self, pod: &Pod) -> bool {
        pod.is_terminal_phase() && !self.told_to_have_ended(&pod.uid())
    }

    /// This agent has reported that it has ended.
    fn told_to_have_ended(&self, uid: &PodUid) -> bool {
        self.statuses.is_reported_terminal(uid)
    }

    fn remove_pod(&self, pod: Arc<Pod>) {
        self.pods.remove_pod(&pod);
        match pod.is_mirror() {
            true => self.sync_owner_of_mirror(&pod),
            false => {
                let uid = pod.uid();
                // It ends with what it was allocated; another pod with its UID is a new one.
                self.workers.update_pod(UpdatePod::kill(pod, KillPod::default()));
                self.allocations.state().remove_pod(&uid);
            }
        }
    }

    /// A mirror was added, changed or removed: the worker of its static pod handles this (`HandleMirrorPod`).
    fn sync_owner_of_mirror(&self, mirror: &Pod) {
        // A rejected pod has no worker, and needs none.
        let is_over = |pod: &Pod| !self.workers.knows(&pod.uid()) && self.told_to_have_ended(&pod.uid());
        if let Some(pod) = self.pods.pod_of_mirror(mirror).filter(|pod| !is_over(pod)) {
            let mirror = self.pods.mirror_of(&pod);
            self.workers
                .update_pod(UpdatePod::new(SyncPodType::Update, pod).with_mirror(mirror));
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

    fn handle_events(&self, uid: &PodUid, events: &[PodLifecycleEvent], deletor: &ContainerDeletor) {
        // The removal of a container needs no sync: its exit caused one (`isSyncPodWorthy`).
        let worth_a_sync = events
            .iter()
            .any(|event| event.event_type != PodLifecycleEventType::ContainerRemoved);
        if worth_a_sync {
            self.sync_known_pod(uid);
        }
        let died = events
            .iter()
            .filter(|event| event.event_type == PodLifecycleEventType::ContainerDied);
        for container in died.filter_map(|event| event.container.as_ref()) {
            // `cleanUpContainersInPod`
            if let Ok(status) = self.cache.get(uid) {
                let remove_all = self.workers.should_pod_content_be_removed(uid);
                deletor.delete_containers_in_pod(container.id(), &status, remove_all);
            }
        }
    }
}

fn has_readiness_gates(pod: &Pod) -> bool {
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_ref());
    gates.is_some_and(|gates| !gates.is_empty())
}
