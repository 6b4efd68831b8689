//! On a real containerd of the test's own. Without containerd, root or `kubectl` the tests print `SKIPPED` and pass; in CI
//! they fail.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::PodExt;
use kubelet_core::annotations::CONFIG_HASH;
use kubelet_testing::Containerd;
use kubelet_testing::api_server::find_kubectl;
use rustix::process::Signal;
use serde_json::json;

use super::cluster::{Cluster, NODE};
use super::pods::{SERVER, pod};
use crate::containerd::cri::Cri;
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

/// As the kubelet's node suite has it for static pods: `mirror_pod_test.go`, "should successfully recreate when file is removed and
/// recreated".
#[tokio::test]
async fn a_static_pod_whose_manifest_is_removed_and_written_again_starts_again() {
    let Some(containerd) = Containerd::start().await.unwrap() else { return };
    let cri = Cri::of(&containerd).await;
    let cluster = Cluster::on(tempfile::tempdir().unwrap(), containerd.endpoint()).await;
    let path = cluster.path("manifests/static.json");
    let write = |name: &str| {
        let mut manifest = serde_json::to_value(pod(name, SERVER, json!({}))).unwrap();
        manifest["apiVersion"] = "v1".into();
        manifest["kind"] = "Pod".into();
        manifest["spec"]["nodeName"].take();
        fs::write(path.with_file_name(format!("{name}.json")), manifest.to_string()).unwrap();
    };
    write("static");
    let mut agent = cluster.start();
    cluster.node_is_ready().await;
    let name = format!("static-{NODE}");
    let first = cluster.ready(&name).await;
    let status = |pod: &Pod| pod.status.clone().unwrap();
    let uid = first.annotation(CONFIG_HASH).unwrap();
    assert_eq!(status(&first).restarts("main"), 0);
    let before = cri.running(uid).await;

    fs::remove_file(&path).unwrap();
    write("static");
    let first_status = status(&first);
    let is_again = |pod: &Pod| {
        let status = status(pod);
        status.is_ready() && status.restarts("main") == 1 && status.ids() != first_status.ids()
    };
    let second = cluster.pod(&name, "runs again", is_again).await;
    assert_eq!(second.annotation(CONFIG_HASH), Some(uid), "the same pod");
    let running = cri.running(uid).await;
    assert_eq!(running.len(), 1);
    assert!(running.values().all(|process| before.values().all(|before| before != process)));

    // What takes its place at once, with the same content, is no other manifest.
    let beside = path.with_file_name(".beside");
    fs::copy(&path, &beside).unwrap();
    fs::rename(&beside, &path).unwrap();
    write("later");
    cluster.ready(&format!("later-{NODE}")).await;
    assert_eq!(status(&cluster.ready(&name).await).ids(), status(&second).ids());
    assert_eq!(cri.running(uid).await, running);

    for name in ["static", "later"] {
        fs::remove_file(path.with_file_name(format!("{name}.json"))).unwrap();
    }
    cluster.gone(&name, second.uid_str()).await;
    until("its container ends", async || cri.running(uid).await.is_empty().then_some(())).await;
    agent.interrupt().await;
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
pub(super) fn cgroup_folders(root: &str, name: &str) -> Vec<PathBuf> {
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
