//! The metrics bear the kubelet's names, and its numbers.
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::Clock;
use kubelet_node::{
    FixedNetwork, HeartbeatClient, LocalNode, MachineInfo, NodeConfig, NodeInformer, NodeRegistration,
    NodeStatusUpdater,
};
use kubelet_testing::api_server::Verb;
use kubelet_testing::{ApiServer, User, eventually};
use metrics::{Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// The last value of each gauge, by its name and labels.
#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<BTreeMap<String, f64>>>);

struct Metric(Recorded, String);

impl GaugeFn for Metric {
    fn increment(&self, _: f64) {}
    fn decrement(&self, _: f64) {}
    fn set(&self, value: f64) {
        self.0.0.lock().insert(self.1.clone(), value);
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let labels: Vec<String> = key
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()))
            .collect();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        Gauge::from_arc(Arc::new(Metric(self.clone(), name)))
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn a_new_node_tells_how_long_it_took_to_come_up() {
    let recorded = Recorded::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    metrics::with_local_recorder(&recorded, || runtime.block_on(come_up()));
    let found = recorded.0.lock().clone();
    let seconds = |stage: &str| found[&format!("kubelet_node_startup_{stage}duration_seconds{{}}")];
    assert_eq!(found["kubelet_node_name{node=node1}"], 1.0);
    // Booted 30 s before; one try after 100 ms, the next 200 ms later; ready 20 s after that.
    assert_eq!(seconds("pre_kubelet_"), 30.0);
    assert_eq!(seconds("pre_registration_"), 0.0);
    assert!((0.3..0.32).contains(&seconds("registration_")), "{found:?}");
    assert!((20.0..20.2).contains(&seconds("post_registration_")), "{found:?}");
    assert!((50.3..50.5).contains(&seconds("")), "{found:?}");
    assert_eq!(found.len(), 6, "{found:?}");
}

async fn come_up() {
    let clock = Clock::starting_at("2026-01-01T00:00:30Z".parse().unwrap());
    let server = ApiServer::builder().clock(clock).build();
    server
        .faults()
        .on(Verb::Create)
        .resource("nodes")
        .first(1)
        .fails(500, "no");
    let client = server.client_as(User::node("node1"));
    let mut machine = MachineInfo::new(1, 1 << 30);
    machine.ephemeral_storage = Some(1 << 30);
    machine.boot_time = Some("2026-01-01T00:00:00Z".parse().unwrap());
    let begun = Instant::now();
    let local = LocalNode::builder(NodeConfig::new("node1"), machine)
        .ready_check(move || match begun.elapsed() > Duration::from_millis(20_300) {
            true => Vec::new(),
            false => vec!["wait".to_owned()],
        })
        .network(FixedNetwork::new([[10, 0, 0, 7].into()]))
        .clock(clock)
        .build();
    let local = Arc::new(local);
    let informer = NodeInformer::new(client.clone(), "node1");
    let updater = NodeStatusUpdater::new(
        local.clone(),
        informer.handle(),
        HeartbeatClient::new(client.clone()),
    )
    .with_registration(NodeRegistration::new(client, local));
    let (handle, shutdown) = (informer.handle(), CancellationToken::new());
    let ready = async {
        let is_ready = |node: &k8s_openapi::api::core::v1::Node| {
            let conditions = node
                .status
                .as_ref()
                .and_then(|status| status.conditions.clone())
                .unwrap_or_default();
            conditions
                .iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True")
        };
        eventually!(handle.get(), |node| node.as_deref().is_some_and(is_ready));
        // What comes later says nothing of the start.
        sleep(Duration::from_secs(600)).await;
        shutdown.cancel();
    };
    tokio::join!(
        informer.run(shutdown.clone()),
        updater.run(shutdown.clone()),
        ready
    );
}
