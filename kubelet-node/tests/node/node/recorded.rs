//! What a kubelet v1.36.2 asked of a real API server about its node, and what this crate asks, given the same facts.
//!
//! Nothing is normalised in the node's object and its status. Of leases: their times of renewal, and what the server chose
//! (UIDs, resource versions, time of creation).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kubelet_core::Jitter;
use kubelet_node::{
    HeartbeatClient, LeaseConfig, LeaseController, LocalNode, NodeConfig, NodeInformer, NodeRegistration,
    NodeStatusUpdater, RuntimeImage,
};
use kubelet_testing::{ApiServer, eventually};
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::rig::{Containerd, Events, Network, Requests, clock, machine};

fn recording() -> Vec<Value> {
    serde_json::from_str(include_str!("../../data/node-requests.json")).unwrap()
}

/// The requests of the recording whose URI has this in it, as `(line, body)`.
fn recorded(part: &str) -> Vec<(String, Value)> {
    let method = |verb: &str| match verb {
        "create" => "POST",
        "update" => "PUT",
        "patch" => "PATCH",
        _ => "GET",
    };
    let mut requests = Vec::new();
    for request in recording() {
        let (verb, uri) = (
            request["verb"].as_str().unwrap(),
            request["uri"].as_str().unwrap(),
        );
        if uri.contains(part) {
            requests.push((format!("{} {uri}", method(verb)), request["request"].clone()));
        }
    }
    requests
}

/// The images of the recording, in another order.
fn images() -> Vec<RuntimeImage> {
    let created = recorded("/api/v1/nodes")
        .into_iter()
        .find(|(line, _)| line.starts_with("POST"));
    let images = created.unwrap().1["status"]["images"].as_array().unwrap().clone();
    let strings = |names: &Value| serde_json::from_value(names.clone()).unwrap();
    let images = images
        .iter()
        .rev()
        .enumerate()
        .map(|(index, image)| RuntimeImage {
            id: format!("sha256:{index}"),
            repo_digests: Vec::new(),
            repo_tags: strings(&image["names"]),
            size: image["sizeBytes"].as_u64().unwrap(),
        });
    images.collect()
}

fn config() -> NodeConfig {
    let mut config = NodeConfig::new("node1");
    config.local_storage_capacity_isolation = false;
    config.declared_features = [
        "ExtendWebSocketsToKubelet",
        "InPlacePodLevelResourcesVerticalScaling",
        "InPlacePodVerticalScalingInitContainers",
        "RestartAllContainersOnContainerExits",
    ]
    .map(str::to_owned)
    .into();
    config
}

#[tokio::test(start_paused = true)]
async fn registration_and_status_are_as_recorded() {
    let clock = clock();
    let server = ApiServer::builder().clock(clock).build();
    let (requests, watched) = (Requests::default(), Requests::default());
    let client = requests.client(&server, "node1");
    let initialized = Arc::new(AtomicBool::new(false));
    let csi = initialized.clone();
    let events = Events::default();
    let local = LocalNode::builder(config(), machine())
        .network(Network::with(&["10.99.0.1"]))
        .runtime(Arc::new(Containerd {
            images: images(),
            ..Containerd::default()
        }))
        .ready_check(move || match csi.load(Ordering::Relaxed) {
            true => Vec::new(),
            false => vec!["CSINode is not yet initialized".to_owned()],
        })
        .events(Arc::new(events.clone()))
        .clock(clock)
        .build();
    let local = Arc::new(local);
    local.birth_cry();
    let informer = NodeInformer::new(watched.client(&server, "node1"), "node1");
    let updater = NodeStatusUpdater::new(
        local.clone(),
        informer.handle(),
        HeartbeatClient::new(client.clone()),
    )
    .with_registration(NodeRegistration::new(client, local));
    let shutdown = CancellationToken::new();
    let agent = async { tokio::join!(informer.run(shutdown.clone()), updater.run(shutdown.clone())) };
    let recording = async {
        eventually!(requests.lines().len(), |sent| *sent == 2);
        initialized.store(true, Ordering::Relaxed);
        eventually!(requests.lines().len(), |sent| *sent == 3);
        shutdown.cancel();
    };
    tokio::join!(agent, recording);

    let sent = requests.all().into_iter();
    let sent: Vec<(String, Value)> = sent
        .map(|sent| (format!("{} {}", sent.method, sent.uri), sent.body))
        .collect();
    let mut expected = recorded("/api/v1/nodes");
    // Who asks before the node is registered is the lease, and the pods' admission.
    expected.retain(|(line, _)| !line.starts_with("GET"));
    for ((line, body), (expected_line, expected_body)) in sent.iter().zip(&expected) {
        assert_eq!(line.trim_end_matches(['?', '&']), expected_line);
        assert_eq!(body, expected_body, "{line}");
    }
    assert_eq!(sent.len(), expected.len());
    assert_eq!(watched.of("GET").len(), 1, "one watch: {:?}", watched.lines());
    assert_eq!(
        events.messages(),
        [
            "Starting kubelet.",
            "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. Please migrate \
             to cgroup v2. More information at https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1",
            "Node node1 status is now: NodeHasSufficientMemory",
            "Node node1 status is now: NodeHasNoDiskPressure",
            "Node node1 status is now: NodeHasSufficientPID",
            "Node node1 status is now: NodeReady",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_as_recorded() {
    let clock = clock();
    let server = ApiServer::builder().clock(clock).build();
    let requests = Requests::default();
    let mut config = LeaseConfig::default();
    config.clock = clock;
    config.jitter = Jitter::from_seed(1);
    let client = HeartbeatClient::new(requests.client(&server, "node1"));
    let lease = LeaseController::with_config(client, "node1", config);
    let shutdown = CancellationToken::new();
    let recording = async {
        sleep(Duration::from_secs(5)).await;
        let node = json!({"metadata": {"name": "node1"}});
        server
            .create(&serde_json::from_value::<k8s_openapi::api::core::v1::Node>(node).unwrap())
            .unwrap();
        eventually!(requests.of("PUT").len(), |sent| *sent == 2);
        shutdown.cancel();
    };
    tokio::join!(lease.run(shutdown.clone()), recording);

    let normalized = |mut lease: Value| {
        let time = lease["spec"]["renewTime"].as_str().unwrap_or_default().to_owned();
        if !lease.is_null() {
            assert!(time.len() == START_WITH_MICROSECONDS.len(), "{time}");
            lease["spec"]["renewTime"] = json!("T");
            lease["metadata"]["ownerReferences"][0]["uid"] = json!("U");
            for chosen in ["creationTimestamp", "resourceVersion", "uid"] {
                if let Some(value) = lease["metadata"].get_mut(chosen) {
                    *value = json!("S");
                }
            }
            // The kubelet sends them back, too; they were left out of the recording.
            lease["metadata"].as_object_mut().unwrap().remove("managedFields");
        }
        lease
    };
    let mut expected = recorded("kube-node-lease");
    expected.extend(recorded("/api/v1/nodes/node1?timeout=10s"));
    let mut sent: Vec<(String, Value)> = requests
        .all()
        .into_iter()
        .map(|sent| (format!("{} {}", sent.method, sent.uri), sent.body))
        .collect();
    // Reads of the node go last, as in what is expected.
    sent.sort_by_key(|(line, _)| line.contains("/nodes/"));
    let normal = |list: Vec<(String, Value)>| -> Vec<_> {
        list.into_iter()
            .map(|(line, body)| (line, normalized(body)))
            .collect()
    };
    assert_eq!(normal(sent), normal(expected));
}

const START_WITH_MICROSECONDS: &str = "2026-11-21T06:15:05.314420Z";
