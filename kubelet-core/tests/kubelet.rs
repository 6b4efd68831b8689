//! The assembly over a runtime of pods, in virtual time: who is started, killed, told and forgotten, and when.
#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kubelet_config::PodConfig;
use kubelet_core::runtime::{
    Container, ContainerState, ContainerStatus, PodStatus, PodSyncResult, Readiness, RuntimePod,
    RuntimeStatus, Sandbox, SandboxState, SandboxStatus, SyncAction, SyncFailure,
};
use kubelet_core::{
    ContainerId, Disk, Error, Kubelet, KubeletHandle, LogEvents, NoProbes, NoVolumes, PlegHandle, PodCache,
    PodExt, PodKey, PodLifecycleEventGenerator, PodStatusManager, PodSyncer, PodUid, Result, RootDir,
    Runtime, RuntimePodSyncer, RuntimeReader, RuntimeState, StartFailures, StreamSource, SyncPodType,
};
use kubelet_pleg::GenericPleg;
use kubelet_status::{MemorySink, StatusManager};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A runtime to which a pod is one thing that runs or does not.
#[derive(Default)]
struct Pods {
    pods: Mutex<BTreeMap<PodUid, (PodKey, bool)>>,
    /// What was done, told to the test.
    done: watch::Sender<Vec<String>>,
    network_down: Mutex<bool>,
    runtime_down: Mutex<bool>,
    fails: Mutex<Option<SyncFailure>>,
    list_fails: Mutex<bool>,
    kill_hangs: watch::Sender<bool>,
    /// The pod whose status never comes.
    status_hangs: Mutex<Option<PodUid>>,
}

impl Pods {
    fn note(&self, what: String) {
        self.done.send_modify(|done| done.push(what));
    }

    fn running(&self, uid: &str) {
        self.pods
            .lock()
            .insert(uid.into(), (PodKey::new("ns", uid), true));
    }

    async fn wait_for(&self, what: &str) {
        let mut done = self.done.subscribe();
        let found = done.wait_for(|done| done.iter().any(|it| it == what));
        let found = tokio::time::timeout(Duration::from_secs(600), found).await;
        assert!(found.is_ok(), "{what:?} never came: {:?}", self.done.borrow());
    }

    fn did(&self, what: &str) -> bool {
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

    async fn pod_status(&self, pod: &RuntimePod) -> Result<PodStatus> {
        if self.status_hangs.lock().as_ref() == Some(&pod.uid) {
            std::future::pending().await
        }
        let mut status = PodStatus::empty(pod.uid.clone(), pod.key.clone(), Instant::now());
        for container in &pod.containers {
            status.containers.push(ContainerStatus::new(
                container.id.clone(),
                &*container.name,
                container.state,
            ));
        }
        for sandbox in &pod.sandboxes {
            let created_at = Some(Timestamp::UNIX_EPOCH);
            status.sandboxes.push(SandboxStatus {
                created_at,
                ..SandboxStatus::new(sandbox.id.id(), sandbox.state)
            });
        }
        Ok(status)
    }
}

#[async_trait]
impl Runtime for Pods {
    fn runtime_type(&self) -> &str {
        "pods"
    }

    async fn status(&self) -> Result<RuntimeStatus> {
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

    fn forget_pod(&self, uid: &PodUid) {
        self.note(format!("forgot {uid}"));
    }
}

fn pod(uid: &str) -> Pod {
    serde_json::from_value(serde_json::json!({
        "metadata": {"namespace": "ns", "name": uid, "uid": uid},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "terminationGracePeriodSeconds": 7,
        },
    }))
    .unwrap()
}

type Snapshot = mpsc::UnboundedSender<Vec<Arc<Pod>>>;

struct Node {
    runtime: Arc<Pods>,
    statuses: MemorySink,
    handle: KubeletHandle,
    root: tempfile::TempDir,
    shutdown: CancellationToken,
    running: JoinHandle<Result<()>>,
}

impl Node {
    /// A node with these sources, and what to tell through each.
    fn start<const N: usize>(runtime: Pods, sources: [&str; N]) -> (Self, [Snapshot; N]) {
        Self::start_listing_every(Duration::from_secs(1), runtime, sources)
    }

    fn start_listing_every<const N: usize>(
        relist_period: Duration,
        runtime: Pods,
        sources: [&str; N],
    ) -> (Self, [Snapshot; N]) {
        let mut config = PodConfig::builder();
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
        let kubelet = Kubelet::builder()
            .pods(config.build().unwrap())
            .pleg(pleg, cache)
            .runtime(runtime.clone())
            .statuses(StatusManager::new(statuses.clone()))
            .root_dir(root.path())
            .build()
            .unwrap();
        let (handle, shutdown) = (kubelet.handle(), CancellationToken::new());
        let running = tokio::spawn(kubelet.run(shutdown.clone()));
        (
            Self {
                runtime,
                statuses,
                handle,
                root,
                shutdown,
                running,
            },
            senders,
        )
    }

    async fn wait_for_phase(&self, uid: &str, phase: &str) {
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

    async fn stop(self) {
        self.shutdown.cancel();
        self.running.await.unwrap().unwrap();
    }
}

/// Waits until the folder is not there any more. Nobody tells, so it is looked at each virtual second.
async fn gone(folder: &std::path::Path) {
    let looked = async {
        while folder.exists() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let looked = tokio::time::timeout(Duration::from_secs(600), looked).await;
    assert!(looked.is_ok(), "{} stays", folder.display());
}

#[tokio::test(start_paused = true)]
async fn a_pod_comes_runs_and_goes_and_nothing_of_it_stays() {
    let (node, [file]) = Node::start(Pods::default(), ["file"]);
    file.send(vec![Arc::new(pod("a"))]).unwrap();
    node.runtime.wait_for("started a").await;
    node.wait_for_phase("a", "Running").await;
    assert!(node.root.path().join("pods/a/volumes").is_dir());
    assert!(node.handle.workers().could_have_running_containers(&"a".into()));

    file.send(vec![]).unwrap();
    node.runtime.wait_for("killed a in 7").await;
    node.runtime.wait_for("forgot a").await;
    gone(&node.root.path().join("pods/a")).await;
    assert!(node.handle.pods().is_empty());
    let mut pods = node.statuses.watch();
    tokio::time::timeout(Duration::from_secs(60), pods.wait_for(|pods| pods.is_empty()))
        .await
        .unwrap()
        .unwrap();
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_nobody_lists_is_killed_but_not_before_all_sources_spoke() {
    let runtime = Pods::default();
    runtime.running("orphan");
    runtime.running("kept");
    let (node, [file, api]) = Node::start(runtime, ["file", "api"]);
    file.send(vec![Arc::new(pod("first"))]).unwrap();
    node.runtime.wait_for("started first").await;
    // A minute of relists and housekeeping goes by; one source has not spoken yet.
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!node.runtime.did("killed unknown orphan in 1") && !node.handle.sources().all_ready());

    api.send(vec![Arc::new(pod("kept"))]).unwrap();
    node.runtime.wait_for("killed unknown orphan in 1").await;
    node.wait_for_phase("kept", "Running").await;
    let began = |uid: &str| {
        node.statuses
            .get(&uid.into())
            .and_then(|status| Some(status.start_time.as_ref()?.0))
    };
    assert_eq!(
        began("kept"),
        Some(Timestamp::UNIX_EPOCH),
        "a restart of the agent does not make it younger"
    );
    assert!(began("first") > Some(Timestamp::UNIX_EPOCH));
    assert!(
        !node.runtime.did("started kept"),
        "it ran already: it is taken over"
    );
    // A source that says that its pod is gone is believed at once.
    file.send(vec![]).unwrap();
    node.runtime.wait_for("killed first in 7").await;
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_synced_while_the_runtime_is_down() {
    let runtime = Pods::default();
    *runtime.runtime_down.lock() = true;
    let (node, [file]) = Node::start(runtime, ["file"]);
    file.send(vec![Arc::new(pod("a"))]).unwrap();
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(!node.runtime.did("started a"));
    assert!(node.handle.runtime_state().runtime_errors().is_err());
    *node.runtime.runtime_down.lock() = false;
    node.runtime.wait_for("started a").await;
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pods_wait_for_the_network_unless_they_are_on_the_hosts() {
    let runtime = Pods::default();
    *runtime.network_down.lock() = true;
    let (node, [file]) = Node::start(runtime, ["file"]);
    let mut host = pod("host");
    host.spec.as_mut().unwrap().host_network = Some(true);
    file.send(vec![Arc::new(pod("a")), Arc::new(host)]).unwrap();
    node.runtime.wait_for("started host").await;
    assert!(!node.runtime.did("started a"));
    node.wait_for_phase("a", "Pending").await;
    *node.runtime.network_down.lock() = false;
    node.runtime.wait_for("started a").await;
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_is_told_at_once_and_tried_when_its_back_off_is_over() {
    let runtime = Pods::default();
    let until = Instant::now() + Duration::from_secs(40);
    *runtime.fails.lock() = Some(SyncFailure {
        reason: "CrashLoopBackOff".into(),
        message: "back-off 40s".into(),
        back_off_until: Some(until),
    });
    let (node, [file]) = Node::start(runtime, ["file"]);
    file.send(vec![Arc::new(pod("a"))]).unwrap();
    let mut pods = node.statuses.watch();
    let told = pods.wait_for(|pods| {
        let status = pods
            .get("a")
            .and_then(|pod| pod.status.container_statuses.as_ref()?.first());
        let waiting = status.and_then(|status| status.state.as_ref()?.waiting.as_ref());
        waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some("CrashLoopBackOff"))
    });
    tokio::time::timeout(Duration::from_secs(600), told)
        .await
        .unwrap()
        .unwrap();
    assert!(Instant::now() < until, "it is told while it waits");
    *node.runtime.fails.lock() = None;
    node.runtime.wait_for("started a").await;
    assert!(Instant::now() >= until);
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_pods_may_be_ended_with_the_agent() {
    let (node, [file]) = Node::start(Pods::default(), ["file"]);
    file.send(["a", "b", "c"].map(|uid| Arc::new(pod(uid))).to_vec())
        .unwrap();
    for uid in ["a", "b", "c"] {
        node.wait_for_phase(uid, "Running").await;
    }
    node.handle.end_pods(Some(Duration::from_secs(3))).await;
    for uid in ["a", "b", "c"] {
        assert!(node.runtime.did(&format!("killed {uid} in 3")));
        assert!(node.handle.workers().should_pod_be_finished(&uid.into()));
    }
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_went_before_the_next_clean_up_is_forgotten_too() {
    let (node, [file]) = Node::start_listing_every(Duration::from_millis(50), Pods::default(), ["file"]);
    file.send(vec![Arc::new(pod("a"))]).unwrap();
    node.runtime.wait_for("started a").await;
    file.send(vec![]).unwrap();
    node.runtime.wait_for("killed a in 7").await;
    node.runtime.wait_for("forgot a").await;
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_back_while_it_ends_is_started_again() {
    let (node, [file]) = Node::start(Pods::default(), ["file"]);
    node.runtime.kill_hangs.send_replace(true);
    file.send(vec![Arc::new(pod("a"))]).unwrap();
    node.wait_for_phase("a", "Running").await;
    file.send(vec![]).unwrap();
    node.runtime.wait_for("kill of a hangs").await;
    file.send(vec![Arc::new(pod("a"))]).unwrap();
    node.runtime.done.send_modify(Vec::clear);
    node.runtime.kill_hangs.send_replace(false);
    node.runtime.wait_for("started a").await;
    node.wait_for_phase("a", "Running").await;
    assert!(node.root.path().join("pods/a/volumes").is_dir());
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ended_by_its_sources_word_is_killed() {
    let (node, [api]) = Node::start(Pods::default(), ["api"]);
    api.send(vec![Arc::new(pod("a"))]).unwrap();
    node.wait_for_phase("a", "Running").await;
    let mut failed = pod("a");
    failed.status.get_or_insert_default().phase = Some("Failed".into());
    api.send(vec![Arc::new(failed)]).unwrap();
    node.runtime.wait_for("killed a in 7").await;
    node.wait_for_phase("a", "Failed").await;
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ended_long_ago_goes_when_its_source_wants_it_gone() {
    let (node, [api]) = Node::start(Pods::default(), ["api"]);
    api.send(vec![Arc::new(pod("a"))]).unwrap();
    node.wait_for_phase("a", "Running").await;
    let mut ended = pod("a");
    ended.status.get_or_insert_default().phase = Some("Failed".into());
    api.send(vec![Arc::new(ended.clone())]).unwrap();
    node.wait_for_phase("a", "Failed").await;
    // Its worker is done with it, and looks at it no more.
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(node.statuses.get(&"a".into()).is_some());
    let now = "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap();
    ended.metadata.deletion_timestamp = Some(kubelet_core::clock::api_time(now));
    api.send(vec![Arc::new(ended)]).unwrap();
    let mut pods = node.statuses.watch();
    tokio::time::timeout(Duration::from_secs(60), pods.wait_for(|pods| pods.is_empty()))
        .await
        .unwrap()
        .unwrap();
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_folder_of_a_pod_that_was_not_looked_at_yet_stays() {
    let runtime = Pods::default();
    runtime.running("slow");
    *runtime.status_hangs.lock() = Some("slow".into());
    let (node, [file]) = Node::start(runtime, ["file"]);
    let folder = node.root.path().join("pods/slow");
    std::fs::create_dir_all(&folder).unwrap();
    file.send(vec![]).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(node.handle.sources().all_ready() && folder.exists());
    *node.runtime.status_hangs.lock() = None;
    node.runtime.wait_for("killed unknown slow in 1").await;
    node.runtime.wait_for("forgot slow").await;
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_cannot_be_listed_is_not_ready() {
    let runtime = Pods::default();
    *runtime.list_fails.lock() = true;
    let (node, [file]) = Node::start(runtime, ["file"]);
    file.send(vec![Arc::new(pod("a"))]).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    let error = node.handle.runtime_state().runtime_errors().unwrap_err();
    assert!(error.to_string().contains("PLEG is not healthy"), "{error}");
    *node.runtime.list_fails.lock() = false;
    node.runtime.wait_for("started a").await;
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_ends_and_cannot_be_read_is_not_said_to_have_lost_its_containers() {
    let (runtime, cache) = (Arc::new(Pods::default()), PodCache::new());
    let statuses = StatusManager::new(MemorySink::new());
    let root = tempfile::tempdir().unwrap();
    let syncer = RuntimePodSyncer {
        runtime: runtime.clone(),
        runtime_state: RuntimeState::new(),
        statuses: PodStatusManager::reporter(&statuses),
        start_failures: StartFailures::new(),
        probes: Arc::new(NoProbes),
        prober: None,
        volumes: Arc::new(NoVolumes),
        recorder: Arc::new(LogEvents),
        pleg: GenericPleg::new(runtime.clone(), cache).handle(),
        root_dir: RootDir::new(root.path()),
        disk: Disk::default(),
    };
    runtime.running("a");
    let mut on_host = pod("a");
    on_host.spec.as_mut().unwrap().host_network = Some(true);
    let pod = Arc::new(on_host);
    let listed = runtime.pod(&"a".into()).await.unwrap().unwrap();
    let status = Arc::new(runtime.pod_status(&listed).await.unwrap());
    syncer
        .sync_pod(SyncPodType::Create, &pod, None, &status)
        .await
        .unwrap();
    let told = || {
        let status = syncer.statuses.pod_status(&"a".into()).unwrap();
        let container = status.container_statuses.as_ref().unwrap()[0].clone();
        (
            container.state.unwrap().running.is_some(),
            container.restart_count,
        )
    };
    assert_eq!(told(), (true, 0));

    runtime.kill_hangs.send_replace(true);
    let unknown = Arc::new(PodStatus::empty("a".into(), pod.key(), Instant::now()));
    let end = syncer.sync_terminating_pod(&pod, &unknown, None, None);
    assert!(tokio::time::timeout(Duration::from_secs(1), end).await.is_err());
    assert_eq!(told(), (true, 0), "it runs still, for all that is known");
}

#[tokio::test(start_paused = true)]
async fn a_part_that_panics_ends_the_agent() {
    struct Broken(GenericPleg);
    #[async_trait]
    impl PodLifecycleEventGenerator for Broken {
        fn handle(&self) -> Arc<dyn PlegHandle> {
            self.0.handle()
        }
        async fn run(self: Box<Self>, _: CancellationToken) {
            panic!("a bug")
        }
    }
    let (runtime, cache) = (Arc::new(Pods::default()), PodCache::new());
    let root = tempfile::tempdir().unwrap();
    let config = PodConfig::builder().source(StreamSource::new("file", stream::pending()));
    let kubelet = Kubelet::builder()
        .pods(config.build().unwrap())
        .pleg(Broken(GenericPleg::new(runtime.clone(), cache.clone())), cache)
        .runtime(runtime)
        .statuses(StatusManager::new(MemorySink::new()))
        .root_dir(root.path())
        .build()
        .unwrap();
    let run = kubelet.run(CancellationToken::new());
    let ended = tokio::time::timeout(Duration::from_secs(600), run).await;
    assert!(ended.unwrap().is_err());
}

#[test]
fn all_that_is_wrong_is_told_together() {
    let error = Kubelet::builder().root_dir("relative").build().unwrap_err();
    let Error::Misconfigured { problems } = &error else {
        panic!("{error}")
    };
    assert_eq!(problems.len(), 5, "{error}");
}
