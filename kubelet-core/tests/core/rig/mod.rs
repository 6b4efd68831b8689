//! A node over a runtime of pods, with its sources, its statuses and its events.
pub(crate) mod recorded;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use k8s_openapi::jiff::Timestamp;
use kubelet_config::PodConfig;
use kubelet_core::runtime::{
    Container, ContainerState, ContainerStatus, GcPolicy, PodStatus, PodSyncResult, Readiness, RuntimePod,
    RuntimeStatus, Sandbox, SandboxState, SandboxStatus, SyncAction, SyncFailure,
};
use kubelet_core::{
    Clock, ContainerId, Error, Event, EventRecorder, Kubelet, KubeletBuilder, KubeletHandle, PodCache,
    PodExt, PodKey, PodStateProvider, PodUid, ProbeOutcome, ProbeTarget, Prober, Result, Runtime,
    RuntimeReader, StreamSource,
};
use kubelet_pleg::GenericPleg;
use kubelet_status::{MemorySink, StatusManager, StatusManagerConfig};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A runtime to which a pod is one thing that runs or does not.
#[derive(Default)]
pub(crate) struct Pods {
    pub(crate) pods: Mutex<BTreeMap<PodUid, (PodKey, bool)>>,
    /// What was done, told to the test.
    pub(crate) done: watch::Sender<Vec<String>>,
    pub(crate) network_down: Mutex<bool>,
    pub(crate) runtime_down: Mutex<bool>,
    pub(crate) fails: Mutex<Option<SyncFailure>>,
    pub(crate) list_fails: Mutex<bool>,
    pub(crate) kill_hangs: watch::Sender<bool>,
    /// Whether the runtime is silent when it is asked how it is.
    pub(crate) is_silent: watch::Sender<bool>,
    /// The pod whose status never comes.
    pub(crate) status_hangs: Mutex<Option<PodUid>>,
}

impl Pods {
    pub(crate) fn note(&self, what: String) {
        self.done.send_modify(|done| done.push(what));
    }

    pub(crate) fn running(&self, uid: &str) {
        self.pods
            .lock()
            .insert(uid.into(), (PodKey::new("ns", uid), true));
    }

    pub(crate) async fn wait_for(&self, what: &str) {
        let mut done = self.done.subscribe();
        let found = done.wait_for(|done| done.iter().any(|it| it == what));
        let found = tokio::time::timeout(Duration::from_secs(600), found).await;
        assert!(found.is_ok(), "{what:?} never came: {:?}", self.done.borrow());
    }

    pub(crate) fn did(&self, what: &str) -> bool {
        self.done.borrow().iter().any(|it| it == what)
    }
}

#[async_trait]
impl RuntimeReader for Pods {
    async fn pods(&self, _all: bool) -> Result<Vec<Arc<RuntimePod>>> {
        if *self.list_fails.lock() {
            return Err(Error::runtime("ListPods", std::io::Error::other("down")));
        }
        let pods = self.pods.lock();
        let listed = pods.iter().map(|(uid, (key, running))| {
            let mut pod = RuntimePod::empty(uid.clone(), key.clone());
            let (container, sandbox) = match running {
                true => (ContainerState::Running, SandboxState::Ready),
                false => (ContainerState::Exited, SandboxState::NotReady),
            };
            pod.containers.push(Container::new(
                ContainerId::new("pods", format!("{uid}-c")),
                "c",
                container,
            ));
            pod.sandboxes.push(Sandbox::new(
                ContainerId::new("pods", format!("{uid}-s")),
                sandbox,
            ));
            Arc::new(pod)
        });
        Ok(listed.collect())
    }

    async fn pod_status(&self, pod: &RuntimePod) -> Result<Arc<PodStatus>> {
        if self.status_hangs.lock().as_ref() == Some(&pod.uid) {
            std::future::pending().await
        }
        let mut status = PodStatus::empty(pod.uid.clone(), pod.key.clone(), Instant::now());
        for container in &pod.containers {
            status.containers.push(ContainerStatus {
                // Nothing here ends unless it is killed.
                exit_code: if container.state == ContainerState::Exited {
                    137
                } else {
                    0
                },
                ..ContainerStatus::new(container.id.clone(), &*container.name, container.state)
            });
        }
        for sandbox in &pod.sandboxes {
            let created_at = Some(Timestamp::UNIX_EPOCH);
            status.sandboxes.push(SandboxStatus {
                created_at,
                ..SandboxStatus::new(sandbox.id.id(), sandbox.state)
            });
        }
        Ok(Arc::new(status))
    }
}

#[async_trait]
impl Runtime for Pods {
    fn runtime_type(&self) -> &str {
        "pods"
    }

    async fn status(&self) -> Result<RuntimeStatus> {
        if *self.is_silent.borrow() {
            self.note("silent".into());
            // Whoever has asked meanwhile is never answered.
            std::future::pending::<()>().await;
        }
        if *self.runtime_down.lock() {
            return Err(Error::runtime("Status", std::io::Error::other("down")));
        }
        let network_ready = match *self.network_down.lock() {
            true => Readiness::NotReady("no cni".into()),
            false => Readiness::Ready,
        };
        Ok(RuntimeStatus {
            runtime_ready: Readiness::Ready,
            network_ready,
        })
    }

    async fn sync_pod(&self, pod: &Arc<Pod>, status: &PodStatus) -> PodSyncResult {
        let mut result = PodSyncResult::default();
        if let Some(failure) = self.fails.lock().clone() {
            result.failed(SyncAction::StartContainer, "c", failure);
            return result;
        }
        if !status.is_running() {
            self.running(pod.uid_str());
            self.note(format!("started {}", pod.uid()));
            result.succeeded(SyncAction::StartContainer, "c");
        }
        result
    }

    async fn kill_pod(
        &self,
        pod: Option<&Arc<Pod>>,
        running: &RuntimePod,
        grace: Option<Duration>,
    ) -> Result<()> {
        if *self.kill_hangs.borrow() {
            self.note(format!("kill of {} hangs", running.uid));
        }
        let _ = self.kill_hangs.subscribe().wait_for(|hangs| !hangs).await;
        if let Some(pod) = self.pods.lock().get_mut(&running.uid) {
            pod.1 = false;
        }
        let known = if pod.is_some() { "" } else { " unknown" };
        self.note(format!(
            "killed{known} {} in {}",
            running.uid,
            grace.unwrap_or_default().as_secs()
        ));
        Ok(())
    }

    async fn garbage_collect(&self, policy: &GcPolicy, pods: &dyn PodStateProvider) -> Result<()> {
        let removable = |uid: &&PodUid| policy.all_sources_ready && pods.should_pod_content_be_removed(uid);
        let garbage: Vec<PodUid> = self.pods.lock().keys().filter(removable).cloned().collect();
        for uid in garbage {
            self.note(format!("collected {uid}"));
        }
        Ok(())
    }

    fn forget_pod(&self, uid: &PodUid) {
        self.note(format!("forgot {uid}"));
    }
}

/// The reasons of all events, in order.
#[derive(Clone, Default)]
pub(crate) struct Events(Arc<watch::Sender<Vec<String>>>);

impl EventRecorder for Events {
    fn record(&self, event: Event<'_>) {
        self.0.send_modify(|events| events.push(event.reason.to_owned()));
    }
}

impl Events {
    pub(crate) fn count(&self, reason: &str) -> usize {
        self.0.borrow().iter().filter(|it| *it == reason).count()
    }

    pub(crate) async fn wait_for(&self, reason: &str) {
        let mut events = self.0.subscribe();
        let found = events.wait_for(|events| events.iter().any(|it| it == reason));
        let found = tokio::time::timeout(Duration::from_secs(600), found)
            .await
            .map(drop);
        assert!(found.is_ok(), "no event {reason:?}: {:?}", self.0.borrow());
    }
}

pub(crate) fn pod(uid: &str) -> Pod {
    serde_json::from_value(serde_json::json!({
        "metadata": {"namespace": "ns", "name": uid, "uid": uid},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "terminationGracePeriodSeconds": 7,
        },
    }))
    .unwrap()
}

pub(crate) type Snapshot = mpsc::UnboundedSender<Vec<Arc<Pod>>>;

pub(crate) struct Node {
    pub(crate) runtime: Arc<Pods>,
    pub(crate) statuses: MemorySink,
    pub(crate) events: Events,
    pub(crate) handle: KubeletHandle,
    pub(crate) root: tempfile::TempDir,
    pub(crate) shutdown: CancellationToken,
    pub(crate) running: JoinHandle<Result<()>>,
}

impl Node {
    /// A node with these sources, and what to tell through each.
    pub(crate) fn start<const N: usize>(runtime: Pods, sources: [&str; N]) -> (Self, [Snapshot; N]) {
        Self::start_listing_every(Duration::from_secs(1), runtime, sources)
    }

    /// The same, built with something more.
    pub(crate) fn start_with<const N: usize>(
        runtime: Pods,
        sources: [&str; N],
        more: impl FnOnce(KubeletBuilder) -> KubeletBuilder,
    ) -> (Self, [Snapshot; N]) {
        Self::build(Duration::from_secs(1), runtime, sources, more)
    }

    pub(crate) fn start_listing_every<const N: usize>(
        relist_period: Duration,
        runtime: Pods,
        sources: [&str; N],
    ) -> (Self, [Snapshot; N]) {
        Self::build(relist_period, runtime, sources, |builder| builder)
    }

    fn build<const N: usize>(
        relist_period: Duration,
        runtime: Pods,
        sources: [&str; N],
        more: impl FnOnce(KubeletBuilder) -> KubeletBuilder,
    ) -> (Self, [Snapshot; N]) {
        let clock = Clock::starting_at(Timestamp::constant(1_767_225_600, 0));
        let mut config = PodConfig::builder().clock(clock);
        let senders = sources.map(|name| {
            let (sender, receiver) = mpsc::unbounded_channel();
            let snapshots = stream::unfold(receiver, async |mut receiver| {
                Some((receiver.recv().await?, receiver))
            });
            config = std::mem::replace(&mut config, PodConfig::builder())
                .source(StreamSource::new(name, snapshots.boxed()));
            sender
        });
        let (runtime, statuses, cache) = (Arc::new(runtime), MemorySink::new(), PodCache::new());
        let root = tempfile::tempdir().unwrap();
        let pleg = GenericPleg::new(runtime.clone(), cache.clone()).with_relist_period(relist_period);
        let mut status_config = StatusManagerConfig::default();
        status_config.clock = clock;
        let events = Events::default();
        let kubelet = Kubelet::builder()
            .pods(config.build().unwrap())
            .pleg(pleg, cache)
            .runtime(runtime.clone())
            .statuses(StatusManager::with_config(statuses.clone(), status_config))
            .recorder(Arc::new(events.clone()))
            .root_dir(root.path())
            .clock(clock);
        let kubelet = more(kubelet).build().unwrap();
        let (handle, shutdown) = (kubelet.handle(), CancellationToken::new());
        let running = tokio::spawn(kubelet.run(shutdown.clone()));
        (
            Self {
                runtime,
                statuses,
                events,
                handle,
                root,
                shutdown,
                running,
            },
            senders,
        )
    }

    pub(crate) async fn wait_for_phase(&self, uid: &str, phase: &str) {
        let mut pods = self.statuses.watch();
        let found = pods.wait_for(|pods| {
            pods.get(uid)
                .is_some_and(|pod| pod.status.phase.as_deref() == Some(phase))
        });
        let found = tokio::time::timeout(Duration::from_secs(600), found)
            .await
            .map(drop);
        assert!(
            found.is_ok(),
            "{uid} never was {phase}: {:?}",
            self.statuses.get(&uid.into())
        );
    }

    pub(crate) fn status(&self, uid: &str) -> ApiPodStatus {
        ApiPodStatus::clone(&self.statuses.get(&uid.into()).unwrap())
    }

    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        self.running.await.unwrap().unwrap();
    }
}

/// Waits until the folder is not there any more. Nobody tells, so it is looked at each virtual second.
pub(crate) async fn gone(folder: &std::path::Path) {
    let looked = async {
        while folder.exists() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let looked = tokio::time::timeout(Duration::from_secs(600), looked).await;
    assert!(looked.is_ok(), "{} stays", folder.display());
}

/// Answers every probe as it is told to at the time.
pub(crate) struct Answers(pub(crate) watch::Sender<bool>);

impl Answers {
    pub(crate) fn new(good: bool) -> Arc<Self> {
        Arc::new(Self(watch::Sender::new(good)))
    }
}

#[async_trait]
impl Prober for Answers {
    async fn probe(&self, _: &ProbeTarget) -> ProbeOutcome {
        match *self.0.borrow() {
            true => ProbeOutcome::Success,
            false => ProbeOutcome::failure("no"),
        }
    }
}
