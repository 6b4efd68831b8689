//! The assembly over a runtime of pods, in virtual time: who is started, killed, told and forgotten, and when.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::rig::{Node, Pods, gone, pod};
use async_trait::async_trait;
use futures::stream;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kubelet_config::PodConfig;
use kubelet_core::runtime::{PodStatus, SyncFailure};
use kubelet_core::{
    AllocationState, Clock, Disk, Error, Kubelet, KubeletBuilder, LogEvents, MirrorPods, MountedVolume,
    NoPodContainers, NoProbes, NoVolumes, PlegHandle, PodCache, PodExt, PodLifecycleEventGenerator,
    PodStatusManager, PodSyncer, PodUid, Result, RootDir, RuntimePodSyncer, RuntimeReader, RuntimeState,
    StartFailures, StreamSource, SyncPodType, VolumeManager,
};
use kubelet_pleg::GenericPleg;
use kubelet_status::{MemorySink, StatusManager};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

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
async fn a_pod_that_has_ended_by_itself_is_not_started_again_when_its_source_flaps() {
    let (node, [file]) = Node::start(Pods::default(), ["file"]);
    let mut once = pod("a");
    let spec = once.spec.get_or_insert_default();
    spec.restart_policy = Some("Never".to_owned());
    spec.active_deadline_seconds = Some(30);
    let once = Arc::new(once);
    file.send(vec![once.clone()]).unwrap();
    node.wait_for_phase("a", "Failed").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    node.runtime.done.send_modify(Vec::clear);
    // Between two looks of the housekeeping.
    file.send(vec![]).unwrap();
    tokio::task::yield_now().await;
    file.send(vec![once]).unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!node.runtime.did("started a"));
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
async fn the_folder_of_a_pod_that_went_while_no_agent_ran_goes_with_its_volumes() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("pods/gone");
    // As the agent before left them, or a kubelet.
    for volume in [
        "kubernetes.io~empty-dir/scratch",
        "kubernetes.io~configmap/settings",
    ] {
        let volume = folder.join("volumes").join(volume);
        std::fs::create_dir_all(&volume).unwrap();
        std::fs::write(volume.join("file"), "kept").unwrap();
    }
    let (root_dir, volumes) = (root.path().to_owned(), LeftVolumes::allowed(root.path(), 1));
    let more = |builder: KubeletBuilder| builder.root_dir(root_dir).volumes(volumes);
    let (node, [file]) = Node::start_with(Pods::default(), ["file"], more);
    file.send(vec![]).unwrap();
    gone(&folder).await;
    node.stop().await;
}

/// Mounts nothing, and removes what an earlier agent left in the folders of pods when it is allowed to.
struct LeftVolumes {
    root: PathBuf,
    asked: watch::Sender<bool>,
    allowed: Semaphore,
}

impl LeftVolumes {
    /// For so many pods.
    fn allowed(root: &Path, pods: usize) -> Arc<Self> {
        Arc::new(Self {
            root: root.to_owned(),
            asked: watch::Sender::new(false),
            allowed: Semaphore::new(pods),
        })
    }
}

#[async_trait]
impl VolumeManager for LeftVolumes {
    async fn wait_for_attach_and_mount(&self, _: &Arc<Pod>) -> Result<()> {
        Ok(())
    }
    fn mounted_volumes(&self, _: &PodUid) -> BTreeMap<String, MountedVolume> {
        BTreeMap::new()
    }
    async fn wait_for_unmount(&self, _: &Arc<Pod>) -> Result<()> {
        Ok(())
    }
    async fn unmount_orphaned(&self, uid: &PodUid) -> Result<()> {
        self.asked.send_replace(true);
        self.allowed.acquire().await.unwrap().forget();
        let volumes = RootDir::new(&self.root).pod_volumes_dir(uid);
        std::fs::remove_dir_all(&volumes).map_err(|error| Error::io(&volumes, Some(uid), error))
    }
}

/// Who sees a terminal phase takes the pod's CPUs and devices for free, and sends the next pod to the node.
#[tokio::test(start_paused = true)]
async fn a_pod_is_shown_as_ended_when_it_holds_nothing_any_more() {
    let (node, [file]) = Node::start(Pods::default(), ["file"]);
    let mut once = pod("a");
    once.spec.as_mut().unwrap().restart_policy = Some("Never".to_owned());
    file.send(vec![Arc::new(once)]).unwrap();
    node.wait_for_phase("a", "Running").await;

    // Its container ends, and its sandbox is slow to stop.
    node.runtime.kill_hangs.send_replace(true);
    node.runtime.pods.lock().get_mut("a").unwrap().1 = false;
    node.runtime.wait_for("kill of a hangs").await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let shown = node.status("a");
    let container = &shown.container_statuses.as_ref().unwrap()[0];
    assert!(container.state.as_ref().unwrap().terminated.is_some());
    assert_eq!(shown.phase.as_deref(), Some("Running"));
    assert_eq!(node.handle.active_pods().len(), 1);

    node.runtime.kill_hangs.send_replace(false);
    node.wait_for_phase("a", "Failed").await;
    assert!(node.handle.active_pods().is_empty());
    node.stop().await;
}

/// A static pod that is taken away and put back has the same UID.
#[tokio::test(start_paused = true)]
async fn the_folder_of_a_pod_that_comes_back_while_it_is_removed_stays() {
    let root = tempfile::tempdir().unwrap();
    let (folder, other) = (root.path().join("pods/a"), root.path().join("pods/b"));
    for folder in [&folder, &other] {
        std::fs::create_dir_all(folder.join("volumes")).unwrap();
    }
    let slow = LeftVolumes::allowed(root.path(), 0);
    let (root_dir, volumes) = (root.path().to_owned(), slow.clone());
    let more = |builder: KubeletBuilder| builder.root_dir(root_dir).volumes(volumes);
    let (node, [file]) = Node::start_with(Pods::default(), ["file"], more);
    file.send(vec![]).unwrap();
    slow.asked.subscribe().wait_for(|asked| *asked).await.unwrap();

    file.send(vec![Arc::new(pod("a"))]).unwrap();
    node.wait_for_phase("a", "Running").await;
    std::fs::write(folder.join("userns"), "its ids").unwrap();
    slow.allowed.add_permits(2);
    gone(&other).await;
    assert!(folder.join("userns").exists());
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
async fn a_runtime_is_asked_when_somebody_wants_to_know() {
    let unasked = RuntimeState::new();
    let nobody_asks = tokio::time::timeout(Duration::from_secs(60), unasked.ask_now());
    assert!(nobody_asks.await.is_err());

    let runtime = Pods::default();
    *runtime.network_down.lock() = true;
    let (node, [_file]) = Node::start(runtime, ["file"]);
    let state = node.handle.runtime_state();
    state.asked().await;
    let begun = Instant::now();
    state.ask_now().await;
    assert!(state.network_errors().is_err());
    *node.runtime.network_down.lock() = false;
    state.ask_now().await;
    assert!(state.network_errors().is_ok());
    assert!(begun.elapsed() < Duration::from_secs(1));
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
        pod_containers: Arc::new(NoPodContainers),
        dynamic_resources: None,
        resource_health: Vec::new(),
        recorder: Arc::new(LogEvents),
        pleg: GenericPleg::new(runtime.clone(), cache).handle(),
        root_dir: RootDir::new(root.path()),
        disk: Disk::default(),
        clock: Clock::system(),
        checkpoints: None,
        mirrors: MirrorPods::default(),
        allocations: AllocationState::default(),
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
