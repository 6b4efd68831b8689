//! A runtime with a pod, and a PLEG that watches it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::runtime::{ContainerState, PodStatus};
use kubelet_core::{
    ContainerId, PlegEvents, PodCache, PodExt, PodLifecycleEventGenerator, PodLifecycleEventType, PodUid,
    Runtime, RuntimeReader,
};
use kubelet_cri::{CriClient, ImageService};
use kubelet_kuberuntime::CriRuntime;
use kubelet_testing::{Containerd, PodBuilder};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::observed::Observed;
use super::{until, within};

/// A runtime behind a socket.
pub(crate) struct Stage {
    pub(crate) runtime: Arc<CriRuntime>,
    root: TempDir,
}

impl Stage {
    pub(crate) async fn on(endpoint: String) -> Self {
        let client = Arc::new(CriClient::connect(&endpoint).await.unwrap());
        Self::with_images(endpoint, client).await
    }

    /// A runtime behind a socket, with the images that the host has.
    pub(crate) async fn with_images(endpoint: String, images: Arc<dyn ImageService>) -> Self {
        let client = Arc::new(CriClient::connect(endpoint).await.unwrap());
        let root = TempDir::new().unwrap();
        let runtime = CriRuntime::builder(client, images)
            .root_dir(root.path().join("kubelet"))
            .pod_logs_dir(root.path().join("logs"))
            .build()
            .await
            .unwrap();
        Self { runtime: Arc::new(runtime), root }
    }

    /// A folder for an agent.
    pub(crate) fn root_dir(&self) -> PathBuf {
        self.root.path().join("kubelet")
    }

    /// Runs a pod with this many containers, which run until they are killed; returns its UID.
    pub(crate) async fn run_pod(&self, name: &str, containers: usize) -> PodUid {
        let pod = sleeping_pod(name, containers);
        let nothing_yet = PodStatus::empty(pod.uid(), pod.key(), Instant::now());
        let result = self.runtime.sync_pod(&pod, &nothing_yet).await;
        assert!(result.is_ok(), "{result:?}");
        pod.uid()
    }

    /// Waits until the runtime itself reports the end of a container.
    pub(crate) async fn ended(&self, pod: &PodUid, container: &ContainerId) {
        let ended = async || {
            let pod = self.runtime.pod(pod).await.unwrap()?;
            let found = pod.containers.iter().find(|it| it.id == *container)?;
            (found.state == ContainerState::Exited).then_some(())
        };
        until("the runtime says that it ended", ended).await;
    }
}

/// A pod on the host's network that does nothing until SIGTERM.
pub(crate) fn sleeping_pod(name: &str, containers: usize) -> Arc<Pod> {
    let mut pod = PodBuilder::new(name).host_network();
    for number in 0..containers {
        pod = pod.container(&format!("c{number}"), Containerd::BUSYBOX, |container| {
            container.command(["sh", "-c", "trap 'exit 0' TERM; while true; do sleep 1 & wait $!; done"])
        });
    }
    pod.build()
}

/// The processes of containers, by the containers' ids.
pub(crate) async fn pids(containerd: &Containerd) -> HashMap<String, i32> {
    let tasks = containerd.tasks().await.unwrap();
    tasks.into_iter().map(|task| (task.id, task.pid.cast_signed())).collect()
}

/// A running PLEG and its events.
pub(crate) struct Watching {
    pub(crate) observed: Arc<Observed>,
    pub(crate) cache: PodCache,
    events: PlegEvents,
    shutdown: CancellationToken,
    pleg: JoinHandle<()>,
}

impl Watching {
    /// Watches the stage with this PLEG, and waits for its first list.
    pub(crate) async fn start<P>(stage: &Stage, pleg: impl FnOnce(Arc<Observed>, PodCache) -> P) -> Self
    where
        P: PodLifecycleEventGenerator,
    {
        let (observed, cache) = (Observed::new(stage.runtime.clone()), PodCache::new());
        let pleg = Box::new(pleg(observed.clone(), cache.clone()));
        let (events, shutdown) = (pleg.handle().subscribe(), CancellationToken::new());
        let pleg = tokio::spawn(pleg.run(shutdown.clone()));
        within("the first list", cache.listed()).await;
        Self { observed, cache, events, shutdown, pleg }
    }

    /// Waits for this event of a container, and returns its time.
    pub(crate) async fn told(
        &mut self,
        event_type: PodLifecycleEventType,
        container: &ContainerId,
    ) -> Instant {
        let told = async {
            loop {
                let (_, changes) = self.events.next().await.expect("the PLEG runs");
                let now = Instant::now();
                let mut changes = changes.iter();
                if changes.any(|it| it.event_type == event_type && it.container.as_ref() == Some(container)) {
                    return now;
                }
            }
        };
        within("an event", told).await
    }

    /// The containers of a pod, once this many run, as the cache has them.
    pub(crate) async fn running(&mut self, pod: &PodUid, count: usize) -> Vec<ContainerId> {
        let cache = self.cache.clone();
        let all_run = async || {
            let status = cache.get(pod).unwrap();
            let running: Vec<_> = status.running_containers().map(|it| it.id.clone()).collect();
            (running.len() == count).then_some(running)
        };
        until("all containers run", all_run).await
    }

    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        within("the end of the PLEG", self.pleg).await.unwrap();
    }
}
