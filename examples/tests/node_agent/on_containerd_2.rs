//! What containerd 2 can do and older versions cannot, on a containerd of the test's own. Without containerd 2 or root the test
//! prints `SKIPPED` and passes; in CI it fails.

use std::fs;
use std::os::unix::fs::MetadataExt;

use k8s_openapi::api::core::v1::{Node, Pod};
use kubelet_core::PodExt;
use kubelet_testing::Containerd;
use rustix::mount::{MountFlags, mount};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::on_containerd::{cgroup_folders, remove_cgroups};
use super::pods::{IMAGE, SERVER, pod};
use crate::standalone::{Agent, StatusExt, until};

/// One node for all of it; the pods run at the same time.
#[tokio::test]
async fn pods_use_what_containerd_2_can_do() {
    let Some(containerd) = Containerd::start_2().await.unwrap() else { return };
    let cluster = Cluster::on(tempfile::tempdir().unwrap(), containerd.endpoint()).await;
    let root = format!("kubelet-testing-containerd-2-{}", std::process::id());
    let mut command = cluster.command("cgroupDriver: systemd");
    command.args(["--cgroups-per-qos=true", "--cgroup-root"]).arg(format!("/{root}"));
    let mut agent = Agent::spawn(command.arg("--kubeconfig").arg(cluster.path("kubeconfig")));
    reports_its_features(&cluster.node_is_ready().await);

    tokio::join!(
        groups_are_merged_or_not(&cluster),
        images_are_volumes(&cluster),
        pods_have_users_of_their_own(&cluster, &containerd),
        mounts_are_read_only_to_the_bottom(&cluster),
    );

    // The runtime says `cgroupfs`, and the node follows it.
    assert!(!cgroup_folders(&root, "kubepods/besteffort").is_empty());
    assert!(cgroup_folders(&root, "kubepods.slice").is_empty());

    let pods = cluster.server.list::<Pod>().unwrap();
    for pod in &pods {
        cluster.server.delete::<Pod>("default", pod.metadata.name.as_deref().unwrap()).unwrap();
    }
    for pod in &pods {
        cluster.gone(pod.metadata.name.as_deref().unwrap(), pod.uid_str()).await;
    }
    agent.interrupt().await;
    cluster.end().await;
    remove_cgroups(&root);
}

fn reports_its_features(node: &Node) {
    let status = node.status.as_ref().unwrap();
    let version = &status.node_info.as_ref().unwrap().container_runtime_version;
    assert!(version.starts_with("containerd://2."), "{version}");
    let features = json!({"recursiveReadOnlyMounts": true, "userNamespaces": true});
    let handlers = json!([{"features": features, "name": ""}, {"name": "runc", "features": features}]);
    assert_eq!(serde_json::to_value(&status.runtime_handlers).unwrap(), handlers);
    assert_eq!(serde_json::to_value(&status.features).unwrap(), json!({"supplementalGroupsPolicy": true}));
}

/// Creates the pod, waits until it is ready, and returns it with what its script printed before `up`.
async fn run(cluster: &Cluster, name: &str, script: &str, spec: Value) -> (Pod, String) {
    cluster.create(&pod(name, &format!("{script}; {SERVER}"), spec));
    let pod = cluster.ready(name).await;
    let logs = cluster.path("logs").join(format!("default_{name}_{}", pod.uid_str())).join("main/0.log");
    let logged = async || fs::read_to_string(&logs).ok().filter(|log| log.contains("F up"));
    let log = until("its log", logged).await;
    // Each line has a time, a stream and a flag before it.
    let lines = log.lines().filter_map(|line| line.splitn(4, ' ').nth(3));
    let lines: Vec<_> = lines.take_while(|line| *line != "up").collect();
    (pod, lines.join("\n"))
}

/// The image has `nobody` in group 50.
async fn groups_are_merged_or_not(cluster: &Cluster) {
    let groups = async |name: &str, policy: &str| {
        let context = json!({"runAsUser": 65534, "runAsGroup": 1234, "supplementalGroups": [4000], "fsGroup": 5000,
            "supplementalGroupsPolicy": policy});
        let (pod, printed) = run(cluster, name, "id -G", json!({"securityContext": context})).await;
        let status = pod.status.unwrap();
        let user = status.container("main").user.as_ref().and_then(|user| user.linux.clone()).unwrap();
        assert_eq!((user.uid, user.gid), (65534, 1234));
        (printed, user.supplemental_groups.unwrap_or_default())
    };
    let (merged, strict) = tokio::join!(groups("merged", "Merge"), groups("strict", "Strict"));
    assert_eq!(merged, ("1234 50 4000 5000".to_owned(), vec![50, 1234, 4000, 5000]));
    assert_eq!(strict, ("1234 4000 5000".to_owned(), vec![1234, 4000, 5000]));
}

/// Without `subPath`, which containerd 2.1 ignores.
async fn images_are_volumes(cluster: &Cluster) {
    let spec = json!({
        "volumes": [{"name": "image", "image": {"reference": IMAGE, "pullPolicy": "IfNotPresent"}}],
        "volumeMounts": [{"name": "image", "mountPath": "/image"}],
    });
    let (_, printed) = run(cluster, "with-image", "ls /image/etc; touch /image/mine 2>&1", spec).await;
    assert_eq!(printed, "group\npasswd\ntouch: /image/mine: Read-only file system");
}

async fn pods_have_users_of_their_own(cluster: &Cluster, containerd: &Containerd) {
    let first_id = async |name: &str| {
        let spec = json!({
            "hostNetwork": false, "hostUsers": false,
            "volumes": [{"name": "disk", "emptyDir": {}}, {"name": "memory", "emptyDir": {"medium": "Memory"}}],
            "volumeMounts": [{"name": "disk", "mountPath": "/disk"}, {"name": "memory", "mountPath": "/memory"},
                {"name": "disk", "mountPath": "/part", "subPath": "part"}],
        });
        let script = "echo $(cat /proc/self/uid_map /proc/self/gid_map); touch /disk/mine /memory/mine /part/mine; \
            stat -c %u:%g /disk/mine /memory/mine /part/mine /etc/hosts /var/run/secrets/kubernetes.io/serviceaccount/token";
        let (pod, printed) = run(cluster, name, script, spec).await;
        let (map, owners) = printed.split_once('\n').unwrap();
        assert_eq!(owners, ["0:0"; 5].join("\n"), "as the container sees it");
        let numbers: Vec<u32> = map.split(' ').map(|number| number.parse().unwrap()).collect();
        let [0, first, length, 0, first_group, _] = numbers[..] else { panic!("{map}") };
        assert_eq!((first_group, length), (first, 65536), "{map}");

        // On the host, its files are root's, but its process is not.
        let file = cluster.volume_file(pod.uid_str(), "kubernetes.io~empty-dir", "disk", "mine");
        assert_eq!(fs::metadata(file).unwrap().uid(), 0);
        let id = pod.status.unwrap().ids().remove("main").unwrap();
        let tasks = containerd.tasks().await.unwrap();
        let task = tasks.iter().find(|task| id.ends_with(&task.id)).unwrap();
        assert_eq!(fs::metadata(format!("/proc/{}", task.pid)).unwrap().uid(), first);
        first
    };
    let (one, other) = tokio::join!(first_id("one"), first_id("other"));
    assert!(one >= 65536 && other >= 65536 && one.abs_diff(other) >= 65536, "{one} {other}");
}

async fn mounts_are_read_only_to_the_bottom(cluster: &Cluster) {
    let below = cluster.path("shared/below");
    fs::create_dir_all(&below).unwrap();
    mount("tmpfs", &below, "tmpfs", MountFlags::empty(), None).unwrap();
    let spec = json!({
        "volumes": [{"name": "shared", "hostPath": {"path": cluster.path("shared"), "type": "Directory"}}],
        "volumeMounts": [
            {"name": "shared", "mountPath": "/whole", "readOnly": true, "recursiveReadOnly": "Enabled"},
            {"name": "shared", "mountPath": "/top", "readOnly": true},
        ],
    });
    let script = "touch /whole/below/mine /top/mine 2>&1; touch /top/below/mine && ls /whole/below";
    let (pod, printed) = run(cluster, "reads", script, spec).await;
    let refused = ["whole/below", "top"].map(|at| format!("touch: /{at}/mine: Read-only file system"));
    assert_eq!(printed, format!("{}\nmine", refused.join("\n")));
    let status = pod.status.unwrap();
    let mounts = status.container("main").volume_mounts.iter().flatten();
    let recursive: Vec<_> =
        mounts.map(|mount| (&*mount.mount_path, mount.recursive_read_only.as_deref())).collect();
    assert!(
        recursive.starts_with(&[("/whole", Some("Enabled")), ("/top", Some("Disabled"))]),
        "{recursive:?}"
    );
}
