//! The lease through all that goes wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kubelet_core::{Clock, Jitter};
use kubelet_node::{HeartbeatClient, LeaseConfig, LeaseController};
use kubelet_testing::api_server::Verb;
use kubelet_testing::{ApiServer, eventually};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::Level;

use super::log::Log;
use super::rig::{Requests, clock};

struct Kept {
    server: ApiServer,
    requests: Requests,
    clock: Clock,
    failures: Arc<AtomicUsize>,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

impl Kept {
    /// A registered node's lease, kept; `prepare` before it begins.
    fn start(prepare: impl FnOnce(&ApiServer)) -> Self {
        let clock = clock();
        let server = ApiServer::builder().clock(clock).build();
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "node1"}})).unwrap();
        server.create(&node).unwrap();
        prepare(&server);
        let (requests, failures) = (Requests::default(), Arc::new(AtomicUsize::new(0)));
        let count = failures.clone();
        let client = HeartbeatClient::new(requests.client(&server, "node1")).on_repeated_failure(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let mut config = LeaseConfig::default();
        (config.clock, config.jitter) = (clock, Jitter::from_seed(7));
        let shutdown = CancellationToken::new();
        let lease = LeaseController::with_config(client, "node1", config);
        Self {
            server,
            requests,
            clock,
            failures,
            task: tokio::spawn(lease.run(shutdown.clone())),
            shutdown,
        }
    }

    fn lease(&self) -> Option<Lease> {
        self.server.get("kube-node-lease", "node1").unwrap()
    }

    /// How long ago the lease was renewed.
    fn age(&self) -> Option<f64> {
        let renewed = self.lease()?.spec?.renew_time?;
        Some(self.clock.now().duration_since(renewed.0).as_secs_f64())
    }

    async fn fresh(&self) {
        eventually!(self.age(), |age| age.is_some_and(|age| age < 1.0));
    }

    fn methods(&self) -> Vec<String> {
        self.requests.all().into_iter().map(|sent| sent.method).collect()
    }

    async fn end(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_renewed_each_ten_seconds_by_one_request() {
    let kept = Kept::start(|_| {});
    sleep(Duration::from_secs(3600)).await;
    // Between 10 and 10.4 s each, and three requests to make it.
    let puts = kept.requests.of("PUT").len();
    assert!((346..=360).contains(&puts), "{puts}");
    assert_eq!(kept.methods().len(), puts + 3);
    assert!(kept.age().unwrap() < 10.5);
    let lease = kept.lease().unwrap();
    assert_eq!(lease.spec.as_ref().unwrap().lease_duration_seconds, Some(40));
    assert_eq!(lease.metadata.owner_references.unwrap()[0].kind, "Node");
    kept.end().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_somebody_changed_is_read_again() {
    let kept = Kept::start(|_| {});
    kept.fresh().await;
    let mut lease = kept.lease().unwrap();
    lease.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    kept.server.replace(&lease).unwrap();
    eventually!(kept.requests.of("PUT").len(), |sent| *sent == 2);
    // A conflict, a look, and then what is there.
    eventually!(kept.methods(), |sent| sent[sent.len() - 3..]
        == ["PUT", "GET", "PUT"]);
    assert!(kept.age().unwrap() < 1.0);
    assert_eq!(
        kept.lease().unwrap().metadata.labels,
        lease.metadata.labels,
        "theirs stays"
    );
    assert_eq!(kept.failures.load(Ordering::Relaxed), 0);
    kept.end().await;
}

#[tokio::test(start_paused = true)]
async fn one_that_is_gone_is_made_again() {
    let kept = Kept::start(|_| {});
    kept.fresh().await;
    kept.server.delete::<Lease>("kube-node-lease", "node1").unwrap();
    eventually!(kept.lease().is_some(), |there| *there);
    // Five tries at what was there; the connections are suspected from the second on.
    assert_eq!(kept.requests.of("PUT").len(), 5);
    assert_eq!(kept.failures.load(Ordering::Relaxed), 4);
    kept.end().await;
}

#[tokio::test(start_paused = true)]
async fn one_of_an_earlier_agent_is_taken_over() {
    let kept = Kept::start(|server| {
        let lease: Lease = serde_json::from_value(json!({
            "metadata": {"name": "node1", "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": "node1", "leaseDurationSeconds": 10, "renewTime": "2026-01-01T00:00:00.000000Z"},
        }))
        .unwrap();
        server.create(&lease).unwrap();
    });
    kept.fresh().await;
    assert_eq!(
        kept.methods(),
        ["GET", "GET", "PUT"],
        "the lease, its owner, the renewal"
    );
    let lease = kept.lease().unwrap();
    assert_eq!(lease.spec.unwrap().lease_duration_seconds, Some(40));
    assert_eq!(lease.metadata.owner_references.unwrap().len(), 1);
    kept.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_is_asked_ever_more_rarely_and_never_given_up() {
    let kept = Kept::start(|server| server.down_for(Duration::from_secs(180)));
    sleep(Duration::from_secs(179)).await;
    // 200 ms, 400 ms … 7 s: 6 waits of 12.6 s, and then each 7 s.
    let asked = kept.requests.of("GET").len();
    assert!((28..=31).contains(&asked), "{asked}");
    kept.fresh().await;
    kept.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_not_waited_for() {
    let kept = Kept::start(|_| {});
    kept.fresh().await;
    kept.server
        .faults()
        .on(Verb::Update)
        .resource("leases")
        .first(1)
        .hangs();
    eventually!(kept.requests.of("PUT").len(), |sent| *sent == 1);
    eventually!(kept.requests.of("PUT").len(), |sent| *sent == 2);
    assert!(kept.age().unwrap() < 20.5, "{:?}", kept.age());
    kept.fresh().await;
    kept.server
        .faults()
        .on(Verb::Update)
        .resource("leases")
        .reply_lost();
    sleep(Duration::from_secs(60)).await;
    kept.server.faults().clear();
    kept.fresh().await;
    kept.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_first_start_without_a_node_is_no_warning_unless_it_lasts() {
    let log = Log::default();
    let collecting = log.collect();
    let kept = Kept::start(|server| server.delete::<Node>("", "node1").map(drop).unwrap());
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "node1"}})).unwrap();
    // As in an ordinary first start, the node is registered before the next round.
    eventually!(log.about("the node is not registered yet").len(), |lines| *lines
        == 1);
    kept.server.create(&node).unwrap();
    kept.fresh().await;
    assert_eq!(log.alarms(), []);
    kept.end().await;

    // The node stays away.
    let kept = Kept::start(|server| server.delete::<Node>("", "node1").map(drop).unwrap());
    eventually!(log.alarms(), |alarms| !alarms.is_empty());
    let text = "cannot create the lease, because the node is still not registered".to_owned();
    assert_eq!(log.alarms(), [(Level::WARN, text)]);
    kept.end().await;
    drop(collecting);

    // Any other error is a warning at once.
    let log = Log::default();
    let _collecting = log.collect();
    let kept = Kept::start(|server| {
        server
            .faults()
            .on(Verb::Get)
            .resource("nodes")
            .first(1)
            .connection_lost();
    });
    kept.fresh().await;
    let text = "failed to get node when trying to set owner ref to the node lease".to_owned();
    assert_eq!(log.alarms(), [(Level::WARN, text)]);
    kept.end().await;
}

#[tokio::test(start_paused = true)]
async fn connections_that_fail_again_and_again_are_left_behind() {
    let clock = clock();
    let server = ApiServer::builder().clock(clock).build();
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "node1"}})).unwrap();
    server.create(&node).unwrap();
    // Requests on the old connection are lost; requests on the new one have another user.
    let faults = server.faults();
    faults
        .on(Verb::Update)
        .resource("leases")
        .user("system:node:node1")
        .connection_lost();
    let (requests, other) = (Requests::default(), server.client());
    let client =
        HeartbeatClient::new(requests.client(&server, "node1")).renewed_by(move || Ok(other.clone()));
    let mut config = LeaseConfig::default();
    config.clock = clock;
    let shutdown = CancellationToken::new();
    let lease = LeaseController::with_config(client, "node1", config);
    let renewed = async {
        eventually!(
            server.calls().count("update leases kube-node-lease/node1"),
            |updates| *updates == 4
        );
        shutdown.cancel();
    };
    tokio::join!(lease.run(shutdown.clone()), renewed);
    let users: Vec<String> = server
        .calls()
        .matching("update leases kube-node-lease/node1")
        .into_iter()
        .map(|call| call.user)
        .collect();
    assert_eq!(users[..2], ["system:node:node1", "system:node:node1"]);
    assert!(
        !users[2..].iter().any(|user| user.starts_with("system:node:")),
        "{users:?}"
    );
}
