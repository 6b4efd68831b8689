//! On a real containerd of the test's own. Without containerd, root or `kubectl` the tests print `SKIPPED` and pass; in CI
//! they fail.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use kubelet_core::PodExt;
use kubelet_testing::Containerd;
use kubelet_testing::api_server::find_kubectl;
use rustix::process::Signal;
use serde_json::json;

use super::cluster::{Cluster, NODE};
use super::pods::{SERVER, pod};
use crate::standalone::{Agent, StatusExt, until};

#[tokio::test]
async fn pods_of_a_cluster_run_in_containers() {
    let Some(kubectl) = find_kubectl().unwrap() else { return };
    let Some(containerd) = Containerd::start().await.unwrap() else { return };
    let cluster = Cluster::on(tempfile::tempdir().unwrap(), containerd.endpoint()).await;
    let mut agent = cluster.start();
    let node = cluster.node_is_ready().await;
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref()).unwrap();
    assert!(info.container_runtime_version.starts_with("containerd://"), "{info:?}");

    // Token, namespace and CA certificate are at their usual paths.
    let volumes = json!([{"name": "scratch", "emptyDir": {}}]);
    let mounts = json!([
        {"name": "scratch", "mountPath": "/scratch"},
        {"name": "scratch", "mountPath": "/part", "subPath": "deep/part"},
        {"name": "scratch", "mountPath": "/part-to-read", "subPath": "deep", "readOnly": true},
    ]);
    let account = "/var/run/secrets/kubernetes.io/serviceaccount";
    let script = format!(
        "touch /scratch/mine /part/of-it && ls /scratch/deep/part /part-to-read; touch /part-to-read/mine; \
         touch {account}/mine; cat {account}/namespace; echo; \
         wc -c < {account}/token; ls {account}; {SERVER}"
    );
    let created = Instant::now();
    cluster.create(&pod("web", &script, json!({"volumes": volumes, "volumeMounts": mounts})));
    let web = cluster.ready("web").await;
    println!("web runs {:?} after it was created", created.elapsed());
    let logs = cluster.path("logs").join(format!("default_web_{}", web.uid_str())).join("main/0.log");
    let logged = async || fs::read_to_string(&logs).ok().filter(|log| log.contains("F up"));
    let log = until("the log of web", logged).await;
    for words in [
        "F of-it",
        "F part",
        "stdout F default",
        "F ca.crt",
        "F namespace",
        "F token",
        "Read-only file system",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }
    assert_eq!(log.matches("Read-only file system").count(), 2, "{log}");
    let of_web = format!("{}/volume-subpaths/scratch/main/", web.uid_str());
    let sub_paths = || fs::read_to_string("/proc/self/mounts").unwrap().matches(&of_web).count();
    assert_eq!(sub_paths(), 2);
    for reason in ["Pulled", "Created", "Started"] {
        cluster.event("web", reason, "").await;
    }

    // The agent ends but its containers do not, and the next agent takes them over.
    agent.signal(Signal::TERM);
    assert!(agent.ended().await.0.success());
    let mut agent = cluster.start();
    cluster.create(&pod("later", SERVER, json!({})));
    cluster.ready("later").await;
    let now = cluster.ready("web").await;
    assert_eq!(now.status.as_ref().unwrap().ids(), web.status.as_ref().unwrap().ids());

    for name in ["web", "later"] {
        cluster.kubectl(&kubectl, &["delete", "pod", name, "--timeout=100s"]).await;
    }
    until("no sub-path is mounted", async || (sub_paths() == 0).then_some(())).await;
    cluster.event("web", "Killing", "Stopping container main").await;
    agent.signal(Signal::TERM);
    assert!(agent.ended().await.0.success());
    cluster.end().await;
}

#[tokio::test]
async fn pods_lie_in_cgroups_of_their_own_and_leave_none() {
    let Some(kubectl) = find_kubectl().unwrap() else { return };
    let Some(containerd) = Containerd::start().await.unwrap() else { return };
    let cluster = Cluster::on(tempfile::tempdir().unwrap(), containerd.endpoint()).await;
    let root = format!("kubelet-testing-node-{}", std::process::id());
    let mut command = cluster.command("");
    command.args(["--cgroups-per-qos=true", "--cgroup-root"]).arg(format!("/{root}"));
    let mut agent = Agent::spawn(command.arg("--kubeconfig").arg(cluster.path("kubeconfig")));
    cluster.node_is_ready().await;
    cluster.event(NODE, "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods").await;
    let mut web = pod("web", SERVER, json!({}));
    let resources = json!({"limits": {"cpu": "500m", "memory": "64Mi"}});
    web.spec.as_mut().unwrap().containers[0].resources = serde_json::from_value(resources).unwrap();
    cluster.create(&web);
    let web = cluster.ready("web").await;
    // The cgroup of a guaranteed pod is in the root of all pods' cgroups.
    let folders = |name: &str| cgroup_folders(&root, name);
    let name = format!("kubepods/pod{}", web.uid_str());
    let dirs = folders(&name);
    let any = |file: &str| dirs.iter().find_map(|dir| fs::read_to_string(dir.join(file)).ok());
    let memory = any("memory.limit_in_bytes").or(any("memory.max")).unwrap();
    assert_eq!(memory.trim(), (64 << 20).to_string());
    let within = dirs.iter().flat_map(|dir| fs::read_dir(dir).unwrap().flatten());
    let within = within.filter(|entry| entry.path().is_dir()).count();
    assert!(within > 0, "its containers lie in it");

    cluster.kubectl(&kubectl, &["delete", "pod", "web", "--timeout=100s"]).await;
    assert_eq!(folders(&name), Vec::<PathBuf>::new());
    agent.signal(Signal::TERM);
    assert!(agent.ended().await.0.success());
    cluster.end().await;
    remove_cgroups(&root);
}

/// The folders of a cgroup below `root`, one for each controller.
fn cgroup_folders(root: &str, name: &str) -> Vec<PathBuf> {
    let mounted = fs::read_dir("/sys/fs/cgroup").unwrap().flatten().map(|entry| entry.path());
    let hierarchies = mounted.chain([PathBuf::from("/sys/fs/cgroup")]);
    let root = root.trim_start_matches('/');
    hierarchies.map(|at| at.join(root).join(name)).filter(|dir| dir.is_dir()).collect()
}

/// Removes the cgroups of an agent, which has no pods any more.
pub(super) fn remove_cgroups(root: &str) {
    for name in ["kubepods/besteffort", "kubepods/burstable", "kubepods", ""] {
        cgroup_folders(root, name).iter().for_each(|dir| fs::remove_dir(dir).unwrap());
    }
}
