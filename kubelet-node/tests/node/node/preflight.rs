//! What is found before a node starts.

use std::time::Duration;

use http::header::{DATE, HeaderValue};
use http::{Request, Response};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube_client::Client;
use kube_client::client::Body;
use kubelet_core::Clock;
use kubelet_node::{Finding, LocalNode, MachineInfo, NodeConfig, PreflightConfig, preflight};
use kubelet_testing::ApiServer;
use kubelet_testing::api_server::{User, Verb};
use serde_json::json;

use super::rig::{Network, clock};

fn local(config: NodeConfig) -> LocalNode {
    let mut machine = MachineInfo::new(1, 1 << 30);
    machine.machine_id = "mine".into();
    LocalNode::builder(config, machine)
        .network(Network::with(&["10.0.0.7"]))
        .build()
}

fn config(clock: Clock) -> PreflightConfig {
    let mut config = PreflightConfig::default();
    config.clock = clock;
    config
}

async fn found(server: &ApiServer, config: &PreflightConfig) -> Vec<String> {
    let client = server.client_as(User::node("node1"));
    let findings = preflight(&client, &local(NodeConfig::new("node1")), config).await;
    assert!(findings.iter().all(|finding| !finding.advice().is_empty()));
    findings.iter().map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn a_new_node_is_absent_and_else_well_and_nothing_is_written() {
    let clock = clock();
    let server = ApiServer::builder().clock(clock).build();
    let before = server.resource_version();
    assert_eq!(
        found(&server, &config(clock)).await,
        [
            "node node1 is not registered",
            "there is no lease kube-node-lease/node1"
        ]
    );
    assert_eq!(server.resource_version(), before);
}

fn register(server: &ApiServer, machine_id: &str) {
    let node = json!({"metadata": {"name": "node1"}, "status": {"nodeInfo": {
        "machineID": machine_id, "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "",
        "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "", "operatingSystem": "",
        "architecture": ""}}});
    server
        .create(&serde_json::from_value::<Node>(node).unwrap())
        .unwrap();
}

fn lease(server: &ApiServer) {
    let lease = json!({"metadata": {"name": "node1", "namespace": "kube-node-lease"}, "spec": {
        "holderIdentity": "node1", "leaseDurationSeconds": 40, "renewTime": "2026-11-21T06:14:55.000000Z"}});
    server
        .create(&serde_json::from_value::<Lease>(lease).unwrap())
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_that_lives_has_nothing_wrong_until_its_lease_runs_out() {
    let clock = clock();
    let server = ApiServer::builder().clock(clock).build();
    register(&server, "mine");
    lease(&server);
    let before = server.resource_version();
    assert_eq!(found(&server, &config(clock)).await, [""; 0]);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(
        found(&server, &config(clock)).await,
        ["lease kube-node-lease/node1 expired at 2026-11-21T06:15:35Z"]
    );
    assert_eq!(server.resource_version(), before, "nothing was written");
}

#[tokio::test(start_paused = true)]
async fn another_machine_of_the_same_name_is_found() {
    let clock = clock();
    let server = ApiServer::builder().clock(clock).build();
    register(&server, "theirs");
    lease(&server);
    assert_eq!(
        found(&server, &config(clock)).await,
        ["node node1 was registered by another machine, with the machine ID theirs"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_permission_that_is_missing_comes_with_its_rule() {
    let server = ApiServer::builder().clock(clock()).build();
    let nobody = User {
        name: "somebody".into(),
        groups: vec!["system:authenticated".into()],
    };
    let client = server.client_as(nobody);
    let findings = preflight(&client, &local(NodeConfig::new("node1")), &config(clock())).await;
    let missing: Vec<(String, String)> = findings
        .iter()
        .map(|finding| match finding {
            Finding::PermissionMissing(missing) => (finding.to_string(), missing.rule()),
            other => panic!("{other:?}"),
        })
        .collect();
    let asked: Vec<&str> = missing
        .iter()
        .map(|(text, _)| text.split(':').next().unwrap())
        .collect();
    assert_eq!(
        asked,
        [
            "the node may not get nodes",
            "the node may not get leases",
            "the node may not list pods",
            "the node may not list services",
            "the node may not list runtimeclasses",
            "the node may not create events",
        ]
    );
    assert_eq!(
        missing[1].1,
        "- apiGroups: [\"coordination.k8s.io\"]\n  resources: [\"leases\"]\n  verbs: [\"get\"]\n"
    );
    assert!(findings[0].advice().contains("--authorization-mode=Node"));
}

#[tokio::test(start_paused = true)]
async fn labels_that_a_node_may_not_have_are_refused() {
    let clock = clock();
    let server = ApiServer::builder().clock(clock).build();
    let mut node = NodeConfig::new("node1");
    node.node_labels
        .insert("node-restriction.kubernetes.io/x".into(), "1".into());
    let client = server.client_as(User::node("node1"));
    let findings = preflight(&client, &local(node), &config(clock)).await;
    let [
        Finding::NodeAbsent { .. },
        Finding::Refused { what, message },
        Finding::LeaseAbsent { .. },
    ] = findings.as_slice()
    else {
        panic!("{findings:?}");
    };
    assert_eq!(what, "create nodes");
    assert!(
        message.contains("not allowed to set the following labels: node-restriction.kubernetes.io/x"),
        "{message}"
    );
}

#[tokio::test(start_paused = true)]
async fn credentials_servers_and_addresses_that_are_no_good() {
    let clock = clock();
    let server = ApiServer::builder().clock(clock).build();
    // An unknown token.
    let stranger = tower::ServiceBuilder::new()
        .map_request(|mut request: Request<Body>| {
            request.headers_mut().insert(
                "authorization",
                HeaderValue::from_static("Bearer abcdef.0123456789abcdef"),
            );
            request
        })
        .service(server.service());
    let mut bootstrap = config(clock);
    bootstrap.bootstrapping = true;
    let mut node = NodeConfig::new("node1");
    node.node_ips = vec!["10.0.0.8".parse().unwrap()];
    let findings = preflight(&Client::new(stranger, "default"), &local(node), &bootstrap).await;
    let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "node node1: node IP: \"10.0.0.8\" not found in the host's network interfaces",
            "the API server refuses the bootstrap token: Unauthorized",
        ]
    );
    server.stop();
    let away = found(&server, &config(clock)).await;
    assert!(
        away.len() == 1 && away[0].starts_with("the API server does not answer: "),
        "{away:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_wrong_clock_is_reported_with_its_difference() {
    let clock = clock();
    let server = ApiServer::builder().clock(clock).build();
    register(&server, "mine");
    lease(&server);
    for (date, expected) in [
        ("Sat, 21 Nov 2026 06:14:54 GMT", vec![]),
        (
            "Sat, 21 Nov 2026 06:13:55 GMT",
            vec!["the clock is 60 s ahead of the API server's"],
        ),
        (
            "Sat, 21 Nov 2026 06:24:55 GMT",
            vec!["the clock is 600 s behind the API server's"],
        ),
        ("yesterday", vec![]),
    ] {
        let dated = tower::ServiceBuilder::new()
            .map_response(move |mut response: Response<_>| {
                response
                    .headers_mut()
                    .insert(DATE, HeaderValue::from_static(date));
                response
            })
            .service(server.service_as(User::node("node1")));
        let client = Client::new(dated, "default");
        let findings = preflight(&client, &local(NodeConfig::new("node1")), &config(clock)).await;
        let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected, "{date}");
    }
}

#[tokio::test(start_paused = true)]
async fn certificates_that_are_waited_for() {
    let clock = clock();
    let server = ApiServer::builder().clock(clock).build();
    register(&server, "mine");
    lease(&server);
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(clock);
    config.serving_certificate = Some(dir.path().join("kubelet-server-current.pem"));
    config.certificate_requests = vec!["absent".into()];
    let missing = found(&server, &config).await;
    assert!(
        missing.len() == 1 && missing[0].starts_with("there is no serving certificate at "),
        "{missing:?}"
    );
    std::fs::write(config.serving_certificate.as_ref().unwrap(), "").unwrap();
    assert_eq!(found(&server, &config).await, [""; 0]);
    server
        .faults()
        .on(Verb::Get)
        .resource("nodes")
        .fails(500, "etcdserver: leader changed");
    assert_eq!(
        found(&server, &config).await,
        ["the API server does not answer: get nodes: etcdserver: leader changed"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_token_must_be_good_for_a_certificate() {
    let clock = clock();
    let server = ApiServer::builder().clock(clock).build();
    let mut config = config(clock);
    config.bootstrapping = true;
    for (group, expected) in [
        ("system:bootstrappers", vec![]),
        (
            "system:authenticated",
            vec!["the node may not list certificatesigningrequests"],
        ),
    ] {
        let user = User {
            name: "system:bootstrap:abcdef".into(),
            groups: vec![group.into()],
        };
        let local = local(NodeConfig::new("node1"));
        let findings = preflight(&server.client_as(user), &local, &config).await;
        let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
        let begin: Vec<&str> = texts
            .iter()
            .map(|text| text.split(": ").next().unwrap())
            .collect();
        assert_eq!(begin, expected, "{texts:?}");
        assert!(
            findings
                .iter()
                .all(|finding| finding.advice().contains("system:node-bootstrapper"))
        );
    }
}
