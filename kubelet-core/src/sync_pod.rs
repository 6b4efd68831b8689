//! `syncPod`: one pod brought closer to what it should be, over the traits of this crate.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};

use crate::clock::api_time;
use crate::pod_syncer::{PodStatusFn, PodSyncer, SyncOutcome, SyncPodType};
use crate::runtime::{PodStatus, Runtime, RuntimePod};
use crate::runtime_state::RuntimeState;
use crate::start_failures::StartFailures;
use crate::{
    Disk, Error, Event, EventRecorder, EventType, PlegHandle, PodExt, PodStatusInput, PodStatusReporter,
    PodUid, ProbeManagerHandle, ProbeResults, Result, RootDir, VolumeManager,
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
    /// Where events go.
    pub recorder: Arc<dyn EventRecorder>,
    /// Asked to look at a pod that was just changed.
    pub pleg: Arc<dyn PlegHandle>,
    /// Where its folder is made.
    pub root_dir: RootDir,
    /// Who makes it.
    pub disk: Disk,
}

/// How long a pod's volumes may take before the sync is tried anew (`podAttachAndMountTimeout`).
const MOUNT_DEADLINE: Duration = Duration::from_secs(2 * 60 + 3);

/// The grace period of a pod that only the runtime knows.
const ORPHAN_GRACE_PERIOD: Duration = Duration::from_secs(1);

#[async_trait]
impl PodSyncer for RuntimePodSyncer {
    async fn sync_pod(
        &self,
        _update: SyncPodType,
        pod: &Arc<Pod>,
        _mirror: Option<&Arc<Pod>>,
        status: &Arc<PodStatus>,
    ) -> Result<SyncOutcome> {
        let api_status = self.generate(pod, status, false);
        let terminal = matches!(api_status.phase.as_deref(), Some("Succeeded" | "Failed"));
        self.statuses.set_pod_status(pod, api_status);
        if terminal {
            return Ok(SyncOutcome {
                terminal: true,
                resync_at: None,
            });
        }

        if !pod.host_network()
            && let Err(error) = self.runtime_state.network_errors()
        {
            self.warn(pod, "NetworkNotReady", error.to_string());
            return Err(error);
        }

        let uid = pod.uid();
        self.make_pod_dirs(&uid).await.inspect_err(|error| {
            let message = format!("error making pod data directories: {error}");
            self.warn(pod, "Failed", message);
        })?;
        self.mount(pod).await.inspect_err(|error| {
            self.warn(
                pod,
                "FailedMount",
                format!("Unable to attach or mount volumes: {error}"),
            );
        })?;

        if let Some(prober) = &self.prober {
            prober.add_pod(pod);
        }
        let result = self.runtime.sync_pod(pod, status).await;
        if self.start_failures.update(&uid, &result) {
            // The kubelet tells with the next sync, which a back-off puts off until it is over.
            self.statuses
                .set_pod_status(pod, self.generate(pod, status, false));
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
        Ok(SyncOutcome::default())
    }

    async fn sync_terminating_pod(
        &self,
        pod: &Arc<Pod>,
        status: &Arc<PodStatus>,
        grace_period: Option<Duration>,
        status_fn: Option<&PodStatusFn>,
    ) -> Result<()> {
        let uid = pod.uid();
        let mut api_status = match self.statuses.pod_status(&uid) {
            // It could not be read in time, or there is nothing. Made of it, a status would tell of
            // containers that were lost, and they may still run.
            Some(told) if status.sandboxes.is_empty() && status.containers.is_empty() => {
                ApiPodStatus::clone(&told)
            }
            _ => self.generate(pod, status, false),
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
        self.runtime
            .kill_pod(Some(pod), &running, grace_period)
            .await
            .inspect_err(|error| {
                self.warn(pod, "FailedKillPod", format!("error killing pod: {error}"));
            })?;

        if let Some(prober) = &self.prober {
            prober.remove_pod(&uid);
        }
        let mut stopped = self.runtime.pod_status(&*self.runtime_pod(pod).await?).await?;
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
        stopped.ips.clone_from(&status.ips);
        let api_status = self.generate(pod, &stopped, true);
        self.statuses.set_pod_status(pod, api_status);
        Ok(())
    }

    async fn sync_terminating_runtime_pod(&self, running: &Arc<RuntimePod>) -> Result<()> {
        // Asked anew: who reported it may have seen an old list, and must not stop what is not there.
        match self.runtime.pod(&running.uid).await? {
            Some(running) => {
                self.runtime
                    .kill_pod(None, &running, Some(ORPHAN_GRACE_PERIOD))
                    .await
            }
            None => Ok(()),
        }
    }

    async fn sync_terminated_pod(&self, pod: &Arc<Pod>, status: &Arc<PodStatus>) -> Result<()> {
        let api_status = self.generate(pod, status, true);
        self.statuses.set_pod_status(pod, api_status);
        self.volumes.wait_for_unmount(pod).await?;
        self.statuses.terminate_pod(pod);
        Ok(())
    }
}

impl RuntimePodSyncer {
    fn generate(&self, pod: &Arc<Pod>, status: &PodStatus, terminal: bool) -> ApiPodStatus {
        let failures = self.start_failures.of_pod(&status.uid);
        let mut input = PodStatusInput::new(pod, status);
        input.start_failures = failures.as_deref();
        input.probes = &*self.probes;
        input.terminal = terminal;
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

    async fn runtime_pod(&self, pod: &Pod) -> Result<Arc<RuntimePod>> {
        let uid = pod.uid();
        let found = self.runtime.pod(&uid).await?;
        Ok(found.unwrap_or_else(|| Arc::new(RuntimePod::empty(uid, pod.key()))))
    }

    /// `makePodDataDirs`
    async fn make_pod_dirs(&self, uid: &PodUid) -> Result<()> {
        let root = &self.root_dir;
        let dirs = [
            root.pod_dir(uid),
            root.pod_volumes_dir(uid),
            root.pod_plugins_dir(uid),
        ];
        let at = dirs[0].clone();
        let made = self
            .disk
            .run(move || dirs.iter().try_for_each(std::fs::create_dir_all));
        made.await.map_err(|error| Error::io(&at, Some(uid), error))
    }

    async fn mount(&self, pod: &Arc<Pod>) -> Result<()> {
        let mounted = tokio::time::timeout(MOUNT_DEADLINE, self.volumes.wait_for_attach_and_mount(pod)).await;
        mounted.unwrap_or_else(|_| {
            Err(Error::Timeout {
                what: "attach and mount volumes",
                pod: Some(pod.uid()),
                after: MOUNT_DEADLINE,
            })
        })
    }

    fn warn(&self, pod: &Pod, reason: &str, message: String) {
        self.recorder.record(Event {
            pod,
            field_path: None,
            event_type: EventType::Warning,
            reason,
            message,
        });
    }
}
