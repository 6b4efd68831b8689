//! The engine above a runtime: the runtime manager, and a loop that syncs a pod until it is as its spec says, like a
//! pod worker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::runtime::{ContainerState, GcPolicy, PodStatus};
use kubelet_core::{PodExt, PodStateProvider, PodUid, Runtime, RuntimeReader};
use kubelet_kuberuntime::CriRuntime;
use tokio::time::{Instant, timeout};

use super::bench::{Bench, Services};
use super::program::Program;
use super::verdict::{During, Outcome, Seen, ensure};
use crate::PodBuilder;

/// A runtime manager on CRI services.
pub(crate) struct Engine {
    runtime: CriRuntime,
    /// The maximum time of a sync. After that the sync is dropped, and another one starts.
    sync_within: Duration,
}

impl Bench {
    /// Another manager on these services, with this time limit for a sync.
    pub(crate) async fn engine(&self, services: &Services, sync_within: Duration) -> Outcome<Engine> {
        let runtime = CriRuntime::builder(services.runtime.clone(), services.images.clone())
            .root_dir(self.dir.join("kit/root"))
            .pod_logs_dir(self.dir.join("kit/pods"))
            .clock(self.clock())
            .crash_loop_back_off(Duration::from_millis(1), Duration::from_millis(1));
        let runtime = self.answer("a runtime manager", runtime.build()).await??;
        Ok(Engine { runtime, sync_within })
    }

    /// A pod on the host's network with a container for each of these programs.
    pub(crate) fn pod(&self, containers: &[(&str, Program)]) -> Arc<Pod> {
        let uid = self.uid();
        let pod = PodBuilder::new(format!("pod-{uid}").to_lowercase().replace('_', "-"));
        let mut pod = pod.uid(uid).host_network().termination_grace_period_seconds(1);
        for (name, program) in containers {
            let workload = self.workload(program);
            pod = pod.container(name, &workload.image, |mut container| {
                if !workload.command.is_empty() {
                    container = container.command(workload.command.clone());
                }
                if !workload.args.is_empty() {
                    container = container.args(workload.args.clone());
                }
                let env = workload.env.iter();
                env.fold(container, |container, (name, value)| container.env(name, value))
            });
        }
        pod.build()
    }
}

impl Engine {
    /// The runtime's status of a pod.
    pub(crate) async fn look(&self, pod: &Pod) -> Outcome<Arc<PodStatus>> {
        let look = async {
            match self.runtime.pod(&pod.uid()).await? {
                Some(listed) => self.runtime.pod_status(&listed).await,
                None => Ok(Arc::new(PodStatus::empty(pod.uid(), pod.key(), Instant::now()))),
            }
        };
        match timeout(self.sync_within, look).await {
            Ok(status) => Ok(status?),
            Err(_) => Err(Seen::new("a look at the pod hangs")),
        }
    }

    /// Runs one sync and returns its error, if any.
    pub(crate) async fn sync(&self, pod: &Arc<Pod>) -> Option<String> {
        let status = match self.look(pod).await {
            Ok(status) => status,
            Err(seen) => return Some(seen.into_text()),
        };
        match timeout(self.sync_within, self.runtime.sync_pod(pod, &status)).await {
            Ok(result) => result.summary(),
            Err(_) => Some("the sync hangs, and was dropped".to_owned()),
        }
    }

    /// Syncs the pod until all its containers run.
    pub(crate) async fn run(&self, bench: &Bench, pod: &Arc<Pod>) -> Outcome<Arc<PodStatus>> {
        let wanted = pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
        let mut last = String::new();
        let running = bench.until("all containers of the pod run", async || {
            last = self.sync(pod).await.unwrap_or_default();
            let Ok(status) = self.look(pod).await else {
                return Ok(None);
            };
            let names: std::collections::BTreeSet<_> = status
                .running_containers()
                .map(|container| container.name.clone())
                .collect();
            Ok((names.len() == wanted).then_some(status))
        });
        let running = running.await;
        running.map_err(|seen| Seen::new(format!("{}; the last sync: {last:?}", seen.into_text())))
    }

    /// Kills the pod until nothing of it runs.
    pub(crate) async fn kill(&self, bench: &Bench, pod: &Arc<Pod>) -> Outcome {
        let mut last = String::new();
        let killed = bench.until("nothing of the pod runs", async || {
            let kill = async {
                if let Some(listed) = self.runtime.pod(&pod.uid()).await? {
                    self.runtime.kill_pod(Some(pod), &listed, None).await?;
                }
                Ok::<_, kubelet_core::Error>(())
            };
            match timeout(self.sync_within + Duration::from_secs(2), kill).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => last = error.to_string(),
                Err(_) => last = "the kill hangs, and was dropped".to_owned(),
            }
            Ok(self
                .look(pod)
                .await
                .ok()
                .filter(|status| !status.is_running())
                .map(drop))
        });
        let killed = killed.await;
        killed.map_err(|seen| Seen::new(format!("{}; the last kill: {last:?}", seen.into_text())))
    }

    /// Collects garbage until nothing is left of a killed pod.
    pub(crate) async fn clean_up(&self, bench: &Bench, pod: &Pod) -> Outcome {
        let policy = GcPolicy {
            max_per_pod_container: Some(0),
            max_containers: Some(0),
            all_sources_ready: true,
            evict_terminated_pods: true,
            ..GcPolicy::default()
        };
        let mut last = String::new();
        let cleaned = bench.until("nothing is left of the pod", async || {
            match timeout(self.sync_within, self.runtime.garbage_collect(&policy, &AllGone)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => last = error.to_string(),
                Err(_) => last = "the collection hangs, and was dropped".to_owned(),
            }
            let left = self.runtime.pod(&pod.uid()).await;
            Ok(left
                .ok()
                .filter(|left| left.as_ref().is_none_or(|left| left.is_empty()))
                .map(drop))
        });
        let cleaned = cleaned.await;
        cleaned.map_err(|seen| Seen::new(format!("{}; the last collection: {last:?}", seen.into_text())))
    }

    /// Kills the pod and checks that nothing is left of it.
    pub(crate) async fn end(&self, bench: &Bench, pod: &Arc<Pod>) -> Outcome {
        self.kill(bench, pod).await.during("killing the pod")?;
        self.clean_up(bench, pod)
            .await
            .during("cleaning up after the pod")
    }
}

/// Checks that each container of the pod runs once.
pub(crate) fn each_runs_once(status: &PodStatus) -> Outcome {
    let mut running = BTreeMap::<_, Vec<_>>::new();
    for container in status.running_containers() {
        running
            .entry(&container.name)
            .or_default()
            .push(container.id.to_string());
    }
    let once = running.values().all(|ids| ids.len() == 1);
    ensure!(
        once && !running.is_empty(),
        "by name, these containers run: {running:?}"
    );
    Ok(())
}

/// Checks that the same containers as before still run, and no others.
pub(crate) fn same_containers_run(before: &PodStatus, after: &PodStatus) -> Outcome {
    let running = |status: &PodStatus| {
        let mut running: Vec<_> = status
            .containers
            .iter()
            .filter(|container| container.state == ContainerState::Running)
            .map(|container| {
                (
                    container.name.clone(),
                    container.id.to_string(),
                    container.started_at,
                )
            })
            .collect();
        running.sort();
        running
    };
    let (before, after) = (running(before), running(after));
    ensure!(before == after, "there ran {before:?}; now there run {after:?}");
    Ok(())
}

struct AllGone;

impl PodStateProvider for AllGone {
    fn should_pod_content_be_removed(&self, _: &PodUid) -> bool {
        true
    }

    fn should_pod_runtime_be_removed(&self, _: &PodUid) -> bool {
        true
    }
}
