//! The API server restarts, and so does the agent: the pods do not notice.

use std::fs;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::PodExt;
use rustix::process::Signal;
use serde_json::json;

use super::cluster::{Cluster, NODE};
use super::pods::{IMAGE, SERVER, pod};
use crate::standalone::{StatusExt, until};

/// Verb, resource and field selector of the requests of a kubelet v1.36, as recorded.
const ASKED: [&str; 29] = [
    "create csinodes",
    "create events",
    "create leases",
    "create nodes",
    "create pods",
    "create serviceaccounts/token",
    "delete pods",
    "deletecollection resourceslices spec.nodeName=NODE",
    "get csinodes",
    "get leases",
    "get nodes",
    "get pods",
    "patch events",
    "patch nodes/status",
    "patch pods/status",
    "update csinodes",
    "update leases",
    "watch configmaps metadata.name=kube-root-ca.crt",
    "watch csidrivers",
    "watch nodes metadata.name=NODE",
    "watch pods spec.nodeName=NODE",
    "watch runtimeclasses",
    "watch services spec.clusterIP!=None",
    // If streaming lists are not available.
    "list configmaps metadata.name=kube-root-ca.crt",
    "list csidrivers",
    "list nodes metadata.name=NODE",
    "list pods spec.nodeName=NODE",
    "list runtimeclasses",
    "list services spec.clusterIP!=None",
];

#[tokio::test]
async fn pods_outlive_the_api_server_and_the_agent() {
    let mut cluster = Cluster::on_processes().await;
    let manifest = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "static"}, "spec": {
        "hostNetwork": true,
        "containers": [{"name": "main", "image": IMAGE, "command": ["sh", "-c", SERVER]}]}});
    fs::write(cluster.path("manifests/static.json"), manifest.to_string()).unwrap();
    let mut agent = cluster.start();
    cluster.node_is_ready().await;
    cluster.create(&pod("web", SERVER, json!({})));
    // It ends with the first signal.
    let (go, gone) = (cluster.path("go"), cluster.path("gone"));
    let until_told = "until [ -e $GO ]; do sleep 0.2; done; touch $GONE; exit 3";
    let script = format!("echo up; [ -e $GONE ] || {{ {until_told}; }}; {SERVER}");
    let env = json!([{"name": "GO", "value": go}, {"name": "GONE", "value": gone}]);
    cluster.create(&pod("crash", &script, json!({"env": env})));
    let crash = cluster.ready("crash").await;
    let web = cluster.ready("web").await;
    let name = format!("static-{NODE}");
    let mirror = cluster.ready(&name).await;
    assert!(mirror.is_mirror());
    let ids = |pod: &Pod| pod.status.as_ref().unwrap().ids();

    // Without the API server pods keep running, and ended containers are restarted.
    let renewed = cluster.renewed();
    cluster.stop_api_server().await;
    fs::write(&go, "").unwrap();
    let log = cluster.path("logs").join(format!("default_crash_{}", crash.uid_str())).join("main/1.log");
    let again = async || fs::read_to_string(&log).ok().filter(|log| log.contains("up"));
    until("what crashed begins again without the API server", again).await;
    let manifest = manifest.to_string().replace("\"static\"", "\"second\"");
    fs::write(cluster.path("manifests/second.json"), &manifest).unwrap();
    let log_dir = cluster.path("logs");
    let logs = || fs::read_dir(&log_dir).unwrap().flatten();
    let is_second = |name: &str| name.starts_with(&format!("default_second-{NODE}_"));
    let started = async || logs().find(|entry| entry.file_name().to_str().is_some_and(is_second));
    until("a static pod begins without the API server", started).await;
    assert_eq!(cluster.healthz("/healthz").await.unwrap().0, 200);
    cluster.start_api_server().await;
    cluster.ready(&format!("second-{NODE}")).await;
    assert_eq!(ids(&cluster.ready("web").await), ids(&web));
    let restarted = |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.restarts("main") == 1);
    cluster.pod("crash", "is told to have begun again", restarted).await;
    let resumed = async || (cluster.renewed() > renewed).then_some(());
    until("the lease is renewed again", resumed).await;

    // The agent ends; its containers do not.
    agent.signal(Signal::TERM);
    assert!(agent.ended().await.0.success());
    let mut agent = cluster.start();
    let patches = cluster.server.calls().len();
    cluster.create(&pod("later", SERVER, json!({})));
    cluster.ready("later").await;
    let calls = cluster.server.calls().all();
    for before in [&web, &mirror] {
        let now = cluster.ready(&before.key().name).await;
        assert_eq!(now.uid_str(), before.uid_str());
        assert_eq!(ids(&now), ids(before), "no container was started again");
        assert_eq!(now.status.as_ref().unwrap().restarts("main"), 0);
        let told = calls.iter().skip(patches).filter(|call| call.resource == "pods/status");
        let told: Vec<_> = told.filter(|call| call.name == *before.key().name).collect();
        assert!(told.is_empty(), "a restart shows nowhere: {told:?}");
    }

    // An agent can also start without the API server: static pods start, and running pods continue.
    cluster.stop_api_server().await;
    agent.signal(Signal::TERM);
    assert!(agent.ended().await.0.success());
    let third = manifest.replace("\"second\"", "\"third\"");
    fs::write(cluster.path("manifests/third.json"), third).unwrap();
    let mut agent = cluster.start();
    let is_third = |name: &str| name.starts_with(&format!("default_third-{NODE}_"));
    let started = async || logs().find(|entry| entry.file_name().to_str().is_some_and(is_third));
    until("a static pod begins under an agent that knows no API server", started).await;
    cluster.start_api_server().await;
    cluster.ready(&format!("third-{NODE}")).await;
    assert_eq!(ids(&cluster.ready("web").await), ids(&web));

    // If a manifest is removed, so are its pod and its mirror pod.
    fs::remove_file(cluster.path("manifests/static.json")).unwrap();
    cluster.gone(&name, mirror.uid_str()).await;
    agent.signal(Signal::INT);
    assert!(agent.ended().await.0.success());

    // In all this time it made only requests that a kubelet makes, too.
    let allowed = ASKED.map(|asked| asked.replace("NODE", NODE));
    let more: Vec<_> = cluster.asked().into_iter().filter(|asked| !allowed.contains(asked)).collect();
    assert!(more.is_empty(), "{more:#?}");
    for needed in [
        "watch configmaps metadata.name=kube-root-ca.crt",
        "watch nodes metadata.name=NODE",
        "watch pods spec.nodeName=NODE",
        "watch runtimeclasses",
        "watch services spec.clusterIP!=None",
    ] {
        assert!(cluster.asked().contains(&needed.replace("NODE", NODE)), "{needed}");
    }
    cluster.end().await;
}
