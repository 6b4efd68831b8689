//! Pods that use more of the disk than they may, or than there is.

use k8s_openapi::api::core::v1::Pod;
use rustix::mount::{MountFlags, mount};
use serde_json::{Value, json};

use super::cluster::{Cluster, NODE, condition};
use super::pods::pod;
use crate::standalone::Agent;

/// Writes so many MiB to its volume, and stays. A process of the host finds its volume below the agent's root folder. It ends with
/// an error: as in the kubelet, a pod whose containers all end with 0 has succeeded, and does not show the eviction.
fn writer(cluster: &Cluster, name: &str, mebibytes: u32, empty_dir: Value) -> Pod {
    let root = cluster.path("root");
    let script = format!(
        "head -c {mebibytes}M /dev/zero > {}/pods/$POD_UID/volumes/kubernetes.io~empty-dir/data/full; \
         trap 'exit 1' TERM; while true; do sleep 1 & wait $!; done",
        root.display()
    );
    let uid = json!([{"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}]);
    let volumes = json!([{"name": "data", "emptyDir": empty_dir}]);
    let mounts = json!([{"name": "data", "mountPath": "/data"}]);
    pod(name, &script, json!({"env": uid, "volumes": volumes, "volumeMounts": mounts}))
}

/// Waits until the pod is evicted, and returns the message of its status.
async fn evicted(cluster: &Cluster, name: &str) -> String {
    let is_evicted =
        |pod: &Pod| pod.status.as_ref().is_some_and(|status| status.reason.as_deref() == Some("Evicted"));
    let pod = cluster.pod(name, "is evicted", is_evicted).await;
    let status = pod.status.unwrap();
    assert_eq!(status.phase.as_deref(), Some("Failed"), "{status:?}");
    let message = status.message.unwrap_or_default();
    cluster.event(name, "Evicted", message.trim_end()).await;
    message
}

#[tokio::test]
async fn a_pod_beyond_the_limit_of_its_volume_is_evicted() {
    let cluster = Cluster::on_processes().await;
    let mut command = cluster.command("volumeStatsAggPeriod: 1s\nevictionHard: {pid.available: \"1\"}");
    let mut agent = Agent::spawn(command.arg("--kubeconfig").arg(cluster.path("kubeconfig")));
    cluster.node_is_ready().await;
    cluster.create(&writer(&cluster, "modest", 1, json!({"sizeLimit": "10Mi"})));
    cluster.create(&writer(&cluster, "greedy", 20, json!({"sizeLimit": "10Mi"})));
    let message = evicted(&cluster, "greedy").await;
    assert_eq!(message, "Usage of EmptyDir volume \"data\" exceeds the limit \"10Mi\". ");
    cluster.ready("modest").await;
    agent.signal(rustix::process::Signal::TERM);
    assert!(agent.ended().await.0.success());
    cluster.end().await;
}

#[tokio::test]
async fn the_pod_that_fills_the_disk_is_evicted() {
    let cluster = Cluster::on_processes().await;
    let root = cluster.path("root");
    std::fs::create_dir(&root).unwrap();
    if let Err(error) = mount("tmpfs", &root, "tmpfs", MountFlags::empty(), c"size=128m") {
        assert!(std::env::var_os("CI").is_none(), "cannot mount a tmpfs: {error}");
        println!("SKIPPED: cannot mount a tmpfs: {error}");
        return cluster.end().await;
    }
    let config = "volumeStatsAggPeriod: 1s\nevictionHard: {nodefs.available: 64Mi}\nevictionPressureTransitionPeriod: 3s";
    let mut agent = Agent::spawn(cluster.command(config).arg("--kubeconfig").arg(cluster.path("kubeconfig")));
    cluster.node_is_ready().await;
    cluster.create(&writer(&cluster, "greedy", 90, json!({})));
    let message = evicted(&cluster, "greedy").await;
    let begin = "The node was low on resource: ephemeral-storage. Threshold quantity: 64Mi, available: ";
    assert!(message.starts_with(begin), "{message}");
    cluster.event(NODE, "EvictionThresholdMet", "Attempting to reclaim ephemeral-storage").await;
    cluster.event(NODE, "NodeHasDiskPressure", "").await;
    // Its files are removed with it.
    cluster.node("has room again", |node| condition(node, "DiskPressure").as_deref() == Some("False")).await;
    agent.signal(rustix::process::Signal::TERM);
    assert!(agent.ended().await.0.success());
    cluster.end().await;
}
