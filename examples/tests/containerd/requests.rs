//! Compares the agent's requests to containerd for a pod with recorded requests of kubelet v1.36.2 for the same pod.
//!
//! Removed from the recording: what only a pod of the API server has (service variables, the token), and what differs
//! from node to node (its DNS, the sizes of its huge pages). Added: what a static pod has.

use kubelet_testing::Containerd;
use serde_json::{Value, json};

use super::cri::Cri;
use crate::standalone::Node;

const MANIFEST: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: minimal
  namespace: golden
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: docker.io/library/busybox:1.36
    imagePullPolicy: IfNotPresent
    command: ["sh", "-c", "sleep 100000"]
"#;

/// In containerd's notation: enums are numbers.
fn sandbox_config(uid: &str) -> Value {
    json!({
        "annotations": { "kubernetes.io/config.hash": uid, "kubernetes.io/config.source": "file" },
        "hostname": "minimal-node",
        "labels": {
            "io.kubernetes.pod.name": "minimal-node",
            "io.kubernetes.pod.namespace": "golden",
            "io.kubernetes.pod.uid": uid,
        },
        "linux": {
            "overhead": {},
            "resources": { "cpu_period": 100_000, "cpu_shares": 2 },
            "security_context": {
                "namespace_options": { "pid": 1, "userns_options": { "mode": 2 } },
                "seccomp": {},
            },
        },
        "log_directory": format!("LOGS/golden_minimal-node_{uid}"),
        "metadata": { "name": "minimal-node", "namespace": "golden", "uid": uid },
    })
}

fn container_config(uid: &str) -> Value {
    json!({
        "annotations": {
            "io.kubernetes.container.hash": "e3b3a006",
            "io.kubernetes.container.restartCount": "0",
            "io.kubernetes.container.terminationMessagePath": "/dev/termination-log",
            "io.kubernetes.container.terminationMessagePolicy": "File",
            "io.kubernetes.pod.terminationGracePeriod": "1",
        },
        "command": ["sh", "-c", "sleep 100000"],
        "labels": {
            "io.kubernetes.container.name": "main",
            "io.kubernetes.pod.name": "minimal-node",
            "io.kubernetes.pod.namespace": "golden",
            "io.kubernetes.pod.uid": uid,
        },
        "linux": {
            "resources": { "cpu_period": 100_000, "cpu_shares": 2, "oom_score_adj": 1000 },
            "security_context": {
                "masked_paths": [
                    "/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys",
                    "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
                    "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
                ],
                "namespace_options": { "pid": 1, "userns_options": { "mode": 2 } },
                "readonly_paths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
                "run_as_user": {},
                "seccomp": { "profile_type": 1 },
            },
        },
        "log_path": "main/0.log",
        "metadata": { "name": "main" },
        "mounts": [
            { "container_path": "/etc/hosts", "host_path": format!("ROOT/pods/{uid}/etc-hosts") },
            {
                "container_path": "/dev/termination-log",
                "host_path": format!("ROOT/pods/{uid}/containers/main/RANDOM"),
            },
        ],
    })
}

#[tokio::test]
async fn a_pod_with_a_network_of_its_own_is_asked_for_as_the_kubelet_would() {
    let Some(containerd) = Containerd::start().await.unwrap() else { return };
    let cri = Cri::of(&containerd).await;
    let node = Node::on(containerd.endpoint());
    node.write("minimal.yaml", MANIFEST);
    let mut agent = node.start();
    let line = agent.ready("minimal").await;
    let uid = &line.uid;

    let sandboxes = cri.sandboxes(uid).await;
    let [sandbox] = &sandboxes[..] else { panic!("{sandboxes:#?}") };
    let (status, mut config) = cri.sandbox_status(&sandbox.id).await;
    let ip = status.network.unwrap().ip;
    assert!(ip.parse::<std::net::Ipv4Addr>().is_ok(), "{ip:?}");
    assert_eq!(line.status().pod_ip.as_deref(), Some(ip.as_str()));
    assert_eq!(line.status().pod_ips.as_ref().unwrap()[0].ip, ip);
    let seen = take(&mut config, "/annotations", "kubernetes.io/config.seen");
    assert!(seen.as_str().unwrap().parse::<k8s_openapi::jiff::Timestamp>().is_ok(), "{seen}");
    take(&mut config, "", "dns_config");
    relocate(&node, &mut config["log_directory"]);
    assert_eq!(config, sandbox_config(uid), "{config:#}");

    let containers = cri.containers(uid).await;
    let [container] = &containers[..] else { panic!("{containers:#?}") };
    let mut config = cri.container_config(&container.id).await.unwrap();
    // As the runtime names the image, not as the pod does: what lies under that name may change.
    let image = take(&mut config, "", "image");
    assert_eq!(image["image"], container.image_ref);
    assert_eq!(line.status().container_statuses.as_ref().unwrap()[0].image_id, container.image_ref);
    take(&mut config, "/linux/resources", "hugepage_limits");
    for mount in config["mounts"].as_array_mut().unwrap() {
        relocate(&node, &mut mount["host_path"]);
    }
    let log = config["mounts"][1]["host_path"].as_str().unwrap().to_owned();
    let (dir, random) = log.rsplit_once('/').unwrap();
    assert!(random.len() == 8 && u32::from_str_radix(random, 16).is_ok(), "{random}");
    config["mounts"][1]["host_path"] = format!("{dir}/RANDOM").into();
    // Each CPU of a host that has such files adds one.
    let masked = config.pointer_mut("/linux/security_context/masked_paths").unwrap().as_array_mut().unwrap();
    masked.retain(|path| !path.as_str().unwrap().ends_with("/thermal_throttle"));
    assert_eq!(config, container_config(uid), "{config:#}");
    agent.interrupt().await;
}

fn take(config: &mut Value, object: &str, key: &str) -> Value {
    let object = config.pointer_mut(object).and_then(Value::as_object_mut);
    object.and_then(|object| object.remove(key)).unwrap_or_else(|| panic!("no {key}"))
}

/// Names the folders of this run as in what is expected.
fn relocate(node: &Node, path: &mut Value) {
    let [logs, root] = [node.pod_logs_dir(), node.root_dir()].map(|dir| dir.display().to_string());
    *path = path.as_str().unwrap().replace(&logs, "LOGS").replace(&root, "ROOT").into();
}
