//! The manager against the API server in memory, whose requests go wrong in every way, under paused time: at the end the
//! server shows what the node knows, and was asked no more than it takes.
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use kubelet_core::{Clock, ContainerId, PodExt, PodStatusReporter};
use kubelet_status::{ApiServerSink, StatusManager, StatusManagerConfig, StatusManagerHandle};
use kubelet_testing::api_server::{Fault, Verb};
use kubelet_testing::{ApiServer, User, eventually};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A manager at work for an API server.
struct Node {
    server: ApiServer,
    handle: StatusManagerHandle,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Node {
    fn start() -> Self {
        Self::with(|_| {})
    }

    fn with(set: impl FnOnce(&mut StatusManagerConfig)) -> Self {
        let clock = Clock::starting_at("2026-01-01T00:00:00Z".parse().unwrap());
        let server = ApiServer::builder().clock(clock).record_reads().seed(1).build();
        let mut config = StatusManagerConfig::default();
        config.clock = clock;
        set(&mut config);
        Self::of(server, config)
    }

    fn of(server: ApiServer, config: StatusManagerConfig) -> Self {
        let manager = StatusManager::with_config(ApiServerSink::new(server.client()), config);
        let shutdown = CancellationToken::new();
        Self {
            server,
            handle: manager.handle(),
            task: tokio::spawn(manager.run(shutdown.clone())),
            shutdown,
        }
    }

    /// A pod in the server, as an API source would tell of it.
    fn pod(&self, name: &str) -> Arc<Pod> {
        let pod = json!({"metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": "one", "restartPolicy": "Always", "containers": [{"name": "c", "image": "busybox:1.36"}]}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        Arc::new(self.server.create(&pod).unwrap())
    }

    fn there(&self, name: &str) -> Option<Pod> {
        self.server.get("default", name).unwrap()
    }

    /// What the server shows and what the node knows, where they differ.
    fn difference(&self, pod: &Pod) -> Option<(Value, Value)> {
        let there = self.there(pod.metadata.name.as_deref().unwrap());
        let shown = json!(there.and_then(|there| there.status));
        let known = json!(self.handle.pod_status(&pod.uid()).as_deref());
        (shown != known).then_some((shown, known))
    }

    async fn at_the_truth(&self, pod: &Pod) {
        eventually!(self.difference(pod), |difference| difference.is_none());
    }

    /// The verbs of all requests so far.
    fn requests(&self) -> Vec<&'static str> {
        self.server
            .calls()
            .all()
            .iter()
            .map(|call| call.verb.as_str())
            .collect()
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }

    /// A new manager, which knows nothing, for the same server.
    async fn restarted(self) -> Self {
        let server = self.server.clone();
        self.stop().await;
        let mut config = StatusManagerConfig::default();
        config.clock = Clock::starting_at("2026-01-01T01:00:00Z".parse().unwrap());
        Self::of(server, config)
    }
}

fn status(phase: &str, state: Value, ready: bool) -> ApiPodStatus {
    let is_ready = if ready { "True" } else { "False" };
    serde_json::from_value(json!({
        "phase": phase, "qosClass": "BestEffort",
        "conditions": [{"type": "Ready", "status": is_ready, "observedGeneration": 1},
            {"type": "ContainersReady", "status": is_ready, "observedGeneration": 1}],
        "containerStatuses": [{"name": "c", "image": "i", "imageID": "i", "containerID": "fake://c", "ready": ready,
            "started": ready, "restartCount": 0, "state": state, "lastState": {}}],
    }))
    .unwrap()
}

fn waiting() -> ApiPodStatus {
    status(
        "Pending",
        json!({"waiting": {"reason": "ContainerCreating"}}),
        false,
    )
}

fn running() -> ApiPodStatus {
    status(
        "Running",
        json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}}),
        true,
    )
}

fn ended() -> ApiPodStatus {
    let end =
        json!({"exitCode": 0, "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z"});
    status("Succeeded", json!({"terminated": end}), false)
}

#[tokio::test(start_paused = true)]
async fn a_change_is_one_patch_and_none_is_no_request() {
    let node = Node::start();
    let pod = node.pod("web");
    node.handle.set_pod_status(&pod, waiting());
    node.at_the_truth(&pod).await;
    for _ in 0..10 {
        tokio::time::advance(Duration::from_secs(10)).await;
        node.handle.set_pod_status(&pod, waiting());
        // The watch shows what we wrote.
        node.handle.observe_pod(&Arc::new(node.there("web").unwrap()));
    }
    node.handle.set_pod_status(&pod, running());
    node.at_the_truth(&pod).await;
    assert_eq!(node.requests(), ["patch", "patch"]);
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_many_pods_is_one_patch_each() {
    let node = Node::with(|config| config.qps = 0);
    let pods: Vec<_> = (0..100).map(|n| node.pod(&format!("p{n}"))).collect();
    for pod in &pods {
        for status in [waiting(), running(), waiting(), running()] {
            node.handle.set_pod_status(pod, status);
        }
    }
    for pod in &pods {
        node.at_the_truth(pod).await;
    }
    assert_eq!(node.requests(), ["patch"; 100]);
    node.stop().await;
}

/// What befalls the first patch; the requests that it takes; how long at least.
type Case = (fn(Fault), &'static [&'static str], u64);

#[tokio::test(start_paused = true)]
async fn whatever_befalls_a_patch_the_server_shows_the_truth() {
    let cases: &[Case] = &[
        (
            |fault| fault.fails(409, "conflict"),
            &["patch", "get", "patch"],
            500,
        ),
        (
            |fault| fault.fails(404, "not found"),
            &["patch", "get", "patch"],
            500,
        ),
        (
            |fault| fault.fails(500, "etcdserver: leader changed"),
            &["patch", "get", "patch"],
            500,
        ),
        (
            |fault| fault.fails(503, "apiserver not ready"),
            &["patch", "get", "patch"],
            500,
        ),
        (
            |fault| fault.fails(429, "slow down"),
            &["patch", "get", "patch"],
            500,
        ),
        (
            |fault| fault.too_many_requests(Duration::from_secs(7)),
            &["patch", "get", "patch"],
            7000,
        ),
        (|fault| fault.connection_lost(), &["patch", "get", "patch"], 500),
        // The work may have been done: that is looked up, and not done twice.
        (|fault| fault.reply_lost(), &["patch", "get"], 0),
        (|fault| fault.reply_hangs(), &["patch", "get"], 0),
        (|fault| fault.hangs(), &["patch", "get", "patch"], 30_500),
        (
            |fault| fault.reply_delayed(Duration::from_secs(20)),
            &["patch"],
            0,
        ),
        (|fault| fault.slow(Duration::from_secs(20)), &["patch"], 20_000),
    ];
    for (number, (befall, requests, at_least)) in cases.iter().enumerate() {
        let node = Node::start();
        let pod = node.pod("web");
        befall(
            node.server
                .faults()
                .on(Verb::Patch)
                .resource("pods/status")
                .first(1),
        );
        let start = Instant::now();
        node.handle.set_pod_status(&pod, waiting());
        tokio::task::yield_now().await;
        node.at_the_truth(&pod).await;
        assert!(
            start.elapsed() >= Duration::from_millis(*at_least),
            "case {number}: {:?}",
            start.elapsed()
        );
        // What was lost is looked up before long.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(node.requests(), *requests, "case {number}");
        // And all is well again.
        node.handle.set_pod_status(&pod, running());
        node.at_the_truth(&pod).await;
        assert_eq!(node.requests().len(), requests.len() + 1, "case {number}");
        node.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_costs_one_status_in_memory_and_one_patch() {
    let node = Node::start();
    let pod = node.pod("web");
    node.server.down_for(Duration::from_secs(600));
    for _ in 0..60 {
        node.handle.set_pod_status(&pod, waiting());
        node.handle.set_pod_status(&pod, running());
        tokio::time::sleep(Duration::from_secs(9)).await;
    }
    let start = Instant::now();
    node.at_the_truth(&pod).await;
    assert!(start.elapsed() < Duration::from_secs(71), "{:?}", start.elapsed());
    assert_eq!(node.requests(), ["get", "patch"]);
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_made_anew_under_the_same_name_is_never_patched() {
    let node = Node::start();
    let old = node.pod("web");
    node.handle.set_pod_status(&old, waiting());
    node.at_the_truth(&old).await;
    node.server.faults().on(Verb::Patch).first(1).fails(500, "no");
    node.handle.set_pod_status(&old, running());
    eventually!(node.requests().len(), |requests| *requests == 2);
    // Meanwhile it was deleted by force and made anew.
    let api: kube_client::Api<Pod> = kube_client::Api::namespaced(node.server.client(), "default");
    let now = kube_client::api::DeleteParams::default().grace_period(0);
    api.delete("web", &now).await.unwrap();
    let new = node.pod("web");
    assert_ne!(old.uid(), new.uid());
    eventually!(node.handle.pod_status(&old.uid()), |status| status.is_none());
    assert_eq!(node.there("web").unwrap().status, new.status);
    // The new one is told of as ever, and what is late for the old one harms nobody.
    node.handle.set_pod_status(&new, running());
    node.handle.set_pod_status(&old, waiting());
    node.at_the_truth(&new).await;
    eventually!(node.handle.pod_status(&old.uid()), |status| status.is_none());
    assert!(node.difference(&new).is_none());
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_ended_is_deleted_once_whatever_befalls_the_delete() {
    let cases: &[Case] = &[
        (|fault| fault.slow(Duration::ZERO), &["patch", "delete"], 0),
        (
            |fault| fault.fails(500, "no"),
            &["patch", "delete", "get", "delete"],
            500,
        ),
        (
            |fault| fault.too_many_requests(Duration::from_secs(3)),
            &["patch", "delete", "get", "delete"],
            3000,
        ),
        (|fault| fault.reply_lost(), &["patch", "delete", "get"], 0),
        (
            |fault| fault.hangs(),
            &["patch", "delete", "get", "delete"],
            30_000,
        ),
    ];
    for (number, (befall, requests, at_least)) in cases.iter().enumerate() {
        let node = Node::start();
        let pod = node.pod("web");
        node.server.delete::<Pod>("default", "web").unwrap();
        let pod = Arc::new(Pod {
            metadata: node.there("web").unwrap().metadata,
            ..Pod::clone(&pod)
        });
        befall(node.server.faults().on(Verb::Delete).resource("pods").first(1));
        let start = Instant::now();
        node.handle.set_pod_status(&pod, ended());
        node.handle.terminate_pod(&pod);
        eventually!(node.there("web"), |pod| pod.is_none());
        assert!(
            start.elapsed() >= Duration::from_millis(*at_least),
            "case {number}"
        );
        node.handle.remove_orphaned_statuses(&Default::default());
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(node.requests(), *requests, "case {number}");
        node.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn another_word_in_the_server_is_put_right_and_others_conditions_stay() {
    let node = Node::start();
    let pod = node.pod("web");
    node.handle.set_pod_status(&pod, running());
    node.at_the_truth(&pod).await;
    let mut meddled = node.there("web").unwrap();
    let status = meddled.status.get_or_insert_default();
    status.phase = Some("Pending".to_owned());
    let gate = json!({"type": "example.com/gate", "status": "True"});
    status
        .conditions
        .get_or_insert_default()
        .push(serde_json::from_value(gate).unwrap());
    let meddled = Arc::new(node.server.replace_status(&meddled).unwrap());
    // An old version that the watch brings late is no news.
    node.handle.observe_pod(&pod);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(node.requests(), ["patch"]);

    node.handle.observe_pod(&meddled);
    let phase = |pod: Option<Pod>| pod.unwrap().status.unwrap().phase;
    eventually!(phase(node.there("web")), |phase| phase.as_deref()
        == Some("Running"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(node.requests(), ["patch", "patch"]);
    let conditions = node.there("web").unwrap().status.unwrap().conditions.unwrap();
    assert!(
        conditions
            .iter()
            .any(|condition| condition.type_ == "example.com/gate")
    );
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_older_pod_of_a_worker_is_no_word_of_the_servers() {
    let node = Node::start();
    let pod = node.pod("web");
    node.handle.set_pod_status(&pod, running());
    node.at_the_truth(&pod).await;
    // A worker has this one still when the status has changed and the source has shown that.
    let older = Arc::new(node.there("web").unwrap());
    node.handle.set_pod_status(&pod, waiting());
    node.at_the_truth(&pod).await;
    node.handle.observe_pod(&Arc::new(node.there("web").unwrap()));
    node.handle.set_pod_status(&older, running());
    node.at_the_truth(&pod).await;
    assert_eq!(node.requests(), ["patch"; 3], "nothing is asked");
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_static_pods_status_goes_to_its_mirror() {
    let node = Node::start();
    let manifest = json!({"metadata": {"name": "web-one", "namespace": "default", "uid": "of-the-file",
        "annotations": {"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "h"}},
        "spec": {"nodeName": "one", "containers": [{"name": "c", "image": "busybox:1.36"}]}});
    let pod: Arc<Pod> = Arc::new(serde_json::from_value(manifest.clone()).unwrap());
    node.handle.set_pod_status(&pod, running());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(
        node.requests().is_empty(),
        "without a mirror there is nothing to ask for"
    );

    let mut mirror = manifest;
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "h", "kubernetes.io/config.hash": "h", "kubernetes.io/config.source": "file"});
    mirror["metadata"].as_object_mut().unwrap().remove("uid");
    let mirror: Pod = serde_json::from_value(mirror).unwrap();
    let make = || {
        let mut made = node.server.create(&mirror).unwrap();
        let annotations = made.metadata.annotations.get_or_insert_default();
        annotations.insert("kubernetes.io/config.source".to_owned(), "api".to_owned());
        Arc::new(made)
    };
    let shown = make();
    let start = Instant::now();
    node.handle.observe_pod(&shown);
    let phase = || node.there("web-one")?.status?.phase;
    eventually!(phase(), |phase| phase.as_deref() == Some("Running"));
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "a new mirror does not wait: {:?}",
        start.elapsed()
    );
    assert_eq!(node.requests(), ["patch"]);
    assert_eq!(
        node.handle.pod_status(&shown.uid()),
        node.handle.pod_status(&pod.uid())
    );

    // Its mirror is deleted by a user and made anew; the pod runs on.
    let api: kube_client::Api<Pod> = kube_client::Api::namespaced(node.server.client(), "default");
    let now = kube_client::api::DeleteParams::default().grace_period(0);
    api.delete("web-one", &now).await.unwrap();
    node.handle.observe_pod(&make());
    eventually!(phase(), |phase| phase.as_deref() == Some("Running"));
    assert_eq!(node.requests(), ["patch", "delete", "patch"]);
    node.stop().await;
}

/// An agent that starts hears of the mirrors before it knows anything of their pods.
#[tokio::test(start_paused = true)]
async fn a_mirror_that_was_there_first_is_not_asked_for() {
    let node = Node::start();
    let mut of_file = json!({"metadata": {"name": "web-one", "namespace": "default", "uid": "of-the-file",
        "annotations": {"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "h"}},
        "spec": {"nodeName": "one", "containers": [{"name": "c", "image": "busybox:1.36"}]}});
    let pod: Arc<Pod> = Arc::new(serde_json::from_value(of_file.clone()).unwrap());
    of_file["metadata"].as_object_mut().unwrap().remove("uid");
    of_file["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "h".into();
    let mirror: Pod = serde_json::from_value(of_file).unwrap();
    let mut mirror = node.server.create(&mirror).unwrap();
    let annotations = mirror.metadata.annotations.get_or_insert_default();
    annotations.insert("kubernetes.io/config.source".to_owned(), "api".to_owned());
    node.handle.observe_pod(&Arc::new(mirror));
    node.handle.set_pod_status(&pod, running());
    let phase = || node.there("web-one")?.status?.phase;
    eventually!(phase(), |phase| phase.as_deref() == Some("Running"));
    assert_eq!(node.requests(), ["patch"]);

    // The agent starts again, and reads the file before the API server answers.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let node = node.restarted().await;
    node.handle.set_pod_status(&pod, running());
    let mut mirror = node.there("web-one").unwrap();
    let annotations = mirror.metadata.annotations.get_or_insert_default();
    annotations.insert("kubernetes.io/config.source".to_owned(), "api".to_owned());
    node.handle.observe_pod(&Arc::new(mirror));
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(node.requests(), ["patch"], "a restart shows nowhere");
    let shown = node.there("web-one").unwrap().status.unwrap();
    let known = node.handle.pod_status(&pod.uid()).unwrap();
    assert_eq!(
        (&known.start_time, &known.conditions),
        (&shown.start_time, &shown.conditions)
    );
    node.stop().await;
}

/// A node is not told that a pod is gone, but that it may not read it.
#[tokio::test(start_paused = true)]
async fn a_pod_that_went_unseen_is_asked_for_once() {
    let server = ApiServer::builder().record_reads().build();
    let client = server.client_as(User::node("one"));
    let manager = StatusManager::new(ApiServerSink::new(client));
    let (handle, shutdown) = (manager.handle(), CancellationToken::new());
    let task = tokio::spawn(manager.run(shutdown.clone()));
    let gone: Pod = serde_json::from_value(
        json!({"metadata": {"name": "gone", "namespace": "default", "uid": "1"},
        "spec": {"nodeName": "one", "containers": [{"name": "c", "image": "busybox:1.36"}]}}),
    )
    .unwrap();
    handle.set_pod_status(&Arc::new(gone), running());
    handle.remove_orphaned_statuses(&Default::default());
    tokio::time::sleep(Duration::from_secs(300)).await;
    let calls = server.calls().all();
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert_eq!((calls[0].verb, calls[0].status), (Verb::Get, Some(403)));
    shutdown.cancel();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_mirror_tells_nothing_of_the_static_pod_before_its_own() {
    let node = Node::start();
    let of_hash = |hash: &str| {
        json!({"metadata": {"name": "web-one", "namespace": "default", "uid": format!("of-{hash}"),
            "annotations": {"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": hash}},
            "spec": {"nodeName": "one", "containers": [{"name": "c", "image": "busybox:1.36"}]}})
    };
    let pod = |hash| -> Arc<Pod> { Arc::new(serde_json::from_value(of_hash(hash)).unwrap()) };
    let (before, after) = (pod("h1"), pod("h2"));
    node.handle.set_pod_status(&before, running());

    let mut mirror = of_hash("h2");
    mirror["metadata"].as_object_mut().unwrap().remove("uid");
    mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "h2".into();
    let mirror: Pod = serde_json::from_value(mirror).unwrap();
    let mut mirror = node.server.create(&mirror).unwrap();
    let annotations = mirror.metadata.annotations.get_or_insert_default();
    annotations.insert("kubernetes.io/config.source".to_owned(), "api".to_owned());
    node.handle.observe_pod(&Arc::new(mirror));
    // All statuses are looked through, more than once.
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!node.requests().contains(&"patch"), "{:?}", node.requests());

    node.handle.set_pod_status(&after, running());
    let phase = || node.there("web-one")?.status?.phase;
    eventually!(phase(), |phase| phase.as_deref() == Some("Running"));
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_are_made_than_qps_and_burst_allow() {
    let node = Node::with(|config| (config.qps, config.burst) = (5, 10));
    let pods: Vec<_> = (0..30).map(|n| node.pod(&format!("p{n}"))).collect();
    let start = Instant::now();
    for pod in &pods {
        node.handle.set_pod_status(pod, running());
    }
    eventually!(node.requests().len(), |requests| *requests >= 10);
    assert!(
        start.elapsed() < Duration::from_millis(200),
        "{:?}",
        start.elapsed()
    );
    for pod in &pods {
        node.at_the_truth(pod).await;
    }
    assert!(
        (3900..5200).contains(&start.elapsed().as_millis()),
        "20 more at 5 a second: {:?}",
        start.elapsed()
    );
    assert_eq!(node.requests().len(), 30);
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn at_shutdown_what_can_be_sent_is() {
    let node = Node::start();
    let pods: Vec<_> = (0..50).map(|n| node.pod(&format!("p{n}"))).collect();
    node.server.faults().on(Verb::Patch).name("p7").hangs();
    for pod in &pods {
        node.handle.set_pod_status(pod, running());
    }
    node.shutdown.cancel();
    eventually!(node.task.is_finished(), |finished| *finished);
    let wrong: Vec<_> = pods.iter().filter(|pod| node.difference(pod).is_some()).collect();
    assert_eq!(
        wrong.iter().map(|pod| pod.key().to_string()).collect::<Vec<_>>(),
        ["default/p7"]
    );
}

/// What may happen to one of two pods, or to the server.
#[derive(Clone, Debug)]
enum Step {
    Set(usize, bool),
    Ready(usize, bool),
    Started(usize, bool),
    /// The watch shows the pod as it is, or as it was when it was made.
    Observe(usize, bool),
    /// Somebody else writes into the status.
    Meddle(usize),
    Fault(u8),
    Down(u64),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let pod = 0..2_usize;
    prop_oneof![
        4 => (pod.clone(), any::<bool>()).prop_map(|(pod, runs)| Step::Set(pod, runs)),
        3 => (pod.clone(), any::<bool>()).prop_map(|(pod, is)| Step::Ready(pod, is)),
        1 => (pod.clone(), any::<bool>()).prop_map(|(pod, is)| Step::Started(pod, is)),
        3 => (pod.clone(), any::<bool>()).prop_map(|(pod, stale)| Step::Observe(pod, stale)),
        1 => pod.prop_map(Step::Meddle),
        3 => (0..8_u8).prop_map(Step::Fault),
        1 => (1..40_u64).prop_map(Step::Down),
        4 => prop_oneof![Just(0), Just(1), 1..1000_u64, 1000..40_000_u64].prop_map(Step::Wait),
    ]
}

fn befall(fault: Fault, kind: u8) {
    match kind {
        0 => fault.fails(500, "no"),
        1 => fault.fails(409, "conflict"),
        2 => fault.too_many_requests(Duration::from_secs(2)),
        3 => fault.connection_lost(),
        4 => fault.reply_lost(),
        5 => fault.hangs(),
        6 => fault.reply_delayed(Duration::from_secs(15)),
        _ => fault.slow(Duration::from_secs(5)),
    }
}

async fn any_interleaving(steps: Vec<Step>) {
    let node = Node::start();
    let pods = [node.pod("a"), node.pod("b")];
    let (mut changes, mut faults, mut meddled, mut went_back) = (0, 0, 0, 0);
    let mut shown_newer = [false; 2];
    for step in steps {
        match step {
            Step::Set(pod, runs) => {
                node.handle
                    .set_pod_status(&pods[pod], if runs { running() } else { waiting() });
                changes += 1;
            }
            Step::Ready(pod, ready) => {
                let container = ContainerId::new("fake", "c");
                node.handle
                    .set_container_readiness(&pods[pod].uid(), &container, ready);
                changes += 1;
            }
            Step::Started(pod, started) => {
                let container = ContainerId::new("fake", "c");
                node.handle
                    .set_container_startup(&pods[pod].uid(), &container, started);
                changes += 1;
            }
            Step::Observe(pod, true) => {
                // A watch that goes back says what anybody might have.
                went_back += usize::from(std::mem::take(&mut shown_newer[pod]));
                node.handle.observe_pod(&pods[pod]);
            }
            Step::Observe(pod, false) => {
                shown_newer[pod] = true;
                let there = node.there(&pods[pod].key().name).unwrap();
                node.handle.observe_pod(&Arc::new(there));
            }
            Step::Meddle(pod) => {
                let mut there = node.there(&pods[pod].key().name).unwrap();
                there.status.get_or_insert_default().message = Some("meddled".to_owned());
                node.handle
                    .observe_pod(&Arc::new(node.server.replace_status(&there).unwrap()));
                shown_newer[pod] = true;
                meddled += 1;
            }
            Step::Fault(kind) => {
                befall(node.server.faults().on_any_call().first(1), kind);
                faults += 1;
            }
            Step::Down(seconds) => {
                node.server.down_for(Duration::from_secs(seconds));
                faults += 1;
            }
            Step::Wait(milliseconds) => tokio::time::sleep(Duration::from_millis(milliseconds)).await,
        }
    }
    // Calm returns, and the watch shows all there is.
    node.server.faults().clear();
    tokio::time::sleep(Duration::from_secs(120)).await;
    for pod in &pods {
        node.handle
            .observe_pod(&Arc::new(node.there(&pod.key().name).unwrap()));
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    for pod in &pods {
        if node.handle.pod_status(&pod.uid()).is_some() {
            assert_eq!(node.difference(pod), None);
        }
    }
    let requests = node.requests();
    let patches = requests.iter().filter(|verb| **verb == "patch").count();
    assert!(
        patches <= changes + faults + meddled + went_back,
        "{patches} patches for {changes} changes, {faults} faults"
    );
    assert!(requests.len() - patches <= 2 * faults + went_back, "{requests:?}");
    // Then there is silence.
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(node.requests(), requests);
    node.stop().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn after_any_interleaving_the_server_shows_the_truth(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(any_interleaving(steps));
    }
}
