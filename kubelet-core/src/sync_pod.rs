//! `syncPod`: one pod brought closer to what it should be, over the traits of this crate.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};

use tokio::time::Instant;

use crate::active_deadline::{active_deadline, past_active_deadline};
use crate::allocation::resize_message;
use crate::checkpoint::Record;
use crate::clock::api_time;
use crate::deadline::{RUNTIME_REQUEST_TIMEOUT, within};
use crate::pod::{has_terminal_phase, restarts_all_containers};
use crate::pod_syncer::{PodStatusFn, PodSyncer, SyncOutcome, SyncPodType};
use crate::restart_rules::runs_once;
use crate::runtime::{PodStatus, Runtime, RuntimePod, SyncAction, SyncFailure, SyncResult};
use crate::runtime_state::RuntimeState;
use crate::start_failures::StartFailures;
use crate::volume::clean_sub_paths;
use crate::{
    AllocationState, Checkpoints, Clock, Disk, Error, Event, EventRecorder, EventType, MirrorPods,
    PlegHandle, PodContainerManager, PodExt, PodStatusInput, PodStatusReporter, PodUid, ProbeManagerHandle,
    ProbeResults, Rejection, Result, RootDir, VolumeManager,
};

/// The kubelet's own [`PodSyncer`]: generates and reports the status, waits for network and volumes, has the
/// runtime do the rest, and on the way down kills, looks, and cleans up.
///
/// Answers to `Kubelet.SyncPod`, `SyncTerminatingPod`, `SyncTerminatingRuntimePod` and `SyncTerminatedPod`.
pub struct RuntimePodSyncer {
    /// What runs the pod.
    pub runtime: Arc<dyn Runtime>,
    /// Whether the pod's network can be made.
    pub runtime_state: RuntimeState,
    /// Where its status is made and reported.
    pub statuses: Arc<dyn PodStatusReporter>,
    /// Where failed starts are noted for the status.
    pub start_failures: StartFailures,
    /// What the probes found.
    pub probes: Arc<dyn ProbeResults>,
    /// Who probes, if anyone does.
    pub prober: Option<ProbeManagerHandle>,
    /// Who mounts its volumes.
    pub volumes: Arc<dyn VolumeManager>,
    /// Who makes its cgroup.
    pub pod_containers: Arc<dyn PodContainerManager>,
    /// Where events go.
    pub recorder: Arc<dyn EventRecorder>,
    /// Asked to look at a pod that was just changed.
    pub pleg: Arc<dyn PlegHandle>,
    /// Where its folder is made.
    pub root_dir: RootDir,
    /// Who makes it.
    pub disk: Disk,
    /// What time it is: for active deadlines.
    pub clock: Clock,
    /// Where is kept what of each pod outlasts the agent, if it is.
    pub checkpoints: Option<Checkpoints>,
    /// Who looks after the mirrors of static pods.
    pub mirrors: MirrorPods,
    /// What each pod was allocated: to be recorded with it.
    pub allocations: AllocationState,
}

/// How long a pod's volumes may take before the sync is tried anew (`podAttachAndMountTimeout`).
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
        // Whatever the update: one that creates a pod may be merged with one that changes it.
        self.statuses.begin_pod(&pod.uid());
        self.take_up(pod, status);
        self.look_after_resize(pod, status);
        let reported = self.statuses.pod_status(&pod.uid());
        let api_status = self.generate(pod, status, reported.as_deref(), false).await;
        // On the host's network a pod has the host's IPs, of which the runtime knows nothing.
        let status = with_ips(status, &api_status);
        let phase = api_status.phase.clone().unwrap_or_default();
        let starts_over = restarts_all_containers(&api_status);
        let runs = has_running_containers(&api_status);
        let before = reported.as_ref().and_then(|reported| reported.phase.as_deref());
        if phase == "Running" && before == Some("Pending") {
            self.observe_since_first_seen("kubelet_pod_start_duration_seconds", pod);
        }
        // It takes a while from here on, and many pods may wait.
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

        // A static pod may be what the API server is made of: it does not wait for its mirror.
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
            // Containers were removed so that all start over: of that no event tells.
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
            // It could not be read in time, or there is nothing. Made of it, a status would tell of
            // containers that were lost, and they may still run.
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
        // Asked anew and not taken from `status`: a container that the cache has not seen yet must end too.
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
        // A stopped sandbox has no IPs any more; the last status shows those the pod had
        // (`preserveDataFromBeforeStopping`).
        let mut stopped = Arc::unwrap_or_clone(stopped);
        stopped.ips.clone_from(&status.ips);
        let api_status = self.generate_with_ips(pod, &stopped, true).await;
        self.statuses.set_pod_status(pod, api_status);
        self.save(pod).await;
        Ok(())
    }

    async fn sync_terminating_runtime_pod(&self, running: &Arc<RuntimePod>) -> Result<()> {
        // Asked anew: who reported it may have seen an old list, and must not stop what is not there.
        match self.listed(&running.uid).await? {
            Some(running) => self.kill(None, &running, Some(ORPHAN_GRACE_PERIOD)).await,
            None => Ok(()),
        }
    }

    async fn sync_terminated_pod(&self, pod: &Arc<Pod>, status: &Arc<PodStatus>) -> Result<()> {
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
    /// What a pod needs on the host before it can run, and then the runtime's part. Whether something was done.
    async fn set_up_and_run(&self, pod: &Arc<Pod>, status: &PodStatus) -> Result<bool> {
        let uid = pod.uid();
        self.make_pod_dirs(&uid).await.inspect_err(|error| {
            let message = format!("error making pod data directories: {error}");
            self.warn(pod, "Failed", message);
        })?;
        // It may have had no folder for its record before.
        let is_recorded = |checkpoints: &Checkpoints| checkpoints.is_written(&uid);
        if !self.checkpoints.as_ref().is_none_or(is_recorded) {
            self.save(pod).await;
        }
        let mounted = self.volumes.wait_for_attach_and_mount(pod);
        let mounted = within("attach and mount volumes", Some(&uid), MOUNT_DEADLINE, mounted).await;
        mounted.inspect_err(|error| {
            let why = match error {
                // That the pod is rejected is told instead.
                Error::VolumeAttachLimitExceeded { .. } => return,
                // The event says itself which pod it is about.
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
            // What its containers have now shows in their statuses alone, and no list tells of it.
            self.pleg.request_reinspect(&uid);
        }
        let resize_failed = self.tell_of_failed_resize(pod, &result.results);
        if self.start_failures.update(&uid, &result) || resize_failed {
            // The kubelet tells with the next sync, which a back-off puts off until it is over.
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
            // What was done shows in the next list: no need to wait a period for it.
            self.pleg.request_relist(&uid);
        }
        Ok(!result.results.is_empty())
    }

    /// Sees to it that the pod has its cgroup. One that runs outside of it is killed, so that it comes back inside.
    async fn ensure_cgroup(&self, pod: &Arc<Pod>, runs: bool) -> Result<()> {
        if runs && !self.pod_containers.exists(pod).await {
            let killed = async { self.kill(Some(pod), &*self.runtime_pod(pod).await?, None).await };
            match killed.await {
                // It has run.
                Ok(()) if pod.spec.as_ref().is_some_and(runs_once) => return Ok(()),
                Ok(()) => {}
                Err(error) => tracing::error!(pod = %pod.key(), uid = pod.uid_str(), %error,
                    "cannot kill a pod that runs outside of its cgroup"),
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

    /// Says whether a resize is being done; one that was is over once all that runs has what it was allocated.
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

    /// Says why a resize could not be done, and tells whether that is new. It is tried again with the next sync.
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

    /// Goes on where the agent before this one has ended: before anything is told or done of the pod.
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
        if !found.actuated.is_empty() {
            self.runtime.restore_actuated_resources(&uid, found.actuated);
        }
        if let Some(prober) = self.prober.as_ref().filter(|_| !found.probes.is_empty()) {
            prober.restore(pod, found.probes);
        }
    }

    /// What was told of a pod that has ended, where this status has nothing to add: the runtime has nothing of the pod (any
    /// more; it may have been turned away by the agent before this one), or was read before the end.
    fn told_of_the_end(&self, pod: &Pod, status: &PodStatus) -> Option<ApiPodStatus> {
        let is_empty = status.sandboxes.is_empty() && status.containers.is_empty();
        if !is_empty && !status.is_running() {
            return None;
        }
        let reported = self.statuses.pod_status(&pod.uid());
        let told = reported.as_deref().or(pod.status.as_ref())?;
        has_terminal_phase(told).then(|| told.clone())
    }

    /// Of a pod that ends or has ended: without a sandbox that is ready the runtime does not know its IPs any more, and an
    /// agent that began since never did. It shows those that it had.
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

    /// `reported`: what was told of the pod last.
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
        let mut api_status = self.statuses.generate(&input);
        if api_status.start_time.is_none() {
            // The agent was restarted and no source keeps the pod's status: it began with its first sandbox.
            let sandboxes = status.sandboxes.iter();
            api_status.start_time = sandboxes
                .filter_map(|sandbox| sandbox.created_at)
                .min()
                .map(api_time);
        }
        if let Some(prober) = &self.prober {
            prober.probe_unready(&status.uid, &api_status);
        }
        api_status
    }

    /// Records the pods as they are when the agent ends: what probes found may be newer than the last sync.
    pub(crate) async fn save_all(&self, pods: &[Arc<Pod>]) {
        let Some(checkpoints) = &self.checkpoints else {
            return;
        };
        let kept = pods.iter().filter(|pod| checkpoints.keeps(pod.uid_str()));
        futures::future::join_all(kept.map(|pod| self.save(pod))).await;
    }

    /// Records what of the pod is to outlast the agent.
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

    /// How long it is since the agent first saw the pod, where a source noted that.
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

    /// Kills the pod, within its grace period and the time that the runtime may take beside it: for its containers, and
    /// for its sandboxes.
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

    /// What of the volumes was mounted for single containers goes before the volumes do.
    async fn clean_sub_paths(&self, uid: &PodUid) -> Result<()> {
        let dir = self.root_dir.pod_volume_subpaths_dir(uid);
        let cleaned = dir.clone();
        let cleaned = self.disk.run(move || clean_sub_paths(&cleaned));
        let cleaned = async { cleaned.await.map_err(|error| Error::io(&dir, Some(uid), error)) };
        within("unmount sub-paths", Some(uid), MOUNT_DEADLINE, cleaned).await
    }

    /// Its ids are free for another pod (`UsernsManager.Release`).
    async fn release_user_namespace(&self, uid: &PodUid) -> Result<()> {
        let file = self.root_dir.pod_user_namespace_file(uid);
        let of_pod = file.clone();
        let removed = self.disk.run(move || match std::fs::remove_file(of_pod) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        });
        removed.await.map_err(|error| Error::io(&file, Some(uid), error))
    }

    /// `makePodDataDirs`
    async fn make_pod_dirs(&self, uid: &PodUid) -> Result<()> {
        let root = &self.root_dir;
        let at = root.pod_dir(uid);
        let dirs = [root.pod_volumes_dir(uid), root.pod_plugins_dir(uid)];
        let made = self.disk.run(move || {
            // Mostly they are there, and one look tells.
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

/// The status with the IPs that the API shows, where those are others.
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

/// All that is known of a pod that only the runtime knows (`Pod.ToAPIPod`).
fn as_api_pod(running: &RuntimePod) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.namespace = Some(running.key.namespace.to_string());
    pod.metadata.name = Some(running.key.name.to_string());
    pod.metadata.uid = Some(running.uid.as_str().to_owned());
    pod
}
