//! The clean-up that the sync loop does every 2 s (`HandlePodCleanups`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::SyncLoop;
use crate::changes::Changes;
use crate::explain::count_deferral;
use crate::pod_dirs::OrphanedPodDirs;
use crate::pod_syncer::SyncPodType;
use crate::pod_workers::{KillPod, PodWorkerState, PodWorkerSync, UpdatePod};
use crate::runtime::RuntimePod;
use crate::{PodExt, PodKey, PodUid};

impl SyncLoop {
    /// Makes the workers match the desired pods, and removes the state of pods that are gone. Returns whether nothing
    /// is left to do until something changes.
    pub(super) fn clean_up(
        &self,
        gone: &mut GonePods,
        told: &mut WorkingPods,
        removals: &mut Removals,
    ) -> bool {
        if !self.sources.all_ready() {
            // A source may still list it.
            gone.count_who_waits(self.unlisted());
            return false;
        }
        // A pod may have been added, ended and removed by its worker since the last time.
        gone.known.extend(self.workers.uids());
        let desired = self.pods.pods();
        let mut known = self.pods.uids();
        let mut working = self.workers.sync_known_pods(&known);
        if let Some(prober) = &self.prober {
            let may_run = working
                .iter()
                .filter(|(_, sync)| sync.state != PodWorkerState::Terminated);
            prober.cleanup_pods(&may_run.map(|(uid, _)| uid.clone()).collect());
        }
        let active: Vec<&Arc<Pod>> = desired.iter().filter(|pod| !self.is_inactive(pod)).collect();
        let mirrors = self.pods.mirrors();
        observe_pods(&desired, &active, &mirrors);

        for pod in active {
            self.restart(pod, &mut working);
        }
        let running = self.cache.running_pods();
        self.finish_terminal_pods(&desired, &running, &working);
        for (uid, key) in running {
            self.end_orphan(uid, key, &mut working);
        }
        told.observe(&working);
        let are_mirrors_well = self.tend_mirrors(&desired, &working, removals);
        let has_orphans = working.values().any(|sync| sync.orphan);

        known.extend(working.into_keys());
        known.extend(mirrors.iter().map(|mirror| mirror.uid()));
        self.statuses.remove_orphaned_statuses(&known);
        self.start_failures.retain(&known);
        self.allocations.state().remove_orphaned_pods(&known);
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.retain(&known);
        }
        let went = gone.since_last(known);
        removals.dirs.tend(&gone.known, !went.is_empty());
        for uid in went {
            self.runtime.forget_pod(&uid);
        }
        are_mirrors_well && !has_orphans && removals.dirs.is_idle()
    }

    /// Pods that run and that no source has listed so far.
    fn unlisted(&self) -> HashSet<PodUid> {
        let running = self.cache.running_pods().into_iter().map(|(uid, _)| uid);
        running.filter(|uid| self.pods.pod(uid).is_none()).collect()
    }

    /// Whether no container of the pod runs or will run (`isPodInactive`): it has ended, or was rejected.
    pub(super) fn is_inactive(&self, pod: &Arc<Pod>) -> bool {
        let uid = pod.uid();
        let terminal = || pod.is_terminal_phase() || self.told_to_have_ended(&uid);
        self.workers.is_pod_known_terminated(&uid)
            || (terminal() && !self.workers.is_pod_termination_requested(&uid))
    }

    /// Starts a pod that should run and has no worker: an earlier pod with its UID has ended.
    fn restart(&self, pod: &Arc<Pod>, working: &mut HashMap<PodUid, PodWorkerSync>) {
        let uid = pod.uid();
        if working.contains_key(&uid) {
            return;
        }
        tracing::info!(pod = %pod.key(), %uid, "Pod is restarted: a former one of its UID has ended");
        metrics::counter!("kubelet_restarted_pods_total", "static" => flag(pod.is_static())).increment(1);
        let mirror = self.pods.mirror_of(pod);
        self.allocations.state().set_if_absent(pod);
        self.workers
            .update_pod(UpdatePod::new(SyncPodType::Create, pod.clone()).with_mirror(mirror));
        let begun = PodWorkerSync {
            state: PodWorkerState::Sync,
            orphan: false,
            has_config: true,
            is_static: pod.is_static(),
        };
        working.insert(uid, begun);
    }

    /// Pods that are being deleted, have ended, and have no worker (because they were rejected, for example): a worker
    /// deletes them (`filterTerminalPodsToDelete`).
    fn finish_terminal_pods(
        &self,
        desired: &[Arc<Pod>],
        running: &[(PodUid, PodKey)],
        working: &HashMap<PodUid, PodWorkerSync>,
    ) {
        let over = desired
            .iter()
            .filter(|pod| pod.is_deleting() && pod.is_terminal_phase());
        let unknown = over.filter(|pod| !working.contains_key(pod.uid_str()));
        for pod in unknown.filter(|pod| running.iter().all(|(uid, _)| uid.as_str() != pod.uid_str())) {
            tracing::info!(pod = %pod.key(), uid = pod.uid_str(), "Finishing a pod that has ended and is deleted");
            self.workers
                .update_pod(UpdatePod::kill(pod.clone(), KillPod::default()));
        }
    }

    /// Ends pods that run and that no source lists, or that were rejected when this agent started.
    fn end_orphan(&self, uid: PodUid, key: PodKey, working: &mut HashMap<PodUid, PodWorkerSync>) {
        // The runtime may list a pod for a moment after its worker has ended it.
        let is_desired = || self.pods.pod(&uid).is_some_and(|pod| !self.is_inactive(&pod));
        if working.contains_key(&uid) || is_desired() {
            return;
        }
        tracing::info!(pod = %key, %uid, "Clean up containers for orphaned pod we had not seen before");
        metrics::counter!("kubelet_orphaned_runtime_pods_total").increment(1);
        let running = Arc::new(RuntimePod::empty(uid.clone(), key));
        self.workers.update_pod(UpdatePod::kill_runtime_pod(running));
        let ending = PodWorkerSync {
            state: PodWorkerState::Terminating,
            orphan: true,
            has_config: false,
            is_static: false,
        };
        working.insert(uid, ending);
    }

    /// Deletes mirrors whose static pods are gone and have ended (`deleteOrphanedMirrorPods`). Reconciles the mirrors
    /// of static pods without syncs, which have ended or were rejected: their status must be visible, too. Returns
    /// whether there was nothing to do.
    fn tend_mirrors(
        &self,
        desired: &[Arc<Pod>],
        working: &HashMap<PodUid, PodWorkerSync>,
        removals: &mut Removals,
    ) -> bool {
        while removals.mirrors.try_join_next().is_some() {}
        if !removals.mirrors.is_empty() {
            return false;
        }
        let mut orphans = self.pods.orphaned_mirrors();
        orphans.retain(|mirror| !self.workers.is_static_pod_terminating(&mirror.key()));
        let is_over = |pod: &&Arc<Pod>| {
            let sync = working.get(pod.uid_str());
            sync.is_none_or(|sync| sync.state == PodWorkerState::Terminated)
                && !self.workers.is_static_pod_terminating(&pod.key())
        };
        let over = desired.iter().filter(|pod| pod.is_static()).filter(is_over);
        let over = over.map(|pod| (pod.clone(), self.pods.mirror_of(pod)));
        let mut lacking: Vec<_> = over
            .filter(|(pod, mirror)| self.mirrors.lacks(pod, mirror.as_ref()))
            .collect();
        let are_well = orphans.is_empty() && lacking.is_empty();
        if removals
            .mirrors_made_at
            .is_some_and(|at| at.elapsed() < MIRROR_RETRY)
        {
            lacking.clear();
        }
        if !lacking.is_empty() {
            lacking.sort_by_cached_key(|(pod, _)| pod.uid());
            removals.mirrors_made_at = Some(Instant::now());
        }
        if !orphans.is_empty() || !lacking.is_empty() {
            removals
                .mirrors
                .spawn(self.mirrors.clone().tend(orphans, lacking));
        }
        are_well
    }
}

/// The wait before the mirror of a static pod without syncs is tried again.
const MIRROR_RETRY: Duration = Duration::from_secs(10);

/// Removals and mirror updates run beside the loop, each kind in one task at a time: a disk or an API server that hangs
/// delays only the next removal.
pub(super) struct Removals {
    dirs: OrphanedPodDirs,
    mirrors: JoinSet<()>,
    /// When mirrors of static pods without syncs were last updated.
    mirrors_made_at: Option<Instant>,
}

impl Removals {
    pub(super) fn of(sync_loop: &SyncLoop) -> Self {
        let dirs = OrphanedPodDirs::new(
            sync_loop.root_dir.clone(),
            sync_loop.disk,
            sync_loop.pod_containers.clone(),
            sync_loop.cache.clone(),
            sync_loop.pods.clone(),
            sync_loop.workers.clone(),
            sync_loop.volumes.clone(),
        );
        Self {
            dirs,
            mirrors: JoinSet::new(),
            mirrors_made_at: None,
        }
    }

    /// Counts removals that must be retried.
    pub(super) fn changes(&self) -> &Changes {
        self.dirs.changes()
    }

    pub(super) async fn shutdown(mut self) {
        self.dirs.shutdown().await;
        self.mirrors.shutdown().await;
    }
}

/// The pods that were known at the last clean-up, or since, and are no longer.
#[derive(Default)]
pub(super) struct GonePods {
    known: HashSet<PodUid>,
    /// The running pods that wait for sources without an update so far.
    waiting: HashSet<PodUid>,
}

impl GonePods {
    fn count_who_waits(&mut self, waiting: HashSet<PodUid>) {
        waiting
            .difference(&self.waiting)
            .for_each(|_| count_deferral("sources"));
        self.waiting = waiting;
    }

    fn since_last(&mut self, known: HashSet<PodUid>) -> Vec<PodUid> {
        let before = std::mem::replace(&mut self.known, known);
        let mut gone: Vec<PodUid> = before
            .into_iter()
            .filter(|uid| !self.known.contains(uid))
            .collect();
        // Sorted, so that each run has the same order.
        gone.sort_unstable();
        gone
    }
}

/// The label value of a flag in the kubelet's metrics.
fn flag(set: bool) -> &'static str {
    if set { "true" } else { "" }
}

fn gauge(value: usize) -> f64 {
    value as f64
}

fn observe_pods(desired: &[Arc<Pod>], active: &[&Arc<Pod>], mirrors: &[Arc<Pod>]) {
    let of_kind = |is_static| {
        desired
            .iter()
            .filter(move |pod| pod.is_static() == is_static)
            .count()
    };
    let active_of_kind = |is_static| {
        active
            .iter()
            .filter(move |pod| pod.is_static() == is_static)
            .count()
    };
    for is_static in [false, true] {
        metrics::gauge!("kubelet_desired_pods", "static" => flag(is_static)).set(gauge(of_kind(is_static)));
        let active = active_of_kind(is_static);
        metrics::gauge!("kubelet_active_pods", "static" => flag(is_static)).set(gauge(active));
    }
    metrics::gauge!("kubelet_mirror_pods").set(gauge(mirrors.len()));
    let specs = desired.iter().chain(mirrors).filter_map(|pod| pod.spec.as_ref());
    let ephemeral = specs.filter_map(|spec| Some(spec.ephemeral_containers.as_ref()?.len()));
    metrics::gauge!("kubelet_managed_ephemeral_containers").set(gauge(ephemeral.sum()));
}

/// `kubelet_working_pods`, by the state of each worker and the origin of its pod, as it was set last.
#[derive(Default)]
pub(super) struct WorkingPods {
    counts: Option<HashMap<PodWorkerSync, usize>>,
}

impl WorkingPods {
    /// Updates the values that changed; the first time, all.
    fn observe(&mut self, working: &HashMap<PodUid, PodWorkerSync>) {
        let mut counts: HashMap<PodWorkerSync, usize> = HashMap::new();
        for sync in working.values() {
            *counts.entry(*sync).or_default() += 1;
        }
        if self.counts.as_ref() == Some(&counts) {
            return;
        }
        let states = [
            (PodWorkerState::Sync, "sync"),
            (PodWorkerState::Terminating, "terminating"),
            (PodWorkerState::Terminated, "terminated"),
        ];
        let kinds = [
            ("desired", false, true, Some(false)),
            ("desired", false, true, Some(true)),
            ("orphan", true, true, Some(false)),
            ("orphan", true, true, Some(true)),
            ("runtime_only", true, false, None),
        ];
        for (state, lifecycle) in states {
            for (config, orphan, has_config, is_static) in kinds {
                let of_kind = PodWorkerSync {
                    state,
                    orphan,
                    has_config,
                    is_static: is_static.unwrap_or_default(),
                };
                let count = counts.get(&of_kind).copied().unwrap_or_default();
                let told = self.counts.as_ref();
                let told = told.map(|told| told.get(&of_kind).copied().unwrap_or_default());
                if told == Some(count) {
                    continue;
                }
                metrics::gauge!(
                    "kubelet_working_pods",
                    "lifecycle" => lifecycle,
                    "config" => config,
                    "static" => is_static.map_or("unknown", flag)
                )
                .set(gauge(count));
            }
        }
        self.counts = Some(counts);
    }
}
