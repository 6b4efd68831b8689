//! Registration and status through all that goes wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, NodeAddress};
use kubelet_core::{Jitter, NodeGetter};
use kubelet_node::{
    HeartbeatClient, LocalNode, NodeConfig, NodeInformer, NodeInformerHandle, NodeRegistration,
    NodeStatusConfig, NodeStatusHandle, NodeStatusSetter, NodeStatusUpdater, Result, VolumesInUse,
};
use kubelet_testing::api_server::Verb;
use kubelet_testing::{ApiServer, eventually};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::rig::{Containerd, Events, Network, Requests, clock, machine};

/// A node and its agent.
struct Agent {
    server: ApiServer,
    requests: Requests,
    ready: Arc<AtomicBool>,
    events: Events,
    informer: NodeInformerHandle,
    status: NodeStatusHandle,
    failures: Arc<AtomicUsize>,
    volumes: Arc<Volumes>,
    runtime: Arc<Containerd>,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

struct Volumes {
    in_use: Mutex<Vec<String>>,
    changes: watch::Sender<u64>,
    reported: Mutex<Vec<Vec<String>>>,
}

impl Default for Volumes {
    fn default() -> Self {
        Self {
            in_use: Mutex::new(vec!["kubernetes.io/csi/x".to_owned()]),
            changes: watch::Sender::default(),
            reported: Mutex::default(),
        }
    }
}

impl VolumesInUse for Volumes {
    fn volumes_in_use(&self) -> Option<Vec<String>> {
        Some(self.in_use.lock().clone())
    }

    fn mark_reported(&self, volumes: &[String]) {
        self.reported.lock().push(volumes.to_vec());
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.changes.subscribe())
    }
}

/// A condition that the embedder adds.
struct Extra;

#[async_trait]
impl NodeStatusSetter for Extra {
    fn name(&self) -> &str {
        "example.com/extra"
    }

    async fn set(&self, node: &mut Node) -> Result<()> {
        let capacity = node
            .status
            .get_or_insert_default()
            .capacity
            .get_or_insert_default();
        let gpus = k8s_openapi::apimachinery::pkg::api::resource::Quantity("4".into());
        capacity.insert("example.com/gpu".into(), gpus);
        Ok(())
    }
}

impl Agent {
    fn start(prepare: impl FnOnce(&ApiServer)) -> Self {
        Self::with(prepare, true, |_| {})
    }

    fn with(
        prepare: impl FnOnce(&ApiServer),
        registers: bool,
        set: impl FnOnce(&mut NodeStatusConfig),
    ) -> Self {
        let clock = clock();
        let server = ApiServer::builder().clock(clock).record_reads().build();
        prepare(&server);
        let (requests, events) = (Requests::default(), Events::default());
        let (ready, failures) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
        let (volumes, runtime) = (Arc::new(Volumes::default()), Arc::new(Containerd::default()));
        let client = requests.client(&server, "node1");
        let (check, count) = (ready.clone(), failures.clone());
        let mut config = NodeConfig::new("node1");
        config.local_storage_capacity_isolation = false;
        let local = LocalNode::builder(config, machine())
            .network(Network::with(&["10.99.0.1"]))
            .runtime(runtime.clone())
            .ready_check(move || match check.load(Ordering::Relaxed) {
                true => Vec::new(),
                false => vec!["PLEG is not healthy".to_owned()],
            })
            .volumes_in_use(volumes.clone())
            .setter(Arc::new(Extra))
            .events(Arc::new(events.clone()))
            .clock(clock)
            .build();
        let local = Arc::new(local);
        let informer = NodeInformer::new(client.clone(), "node1")
            .with_local_node(local.clone())
            .with_jitter(Jitter::from_seed(2));
        let heartbeat = HeartbeatClient::new(client.clone()).on_repeated_failure(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let mut config = NodeStatusConfig::default();
        config.jitter = Jitter::from_seed(3);
        set(&mut config);
        let handle = informer.handle();
        let mut updater =
            NodeStatusUpdater::new(local.clone(), handle.clone(), heartbeat).with_config(config);
        if registers {
            updater = updater.with_registration(NodeRegistration::new(client, local));
        }
        let (status, shutdown) = (updater.handle(), CancellationToken::new());
        let stop = shutdown.clone();
        let task = tokio::spawn(async move {
            tokio::join!(informer.run(stop.clone()), updater.run(stop));
        });
        Self {
            server,
            requests,
            ready,
            events,
            informer: handle,
            status,
            failures,
            volumes,
            runtime,
            shutdown,
            task,
        }
    }

    fn node(&self) -> Option<Value> {
        let node: Option<Node> = self.server.get("", "node1").unwrap();
        node.map(|node| serde_json::to_value(node).unwrap())
    }

    /// What the condition says.
    fn ready(&self) -> Option<String> {
        let node = self.node()?;
        let conditions = node["status"]["conditions"].as_array()?;
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready")?;
        Some(ready["status"].as_str()?.to_owned())
    }

    async fn is(&self, status: &str) {
        eventually!(self.ready(), |ready| ready.as_deref() == Some(status));
    }

    fn patches(&self) -> usize {
        self.requests.of("PATCH").len()
    }

    /// When the status was sent, in seconds.
    fn patches_at(&self) -> Vec<f64> {
        let calls = self.server.calls().all().into_iter();
        let patches = calls.filter(|call| call.verb == Verb::Patch);
        patches
            .map(|call| call.at.as_millisecond() as f64 / 1000.0)
            .collect()
    }

    async fn end(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }
}

fn node(object: Value) -> impl FnOnce(&ApiServer) {
    move |server| {
        drop(
            server
                .create(&serde_json::from_value::<Node>(object).unwrap())
                .unwrap(),
        )
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_node_is_reported_every_five_minutes() {
    let agent = Agent::start(|_| {});
    agent.is("True").await;
    sleep(Duration::from_secs(30)).await;
    let begun = agent.patches();
    sleep(Duration::from_secs(3600)).await;
    let patches = agent.requests.of("PATCH").split_off(begun);
    assert!((11..=13).contains(&patches.len()), "{}", patches.len());
    for patch in &patches {
        let conditions = patch.body["status"]["conditions"].as_array().unwrap();
        assert!(
            conditions
                .iter()
                .all(|condition| condition.as_object().unwrap().len() == 2),
            "{patch:?}"
        );
    }
    // All reads are the watch's.
    let reads = agent.requests.of("GET");
    assert!(
        reads.iter().all(|read| read.uri.contains("watch=true")),
        "{reads:?}"
    );
    assert!((6..=13).contains(&reads.len()), "{}", reads.len());
    assert_eq!(agent.failures.load(Ordering::Relaxed), 0);
    agent.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_first_report_after_a_change_comes_at_a_time_of_its_own() {
    let period = 300.0;
    let mut waits = Vec::new();
    for seed in 0..8 {
        let agent = Agent::with(|_| {}, true, |config| config.jitter = Jitter::from_seed(seed));
        agent.is("True").await;
        sleep(Duration::from_secs(30)).await;
        agent.server.calls().clear();
        agent.ready.store(false, Ordering::Relaxed);
        agent.is("False").await;
        eventually!(agent.patches_at().len(), |patches| *patches == 4);
        let at = agent.patches_at();
        let wait = |n: usize| at[n + 1] - at[n];
        // What is due is seen with the next look, up to 10.4 s later.
        assert!((period / 2.0..period * 1.5 + 10.5).contains(&wait(0)), "{at:?}");
        for later in [wait(1), wait(2)] {
            assert!((period..period + 10.5).contains(&later), "{at:?}");
        }
        waits.push(wait(0));
        agent.end().await;
    }
    waits.sort_by(f64::total_cmp);
    assert!(waits[7] - waits[0] > period / 4.0, "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn volumes_in_use_are_reported_and_marked() {
    const X: &str = "kubernetes.io/csi/x";
    // the volumes in use, the volumes in the API server, whether the status is sent
    let cases: [(&[&str], &[&str], bool); 4] = [
        (&[], &[], false),
        (&[X], &[X], false),
        (&[], &[X], true),
        (&[X], &[], true),
    ];
    for (in_use, there, is_sent) in cases {
        let list = |volumes: &[&str]| -> Vec<String> {
            let volumes = volumes.iter();
            volumes.map(|volume| (*volume).to_owned()).collect()
        };
        let agent = Agent::start(|_| {});
        *agent.volumes.in_use.lock() = list(there);
        agent.is("True").await;
        let shown = |volumes: &[&str]| match volumes {
            [] => Value::Null,
            volumes => json!(volumes),
        };
        eventually!(
            agent.node().unwrap()["status"]["volumesInUse"].clone(),
            |volumes| *volumes == shown(there)
        );
        sleep(Duration::from_secs(30)).await;
        let patches = agent.patches();
        agent.volumes.reported.lock().clear();
        *agent.volumes.in_use.lock() = list(in_use);
        sleep(Duration::from_secs(11)).await;
        let sent = agent.patches() - patches;
        assert_eq!(sent, usize::from(is_sent), "{in_use:?} {there:?}");
        assert_eq!(agent.node().unwrap()["status"]["volumesInUse"], shown(in_use));
        // With each update, sent or not.
        let reported = agent.volumes.reported.lock().clone();
        assert!(!reported.is_empty(), "{in_use:?} {there:?}");
        assert!(
            reported.iter().all(|reported| *reported == list(in_use)),
            "{reported:?}"
        );
        agent.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_comes_into_use_is_reported_at_once() {
    let agent = Agent::start(|_| {});
    *agent.volumes.in_use.lock() = Vec::new();
    agent.is("True").await;
    sleep(Duration::from_secs(31)).await;
    let begun = Instant::now();
    *agent.volumes.in_use.lock() = vec!["kubernetes.io/csi/y".to_owned()];
    agent.volumes.changes.send_modify(|count| *count += 1);
    eventually!(
        agent.volumes.reported.lock().last().cloned(),
        |reported| *reported == Some(vec!["kubernetes.io/csi/y".to_owned()])
    );
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    agent.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_of_readiness_is_reported_at_once() {
    let agent = Agent::start(|_| {});
    agent.is("True").await;
    sleep(Duration::from_secs(300)).await;
    for (ready, status, event) in [(false, "False", "NodeNotReady"), (true, "True", "NodeReady")] {
        agent.ready.store(ready, Ordering::Relaxed);
        sleep(Duration::from_millis(1100)).await;
        assert_eq!(agent.ready().as_deref(), Some(status));
        assert!(
            agent
                .events
                .messages()
                .contains(&format!("Node node1 status is now: {event}"))
        );
    }
    let before = agent.patches();
    agent.ready.store(false, Ordering::Relaxed);
    agent.status.sync();
    eventually!(agent.patches(), |patches| *patches == before + 1);
    agent.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_of_readiness_may_wait_for_the_next_status() {
    let agent = Agent::with(|_| {}, true, |config| config.readiness_look = None);
    agent.is("True").await;
    sleep(Duration::from_secs(300)).await;
    let before = tokio::time::Instant::now();
    agent.ready.store(false, Ordering::Relaxed);
    agent.is("False").await;
    assert!(before.elapsed() < Duration::from_millis(10_500));
    agent.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_starts_says_at_once_that_it_is_ready() {
    let agent = Agent::start(|_| {});
    agent.ready.store(false, Ordering::Relaxed);
    agent.is("False").await;
    sleep(Duration::from_secs(42)).await;
    agent.ready.store(true, Ordering::Relaxed);
    sleep(Duration::from_millis(200)).await;
    assert_eq!(agent.ready().as_deref(), Some("True"));
    agent.end().await;
}

#[tokio::test(start_paused = true)]
async fn registration_is_tried_ever_more_rarely_and_never_given_up() {
    let agent = Agent::start(|server| {
        server
            .faults()
            .on(Verb::Create)
            .resource("nodes")
            .first(12)
            .fails(500, "no")
    });
    agent.is("True").await;
    let calls = agent.server.calls().matching("create nodes node1");
    let times: Vec<f64> = calls
        .iter()
        .map(|call| call.at.as_millisecond() as f64 / 1000.0)
        .collect();
    let waits: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (wait, expected) in waits
        .iter()
        .zip([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0])
    {
        assert!((wait - expected).abs() < 0.01, "{waits:?}");
    }
    assert_eq!(waits.len(), 12);
    agent.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_there_is_reconciled_and_its_taints_stay() {
    let agent = Agent::start(node(json!({
        "metadata": {"name": "node1", "labels": {"kubernetes.io/os": "plan9", "example.com/mine": "1"}},
        "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}], "podCIDRs": ["10.88.0.0/24", "fd00::/64"]},
        "status": {
            "capacity": {"hugepages-32Mi": "0", "example.com/old": "2"},
            "nodeInfo": {"machineID": "other", "systemUUID": "", "bootID": "before", "kernelVersion": "", "osImage": "",
                "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "v1.20.0", "operatingSystem": "",
                "architecture": ""},
        },
    })));
    agent.is("True").await;
    eventually!(agent.runtime.cidrs.lock().len(), |received| *received == 2);
    let node = agent.node().unwrap();
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/os"], "linux");
    assert_eq!(node["metadata"]["labels"]["example.com/mine"], "1");
    assert_eq!(node["spec"]["taints"][0]["key"], "a");
    let capacity = &node["status"]["capacity"];
    assert_eq!(capacity["hugepages-32Mi"], Value::Null);
    assert_eq!(capacity["hugepages-2Mi"], "0");
    assert_eq!(
        (&capacity["example.com/old"], &capacity["example.com/gpu"]),
        (&json!("0"), &json!("4"))
    );
    assert_eq!(node["status"]["nodeInfo"]["kubeProxyVersion"], "");
    assert_eq!(node["status"]["volumesInUse"], json!(["kubernetes.io/csi/x"]));
    assert_eq!(
        agent.volumes.reported.lock().last().unwrap(),
        &["kubernetes.io/csi/x"]
    );
    // The failed update is sent again.
    assert_eq!(
        *agent.runtime.cidrs.lock(),
        ["10.88.0.0/24,fd00::/64", "10.88.0.0/24,fd00::/64"]
    );
    let rebooted = agent
        .events
        .messages()
        .into_iter()
        .filter(|message| message.contains("has been rebooted"));
    assert_eq!(
        rebooted.collect::<Vec<_>>(),
        ["Node node1 has been rebooted, boot id: 3607363a-fbbf-4809-a3a5-835c027370e7"]
    );
    let last = node["status"]["conditions"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .clone();
    assert_eq!(last["type"], "Ready", "the last of all");
    agent.end().await;
}

#[tokio::test(start_paused = true)]
async fn who_may_not_register_may_find_the_node_there() {
    let agent = Agent::start(|server| {
        node(json!({"metadata": {"name": "node1"}}))(server);
        server
            .faults()
            .on(Verb::Create)
            .resource("nodes")
            .fails(403, "you may not");
    });
    agent.is("True").await;
    agent.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_register_waits_for_somebody_who_does() {
    let agent = Agent::with(|_| {}, false, |_| {});
    sleep(Duration::from_secs(60)).await;
    assert_eq!(agent.requests.of("POST").len(), 0);
    assert!(agent.informer.get().is_none());
    // Pods are admitted all the same.
    let stand_in = agent.informer.node().await.unwrap();
    assert_eq!(stand_in.metadata.name.as_deref(), Some("node1"));
    node(json!({"metadata": {"name": "node1"}}))(&agent.server);
    agent.is("True").await;
    assert!(agent.informer.registered().await.metadata.uid.is_some());
    agent.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_update_is_tried_five_times_and_the_connections_are_suspected() {
    let agent = Agent::start(|_| {});
    agent.is("True").await;
    sleep(Duration::from_secs(300)).await;
    let before = agent.patches();
    agent
        .server
        .faults()
        .on(Verb::Patch)
        .resource("nodes/status")
        .first(5)
        .fails(500, "no");
    agent.ready.store(false, Ordering::Relaxed);
    eventually!(agent.patches() - before, |tries| *tries == 5);
    eventually!(agent.failures.load(Ordering::Relaxed), |failures| *failures == 4);
    assert_eq!(agent.ready().as_deref(), Some("True"));
    // The first goes by the watch, the others look.
    let reads = agent
        .requests
        .lines()
        .into_iter()
        .filter(|line| line == "GET /api/v1/nodes/node1?timeout=10s");
    assert_eq!(reads.count(), 4);
    agent.is("False").await;
    agent.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_or_silent_gets_the_status_when_it_is_back() {
    let agent = Agent::start(|_| {});
    agent.is("True").await;
    sleep(Duration::from_secs(300)).await;
    agent
        .server
        .faults()
        .on(Verb::Patch)
        .resource("nodes/status")
        .first(2)
        .hangs();
    agent.ready.store(false, Ordering::Relaxed);
    agent.is("False").await;
    agent.server.down_for(Duration::from_secs(180));
    agent.ready.store(true, Ordering::Relaxed);
    sleep(Duration::from_secs(100)).await;
    let kept = agent.informer.node().await.unwrap();
    assert!(kept.metadata.uid.is_some(), "the node is as it was");
    agent.is("True").await;
    agent.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_cordon_is_seen_by_the_watch_and_emits_an_event() {
    let agent = Agent::start(|_| {});
    agent.is("True").await;
    let mut node: Node = agent.server.get("", "node1").unwrap().unwrap();
    node.spec.get_or_insert_default().unschedulable = Some(true);
    agent.server.replace(&node).unwrap();
    let unschedulable = |node: &Arc<Node>| {
        node.spec
            .as_ref()
            .is_some_and(|spec| spec.unschedulable == Some(true))
    };
    eventually!(agent.informer.get(), |node| node
        .as_ref()
        .is_some_and(unschedulable));
    let expected = "Node node1 status is now: NodeNotSchedulable".to_owned();
    eventually!(agent.events.messages(), |messages| messages.contains(&expected));
    agent.server.delete::<Node>("", "node1").unwrap();
    eventually!(agent.informer.get(), |node| node.is_none());
    agent.end().await;
}

#[tokio::test(start_paused = true)]
async fn the_informer_lists_where_the_server_streams_no_lists() {
    let server = ApiServer::builder().clock(clock()).build();
    node(json!({"metadata": {"name": "node1"}}))(&server);
    server
        .faults()
        .on(Verb::Watch)
        .resource("nodes")
        .first(1)
        .fails(422, "sendInitialEvents is forbidden");
    let requests = Requests::default();
    let informer = NodeInformer::new(requests.client(&server, "node1"), "node1");
    let (handle, shutdown) = (informer.handle(), CancellationToken::new());
    let running = tokio::spawn(informer.run(shutdown.clone()));
    handle.synced().await;
    assert!(handle.get().is_some());
    eventually!(requests.lines().len(), |sent| *sent == 3);
    assert_eq!(
        requests.lines()[1],
        "GET /api/v1/nodes?fieldSelector=metadata.name%3Dnode1"
    );
    assert!(requests.lines()[2].contains("resourceVersion="));
    server.delete::<Node>("", "node1").unwrap();
    eventually!(handle.get(), |node| node.is_none());
    shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_went_silent_is_left_behind() {
    let server = ApiServer::builder().clock(clock()).build();
    node(json!({"metadata": {"name": "node1"}}))(&server);
    let minute = Duration::from_secs(60);
    let faults = server.faults();
    faults
        .on(Verb::Watch)
        .resource("nodes")
        .nth(1)
        .silent_after(minute);
    let informer = NodeInformer::new(server.client(), "node1").with_jitter(Jitter::from_seed(2));
    let (handle, shutdown) = (informer.handle(), CancellationToken::new());
    let running = tokio::spawn(informer.run(shutdown.clone()));
    handle.synced().await;
    let mut addresses = handle.addresses();
    assert!(addresses.borrow_and_update().is_empty());

    sleep(minute * 2).await;
    let mut node: Node = server.get("", "node1").unwrap().unwrap();
    let address = NodeAddress {
        type_: "InternalIP".into(),
        address: "10.0.0.1".into(),
    };
    node.status.get_or_insert_default().addresses = Some(vec![address.clone()]);
    server.replace_status(&node).unwrap();
    let changed = Instant::now();
    addresses.changed().await.unwrap();
    assert_eq!(*addresses.borrow_and_update(), [address]);
    assert!(changed.elapsed() <= minute * 3, "{:?}", changed.elapsed());

    // Other changes of the node are not published; the removal of the addresses is.
    node = server.get("", "node1").unwrap().unwrap();
    node.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    server.replace(&node).unwrap();
    eventually!(handle.get(), |node| node
        .as_ref()
        .is_some_and(|node| node.metadata.labels.is_some()));
    assert!(!addresses.has_changed().unwrap());
    server.delete::<Node>("", "node1").unwrap();
    addresses.changed().await.unwrap();
    assert!(addresses.borrow().is_empty());
    shutdown.cancel();
    running.await.unwrap();
}
