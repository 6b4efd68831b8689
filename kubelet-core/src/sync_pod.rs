//! `syncPod`: brings one pod closer to its spec, over the traits of this crate.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};

use tokio::time::Instant;

use crate::active_deadline::{active_deadline, past_active_deadline};
use crate::allocation::resize_message;
use crate::checkpoint::Record;
use crate::deadline::{RUNTIME_REQUEST_TIMEOUT, within};
use crate::files;
use crate::pod::{has_terminal_phase, restarts_all_containers};
use crate::pod_syncer::{PodStatusFn, PodSyncer, SyncOutcome, SyncPodType};
use crate::restart_rules::runs_once;
use crate::runtime::{PodStatus, Runtime, RuntimePod, SyncAction, SyncFailure, SyncResult};
use crate::runtime_state::RuntimeState;
use crate::start_failures::StartFailures;
use crate::sub_paths::clean_sub_paths;
use crate::{
    AllocationState, Checkpoints, Clock, Disk, DynamicResources, Error, Event, EventRecorder, EventType,
    MirrorPods, PlegHandle, PodContainerManager, PodExt, PodStatusInput, PodStatusReporter, PodUid,
    ProbeManagerHandle, ProbeResults, Rejection, ResourceHealth, Result, RootDir, VolumeManager,
};

/// The standard [`PodSyncer`]. It generates and reports the status, waits for network and volumes, and calls the
/// runtime. To end a pod, it kills the containers, verifies that, and cleans up.
///
/// Answers to `Kubelet.SyncPod`, `SyncTerminatingPod`, `SyncTerminatingRuntimePod` and `SyncTerminatedPod`.
pub struct RuntimePodSyncer {
    /// Runs the pod.
    pub runtime: Arc<dyn Runtime>,
    /// The state of the runtime and its network.
    pub runtime_state: RuntimeState,
    /// Generates and reports its status.
    pub statuses: Arc<dyn PodStatusReporter>,
    /// Stores failed starts for the status.
    pub start_failures: StartFailures,
    /// The results of probes.
    pub probes: Arc<dyn ProbeResults>,
    /// The probe manager, if there is one.
    pub prober: Option<ProbeManagerHandle>,
    /// Mounts its volumes.
    pub volumes: Arc<dyn VolumeManager>,
    /// Creates its cgroup.
    pub pod_containers: Arc<dyn PodContainerManager>,
    /// Unprepares its claims, if the node prepares claims.
    pub dynamic_resources: Option<Arc<dyn DynamicResources>>,
    /// Set the health of its devices in its status, in this order.
    pub resource_health: Vec<Arc<dyn ResourceHealth>>,
    /// Records events.
    pub recorder: Arc<dyn EventRecorder>,
    /// Asked to relist a pod after a change.
    pub pleg: Arc<dyn PlegHandle>,
    /// Contains its folder.
    pub root_dir: RootDir,
    /// Does file work.
    pub disk: Disk,
    /// The wall clock, for active deadlines.
    pub clock: Clock,
    /// The records on disk, if they are kept.
    pub checkpoints: Option<Checkpoints>,
    /// Keeps the mirrors of static pods.
    pub mirrors: MirrorPods,
    /// What each pod was allocated; part of its record.
    pub allocations: AllocationState,
}

/// The time limit for mounting a pod's volumes; then the sync fails and is retried (`podAttachAndMountTimeout`).
const MOUNT_DEADLINE: Duration = Duration::from_secs(2 * 60 + 3);

/// The grace period of a pod that only the runtime knows.
const ORPHAN_GRACE_PERIOD: Duration = Duration::from_secs(1);

#[async_trait]
impl PodSyncer for RuntimePodSyncer {
    async fn sync_pod(
        &self,
        update: SyncPodType,
        pod: &Arc<Pod>,
        mirror: Option<&Arc<Pod>>,
        status: &Arc<PodStatus>,
    ) -> Result<SyncOutcome> {
        if update == SyncPodType::Create {
            self.observe_since_first_seen("kubelet_pod_worker_start_duration_seconds", pod);
        }
        // For every kind of update: one that creates a pod may be merged with one that changes it.
        self.statuses.begin_pod(&pod.uid());
        self.take_up(pod, status);
        self.look_after_resize(pod, status);
        let reported = self.statuses.pod_status(&pod.uid());
        let api_status = self.generate(pod, status, reported.as_deref(), false).await;
        // On the host's network a pod has the host's IPs, which the runtime does not report.
        let status = with_ips(status, &api_status);
        let phase = api_status.phase.clone().unwrap_or_default();
        let starts_over = restarts_all_containers(&api_status);
        let runs = has_running_containers(&api_status);
        let before = reported.as_ref().and_then(|reported| reported.phase.as_deref());
        if phase == "Running" && before == Some("Pending") {
            self.observe_since_first_seen("kubelet_pod_start_duration_seconds", pod);
        }
        // Mounts and pulls take a while, and many pods may wait.
        drop(reported);
        self.statuses.set_pod_status(pod, api_status);
        self.save(pod).await;
        if matches!(&*phase, "Succeeded" | "Failed") {
            return Ok(SyncOutcome {
                terminal: true,
                ..SyncOutcome::default()
            });
        }

        if !pod.host_network()
            && let Err(error) = self.runtime_state.network_errors()
        {
            self.warn(pod, "NetworkNotReady", error.to_string());
            return Err(error);
        }
        self.ensure_cgroup(pod, runs).await?;

        // The API server itself may be a static pod, so its sync does not wait for its mirror.
        let is_former = mirror.is_some_and(|mirror| !self.statuses.can_be_shown_by(pod, mirror));
        let ((), synced) = tokio::join!(
            self.mirrors.reconcile(pod, mirror, is_former),
            self.set_up_and_run(pod, &status)
        );
        let did_something = match synced {
            Err(error @ Error::VolumeAttachLimitExceeded { .. }) => {
                let rejection = Rejection::new("VolumeAttachmentLimitExceeded", error.to_string());
                rejection.tell(pod, &*self.recorder, &*self.statuses);
                self.save(pod).await;
                return Ok(SyncOutcome {
                    terminal: true,
                    ..SyncOutcome::default()
                });
            }
            synced => synced?,
        };
        Ok(SyncOutcome {
            // Containers were removed so that all restart: no event reports that.
            again: starts_over && did_something,
            ..SyncOutcome::default()
        })
    }

    fn look_again_at(&self, pod: &Arc<Pod>) -> Option<Instant> {
        pod.spec.as_ref()?.active_deadline_seconds?;
        let deadline = active_deadline(pod, self.statuses.pod_status(&pod.uid()).as_deref())?;
        let left = deadline.duration_since(self.clock.now());
        Instant::now().checked_add(left.try_into().unwrap_or_default())
    }

    async fn sync_terminating_pod(
        &self,
        pod: &Arc<Pod>,
        status: &Arc<PodStatus>,
        grace_period: Option<Duration>,
        status_fn: Option<&PodStatusFn>,
    ) -> Result<()> {
        let uid = pod.uid();
        self.take_up(pod, status);
        let mut api_status = match self.statuses.pod_status(&uid) {
            // The status could not be read in time, or there is none. A status generated without it would report
            // containers as lost that may still run.
            Some(told) if status.sandboxes.is_empty() && status.containers.is_empty() => {
                ApiPodStatus::clone(&told)
            }
            _ => self.generate_with_ips(pod, status, false).await,
        };
        if let Some(change) = status_fn {
            change(&mut api_status);
        }
        self.statuses.set_pod_status(pod, api_status);

        if let Some(prober) = &self.prober {
            prober.stop_liveness_and_startup(&uid);
        }
        // Read from the runtime rather than from `status`: containers that are not in the cache yet must be killed,
        // too.
        let running = self.runtime_pod(pod).await?;
        self.kill(Some(pod), &running, grace_period).await?;

        if let Some(prober) = &self.prober {
            prober.remove_pod(&uid);
        }
        let stopped = self.read_status(&*self.runtime_pod(pod).await?).await?;
        let still_running: Vec<&str> = stopped
            .running_containers()
            .map(|container| container.name.as_str())
            .collect();
        if !still_running.is_empty() {
            return Err(Error::SyncPod {
                pod: pod.key(),
                uid,
                message: format!("containers run after the pod was killed: {still_running:?}"),
            });
        }
        // After all containers have stopped, and before the status says so: the API's controllers then free what the claims allocate.
        if let Some(claims) = &self.dynamic_resources {
            claims.unprepare(pod).await.map_err(|error| Error::SyncPod {
                pod: pod.key(),
                uid: pod.uid(),
                message: error.to_string(),
            })?;
        }
        // A stopped sandbox has no IPs; the final status keeps the last known ones (`preserveDataFromBeforeStopping`).
        let mut stopped = Arc::unwrap_or_clone(stopped);
        stopped.ips.clone_from(&status.ips);
        let api_status = self.generate_with_ips(pod, &stopped, true).await;
        self.statuses.set_pod_status(pod, api_status);
        self.save(pod).await;
        Ok(())
    }

    async fn sync_terminating_runtime_pod(&self, running: &Arc<RuntimePod>) -> Result<()> {
        // Read from the runtime: the caller's list may be old, and must not stop what is no longer there.
        match self.listed(&running.uid).await? {
            Some(running) => self.kill(None, &running, Some(ORPHAN_GRACE_PERIOD)).await,
            None => Ok(()),
        }
    }

    async fn sync_terminated_pod(&self, pod: &Arc<Pod>, status: &Arc<PodStatus>) -> Result<()> {
        self.statuses.containers_ended(&pod.uid());
        let api_status = self.told_of_the_end(pod, status);
        let api_status = match api_status {
            Some(told) => told,
            None => self.generate_with_ips(pod, status, true).await,
        };
        self.statuses.set_pod_status(pod, api_status);
        self.clean_sub_paths(&pod.uid()).await?;
        let unmounted = self.volumes.wait_for_unmount(pod);
        within("unmount volumes", Some(&pod.uid()), MOUNT_DEADLINE, unmounted).await?;
        let uid = pod.uid();
        let destroyed = self.pod_containers.destroy(&uid);
        within(
            "remove the cgroup",
            Some(&uid),
            RUNTIME_REQUEST_TIMEOUT,
            destroyed,
        )
        .await?;
        self.release_user_namespace(&uid).await?;
        self.statuses.terminate_pod(pod);
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.ended(&pod.uid());
        }
        Ok(())
    }
}

impl RuntimePodSyncer {
    /// Prepares the host for the pod, then syncs it in the runtime. Returns whether anything was changed.
    async fn set_up_and_run(&self, pod: &Arc<Pod>, status: &PodStatus) -> Result<bool> {
        let uid = pod.uid();
        self.make_pod_dirs(&uid).await.inspect_err(|error| {
            let message = format!("error making pod data directories: {error}");
            self.warn(pod, "Failed", message);
        })?;
        // There may have been no folder for its record before.
        let is_recorded = |checkpoints: &Checkpoints| checkpoints.is_written(&uid);
        if !self.checkpoints.as_ref().is_none_or(is_recorded) {
            self.save(pod).await;
        }
        let mounted = self.volumes.wait_for_attach_and_mount(pod);
        let mounted = within("attach and mount volumes", Some(&uid), MOUNT_DEADLINE, mounted).await;
        mounted.inspect_err(|error| {
            let why = match error {
                // A rejected pod is reported as such.
                Error::VolumeAttachLimitExceeded { .. } => return,
                // The event already names its pod.
                Error::SyncPod { message, .. } => message.clone(),
                error => error.to_string(),
            };
            let message = format!("Unable to attach or mount volumes: {why}");
            self.warn(pod, "FailedMount", message);
        })?;

        if let Some(prober) = &self.prober {
            prober.add_pod(pod);
        }
        let result = match &self.checkpoints {
            Some(starts) => {
                let status = starts.with_lost(status);
                self.runtime.sync_pod_recorded(pod, &status, starts).await
            }
            None => self.runtime.sync_pod(pod, status).await,
        };
        let mut actions = result.results.iter().map(|result| result.action);
        if actions.any(|action| action == SyncAction::ResizePodInPlace) {
            // The containers' resources appear only in their statuses, and lists do not contain them.
            self.pleg.request_reinspect(&uid);
        }
        let resize_failed = self.tell_of_failed_resize(pod, &result.results);
        if self.start_failures.update(&uid, &result) || resize_failed {
            // The kubelet reports this with the next sync, which is delayed by a back-off.
            let reported = self.statuses.pod_status(&uid);
            let api_status = self.generate(pod, status, reported.as_deref(), false).await;
            self.statuses.set_pod_status(pod, api_status);
        }
        if !result.results.is_empty() {
            self.save(pod).await;
        }
        if let Some(message) = result.summary() {
            return Err(match result.back_off_until() {
                Some(until) => Error::BackOff {
                    pod: pod.key(),
                    uid,
                    until,
                    message,
                },
                None => Error::SyncPod {
                    pod: pod.key(),
                    uid,
                    message,
                },
            });
        }
        if !result.results.is_empty() {
            // The changes appear in the next list: request it now.
            self.pleg.request_relist(&uid);
        }
        Ok(!result.results.is_empty())
    }

    /// Makes sure that the pod has its cgroup. A pod that runs outside of it is killed, and restarts inside.
    async fn ensure_cgroup(&self, pod: &Arc<Pod>, runs: bool) -> Result<()> {
        if runs && !self.pod_containers.exists(pod).await {
            let killed = async { self.kill(Some(pod), &*self.runtime_pod(pod).await?, None).await };
            match killed.await {
                // It has run already.
                Ok(()) if pod.spec.as_ref().is_some_and(runs_once) => return Ok(()),
                Ok(()) => {}
                Err(error) => tracing::error!(pod = %pod.key(), uid = pod.uid_str(), %error,
                    "Cannot kill a pod that runs outside its cgroup"),
            }
        }
        self.pod_containers.ensure_exists(pod).await.map_err(|error| {
            let message = format!("unable to ensure pod container exists: {error}");
            self.warn(pod, "FailedCreatePodContainer", message);
            let uid = pod.uid();
            Error::SyncPod {
                pod: pod.key(),
                message: format!(
                    "failed to ensure that the pod: {uid} cgroups exist and are correctly applied: {error}"
                ),
                uid,
            }
        })
    }

    /// Reports whether a resize is in progress. It ends when all running containers have what they were allocated.
    fn look_after_resize(&self, pod: &Pod, status: &PodStatus) {
        let (uid, generation) = (pod.uid(), pod.metadata.generation.unwrap_or_default());
        if self.runtime.is_pod_resize_in_progress(pod, status) {
            self.statuses
                .set_pod_resize_in_progress_condition(&uid, "", "", generation);
        } else if let Some(generation) = self.statuses.clear_pod_resize_in_progress_condition(&uid) {
            let message = resize_message("Pod resize completed", pod, generation, "");
            self.record(pod, EventType::Normal, "ResizeCompleted", message);
        }
    }

    /// Reports why a resize failed. Returns whether the error is new. The next sync retries it.
    fn tell_of_failed_resize(&self, pod: &Pod, results: &[SyncResult]) -> bool {
        let mut any_new = false;
        let resizes = results
            .iter()
            .filter(|result| result.action == SyncAction::ResizePodInPlace);
        for SyncFailure { message, .. } in resizes.filter_map(|result| result.failure.as_ref()) {
            let generation = pod.metadata.generation.unwrap_or_default();
            let (generation, is_new) =
                self.statuses
                    .set_pod_resize_in_progress_condition(&pod.uid(), "Error", message, generation);
            if is_new {
                let message = resize_message("Pod resize error", pod, generation, message);
                self.warn(pod, "ResizeError", message);
            }
            any_new |= is_new;
        }
        any_new
    }

    /// Restores the state of the previous run of the agent, before anything is reported or done for the pod.
    fn take_up(&self, pod: &Arc<Pod>, status: &PodStatus) {
        let found = self.checkpoints.as_ref();
        let Some(found) = found.and_then(|checkpoints| checkpoints.take_up(pod, status)) else {
            return;
        };
        let uid = pod.uid();
        if let Some(noted) = found.start_failures {
            self.start_failures.restore(&uid, noted);
        }
        if !found.back_offs.is_empty() {
            self.runtime.restore_back_offs(&uid, found.back_offs);
        }
        // Also if nothing was sent to the runtime yet: what the pod got is then known, too.
        if !found.actuated.is_empty() || !status.sandboxes.is_empty() {
            self.runtime.restore_actuated_resources(&uid, found.actuated);
        }
        if let Some(prober) = self.prober.as_ref().filter(|_| !found.probes.is_empty()) {
            prober.restore(pod, found.probes);
        }
    }

    /// The reported status of a pod that has ended, if the new status has less information: the runtime has nothing of
    /// the pod (it may have been rejected by the previous run of the agent), or the new status is older than the end.
    fn told_of_the_end(&self, pod: &Pod, status: &PodStatus) -> Option<ApiPodStatus> {
        let is_empty = status.sandboxes.is_empty() && status.containers.is_empty();
        if !is_empty && !status.is_running() {
            return None;
        }
        let reported = self.statuses.pod_status(&pod.uid());
        let told = reported.as_deref().or(pod.status.as_ref())?;
        has_terminal_phase(told).then(|| told.clone())
    }

    /// For a pod that is ending or has ended: without a ready sandbox the runtime has no IPs of it, also after a
    /// restart of the agent. The last known IPs are kept.
    async fn generate_with_ips(&self, pod: &Arc<Pod>, status: &PodStatus, terminal: bool) -> ApiPodStatus {
        let reported = self.statuses.pod_status(&pod.uid());
        let mut api_status = self.generate(pod, status, reported.as_deref(), terminal).await;
        if api_status.pod_ip.is_none()
            && let Some(told) = reported.as_deref().or(pod.status.as_ref())
        {
            api_status.pod_ip.clone_from(&told.pod_ip);
            api_status.pod_ips.clone_from(&told.pod_ips);
        }
        api_status
    }

    /// `reported`: the status reported last.
    async fn generate(
        &self,
        pod: &Arc<Pod>,
        status: &PodStatus,
        reported: Option<&ApiPodStatus>,
        terminal: bool,
    ) -> ApiPodStatus {
        let shown = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let resources = match shown {
            Some("Running") => self.pod_containers.resources(pod).await,
            _ => None,
        };
        let status = match &self.checkpoints {
            Some(checkpoints) => checkpoints.with_unreported(status),
            None => Cow::Borrowed(status),
        };
        let status = &*status;
        let failures = self.start_failures.of_pod(&status.uid);
        let eviction = past_active_deadline(pod, reported, &self.clock, &*self.recorder);
        let mut input = PodStatusInput::new(pod, status);
        input.reported = reported;
        input.resources = resources.as_ref();
        input.start_failures = failures.as_deref();
        input.probes = &*self.probes;
        input.terminal = terminal;
        input.eviction = eviction.as_ref();
        input.recursive_read_only = self.runtime.has_recursive_read_only_mounts(pod);
        let mut api_status = self.statuses.generate(&input);
        for health in &self.resource_health {
            health.update_allocated_resources_status(pod, &mut api_status);
        }
        if let Some(prober) = &self.prober {
            prober.probe_unready(&status.uid, &api_status);
        }
        api_status
    }

    /// Writes the records of all pods when the agent stops: results of probes may be newer than the last sync.
    pub(crate) async fn save_all(&self, pods: &[Arc<Pod>]) {
        let Some(checkpoints) = &self.checkpoints else {
            return;
        };
        let kept = pods.iter().filter(|pod| checkpoints.keeps(pod.uid_str()));
        futures::future::join_all(kept.map(|pod| self.save(pod))).await;
        checkpoints.write_resources_now(&self.allocations).await;
    }

    /// Writes the pod's record.
    async fn save(&self, pod: &Pod) {
        let Some(checkpoints) = &self.checkpoints else {
            return;
        };
        let uid = pod.uid();
        let record = Record {
            status: self.statuses.pod_status(&uid),
            probes: self
                .prober
                .as_ref()
                .map(|prober| prober.results_of(&uid))
                .unwrap_or_default(),
            start_failures: self.start_failures.of_pod(&uid),
            back_offs: self.runtime.back_offs(&uid),
            allocation: self.allocations.allocation(&uid),
            actuated: self.runtime.actuated_resources(&uid),
            ..Record::default()
        };
        checkpoints.save(&uid, record).await;
    }

    /// Observes the time since the agent first saw the pod, if its source recorded that.
    fn observe_since_first_seen(&self, metric: &'static str, pod: &Pod) {
        let seen = pod.annotation(crate::annotations::CONFIG_FIRST_SEEN);
        if let Some(seen) = seen.and_then(|seen| seen.parse().ok()) {
            let since = self.clock.now().duration_since(seen);
            metrics::histogram!(metric).record(since.as_secs_f64());
        }
    }

    async fn listed(&self, uid: &PodUid) -> Result<Option<Arc<RuntimePod>>> {
        within(
            "get pod",
            Some(uid),
            RUNTIME_REQUEST_TIMEOUT,
            self.runtime.pod(uid),
        )
        .await
    }

    async fn runtime_pod(&self, pod: &Pod) -> Result<Arc<RuntimePod>> {
        let uid = pod.uid();
        let found = self.listed(&uid).await?;
        Ok(found.unwrap_or_else(|| Arc::new(RuntimePod::empty(uid, pod.key()))))
    }

    async fn read_status(&self, pod: &RuntimePod) -> Result<Arc<PodStatus>> {
        let status = self.runtime.pod_status(pod);
        within("get pod status", Some(&pod.uid), RUNTIME_REQUEST_TIMEOUT, status).await
    }

    /// Kills the pod within its grace period plus the runtime's time limits for containers and sandboxes.
    async fn kill(
        &self,
        pod: Option<&Arc<Pod>>,
        running: &RuntimePod,
        grace: Option<Duration>,
    ) -> Result<()> {
        let own = pod.map_or(0, |pod| pod.termination_grace_period_seconds());
        let own = Duration::from_secs(u64::try_from(own).unwrap_or_default());
        let deadline = grace.unwrap_or(own).saturating_add(RUNTIME_REQUEST_TIMEOUT * 2);
        let killed = self.runtime.kill_pod(pod, running, grace);
        let killed = within("kill pod", Some(&running.uid), deadline, killed).await;
        killed.inspect_err(|error| {
            let message = format!("error killing pod: {error}");
            match pod {
                Some(pod) => self.warn(pod, "FailedKillPod", message),
                None => self.warn(&as_api_pod(running), "FailedKillPod", message),
            }
        })
    }

    /// Unmounts sub-paths of single containers before the volumes.
    async fn clean_sub_paths(&self, uid: &PodUid) -> Result<()> {
        let dir = self.root_dir.pod_volume_subpaths_dir(uid);
        let cleaned = dir.clone();
        let cleaned = self.disk.run(move || clean_sub_paths(&cleaned));
        let cleaned = async { cleaned.await.map_err(|error| Error::io(&dir, Some(uid), error)) };
        within("unmount sub-paths", Some(uid), MOUNT_DEADLINE, cleaned).await
    }

    /// Releases its ids for other pods (`UsernsManager.Release`).
    async fn release_user_namespace(&self, uid: &PodUid) -> Result<()> {
        let file = self.root_dir.pod_user_namespace_file(uid);
        let of_pod = file.clone();
        let removed = self.disk.run(move || files::remove(&of_pod));
        removed.await.map_err(|error| Error::io(&file, Some(uid), error))
    }

    /// `makePodDataDirs`
    async fn make_pod_dirs(&self, uid: &PodUid) -> Result<()> {
        let root = &self.root_dir;
        let at = root.pod_dir(uid);
        let dirs = [root.pod_volumes_dir(uid), root.pod_plugins_dir(uid)];
        let made = self.disk.run(move || {
            // They usually exist; one look is enough then.
            let mut missing = dirs.iter().filter(|dir| !dir.is_dir());
            missing.try_for_each(std::fs::create_dir_all)
        });
        made.await.map_err(|error| Error::io(&at, Some(uid), error))
    }

    fn warn(&self, pod: &Pod, reason: &str, message: String) {
        self.record(pod, EventType::Warning, reason, message);
    }

    fn record(&self, pod: &Pod, event_type: EventType, reason: &str, message: String) {
        self.recorder
            .record(Event::about(pod, event_type, reason, message));
    }
}

fn has_running_containers(api_status: &ApiPodStatus) -> bool {
    let statuses = api_status.container_statuses.iter().flatten();
    let mut states = statuses.filter_map(|status| status.state.as_ref());
    states.any(|state| state.running.is_some())
}

/// The status with the IPs that the API shows, if they differ.
fn with_ips<'a>(status: &'a PodStatus, api_status: &ApiPodStatus) -> Cow<'a, PodStatus> {
    let listed = api_status.pod_ips.iter().flatten();
    let mut ips: Vec<String> = listed.map(|shown| shown.ip.clone()).collect();
    if ips.is_empty() {
        ips.extend(api_status.pod_ip.clone().filter(|ip| !ip.is_empty()));
    }
    match ips == status.ips {
        true => Cow::Borrowed(status),
        false => Cow::Owned(PodStatus {
            ips,
            ..status.clone()
        }),
    }
}

/// The pod as far as the runtime knows it (`Pod.ToAPIPod`).
fn as_api_pod(running: &RuntimePod) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.namespace = Some(running.key.namespace.to_string());
    pod.metadata.name = Some(running.key.name.to_string());
    pod.metadata.uid = Some(running.uid.as_str().to_owned());
    pod
}
