//! Volumes of a cluster on a real containerd: what containers see, what changes, and what is left at the end. Without
//! containerd, root or `kubectl` the test prints `SKIPPED` and passes; in CI it fails.

use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, StorageClass};
use kubelet_core::PodExt;
use kubelet_testing::api_server::find_kubectl;
use kubelet_testing::{Containerd, MemoryCsi};
use rustix::process::Signal;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::cluster::{Cluster, NODE};
use super::pods::{SERVER, pod};
use crate::standalone::{StatusExt, until};

/// Lists its volumes once, and then prints a config map each time it changes.
const SCRIPT: &str = r#"
cd /v
for file in config/word config/deep/other secret/password downward/name downward/cpu all/word all/token all/namespace; do
    echo "$file $(stat -Lc %a $file) $(head -c 20 $file)"
done
echo "memory $(stat -fc %T memory) $(stat -c %a disk)"
echo host > disk/file; cp disk/file host/written
touch config/mine 2>/dev/null || echo config is read-only
last=
trap 'exit 0' TERM
while true; do
    now=$(cat config/word)
    [ "$now" = "$last" ] || echo "the word is $now"
    last=$now
    sleep 0.1 & wait $!
done
"#;

fn of<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn words(word: &str) -> ConfigMap {
    of(
        json!({"metadata": {"name": "words", "namespace": "default"}, "data": {"word": word, "other": "deep"}}),
    )
}

fn volumes(host: &Path) -> Value {
    let config = json!({"name": "words", "defaultMode": 0o640, "items": [{"key": "word", "path": "word"},
        {"key": "other", "path": "deep/other", "mode": 0o400}]});
    json!([
        {"name": "config", "configMap": config},
        {"name": "secret", "secret": {"secretName": "safe", "defaultMode": 0o400}},
        {"name": "downward", "downwardAPI": {"items": [
            {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
            {"path": "cpu", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu", "divisor": "1m"}}]}},
        {"name": "all", "projected": {"sources": [
            {"configMap": {"name": "words", "items": [{"key": "word", "path": "word"}]}},
            {"serviceAccountToken": {"path": "token"}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}}]}},
        {"name": "disk", "emptyDir": {}},
        {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}},
        {"name": "host", "hostPath": {"path": host, "type": "Directory"}},
    ])
}

#[tokio::test]
async fn a_pod_sees_its_volumes_and_their_changes_and_leaves_none() {
    let Some(kubectl) = find_kubectl().unwrap() else { return };
    let Some(containerd) = Containerd::start().await.unwrap() else { return };
    let cluster = Cluster::on(tempfile::tempdir().unwrap(), containerd.endpoint()).await;
    let mut agent = cluster.start();
    cluster.node_is_ready().await;
    cluster.server.create(&words("first")).unwrap();
    let safe =
        json!({"metadata": {"name": "safe", "namespace": "default"}, "stringData": {"password": "hunter2"}});
    cluster.server.create(&of::<Secret>(safe)).unwrap();
    let host = cluster.path("host");
    fs::create_dir(&host).unwrap();
    let volumes = volumes(&host);
    let names = volumes.as_array().unwrap().iter().map(|volume| volume["name"].as_str().unwrap());
    let mounts: Value = names.map(|name| json!({"name": name, "mountPath": format!("/v/{name}")})).collect();
    let mut web = pod("web", SCRIPT, json!({"volumes": volumes, "volumeMounts": mounts}));
    web.spec.as_mut().unwrap().containers[0].resources = of(json!({"limits": {"cpu": "250m"}}));
    cluster.create(&web);
    let web = cluster.ready("web").await;

    let log = log_of(&cluster, &web);
    let logged = async |words: &str| {
        let read = async || fs::read_to_string(&log).ok().filter(|log| log.contains(words));
        until(&format!("the log of web has {words:?}"), read).await
    };
    let seen = logged("the word is first").await;
    for words in [
        "config/word 640 first",
        "config/deep/other 400 deep",
        "secret/password 400 hunter2",
        "downward/name 644 web",
        "downward/cpu 644 250",
        "all/word 644 first",
        "all/token 644 ",
        "all/namespace 644 default",
        "memory tmpfs 777",
        "config is read-only",
    ] {
        assert!(seen.contains(words), "{words}: {seen}");
    }
    assert_eq!(fs::read_to_string(host.join("written")).unwrap(), "host\n");

    // The watch that is open brings a change.
    change(&cluster, "second");
    logged("the word is second").await;

    // The next agent finds the volumes, changes nothing, and brings the next change.
    let mounted = mounts_of(&cluster, &web);
    assert!(!mounted.is_empty());
    let data = volume_dir(&cluster, &web, "kubernetes.io~configmap/config").join("..data");
    let written = fs::read_link(&data).unwrap();
    agent.signal(Signal::KILL);
    agent.ended().await;
    let mut agent = cluster.start();
    cluster.create(&pod("later", SERVER, json!({})));
    cluster.ready("later").await;
    let ids = |pod: &Pod| pod.status.as_ref().unwrap().ids();
    assert_eq!(ids(&cluster.ready("web").await), ids(&web));
    assert_eq!(mounts_of(&cluster, &web), mounted);
    assert_eq!(fs::read_link(&data).unwrap(), written);
    change(&cluster, "third");
    logged("the word is third").await;

    for name in ["web", "later"] {
        cluster.kubectl(&kubectl, &["delete", "pod", name, "--timeout=100s"]).await;
    }
    until("nothing is mounted", async || mounts_of(&cluster, &web).is_empty().then_some(())).await;
    let folder = cluster.path("root").join("pods").join(web.uid_str());
    until("the pod's folder is gone", async || (!folder.exists()).then_some(())).await;
    assert!(host.join("written").exists(), "the host's files stay");
    agent.signal(Signal::TERM);
    assert!(agent.ended().await.0.success());
    cluster.end().await;
}

/// Reads what the driver wrote, and writes a file.
const READ: &str = "cat /data/csi-volume; echo; touch /data/mine; trap 'exit 0' TERM; while true; do sleep 1 & wait $!; done";

#[tokio::test]
async fn a_volume_of_a_csi_driver_is_provisioned_attached_mounted_and_given_back() {
    let Some(kubectl) = find_kubectl().unwrap() else { return };
    let Some(containerd) = Containerd::start().await.unwrap() else { return };
    let cluster = Cluster::on(tempfile::tempdir().unwrap(), containerd.endpoint()).await;
    let class = json!({"metadata": {"name": "fast"}, "provisioner": "disk.example.com",
        "volumeBindingMode": "WaitForFirstConsumer"});
    cluster.server.create(&of::<StorageClass>(class)).unwrap();
    let object = json!({"metadata": {"name": "disk.example.com"}, "spec": {"attachRequired": true}});
    cluster.server.create(&of::<CSIDriver>(object)).unwrap();
    let mut agent = cluster.start();
    cluster.node_is_ready().await;

    let driver = MemoryCsi::new("disk.example.com");
    let mut served = driver.serve(&cluster.path("csi.sock")).unwrap();
    let registry = cluster.path("root").join("plugins_registry");
    served.register(&registry.join("disk.example.com-reg.sock"), &["1.11.0"]).unwrap();
    served.registered().await.unwrap();
    let csi_node: CSINode = cluster.server.get("", NODE).unwrap().unwrap();
    assert_eq!(csi_node.spec.drivers[0].name, "disk.example.com");

    let claim = json!({"metadata": {"name": "data", "namespace": "default"}, "spec": {"storageClassName": "fast",
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    cluster.server.create(&of::<PersistentVolumeClaim>(claim)).unwrap();
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let mounts = json!([{"name": "data", "mountPath": "/data"}]);
    cluster.create(&pod("web", READ, json!({"volumes": volumes, "volumeMounts": mounts})));
    let web = cluster.ready("web").await;
    let log = log_of(&cluster, &web);
    let logged = async || fs::read_to_string(&log).ok().filter(|log| log.contains("pvc-"));
    until("the log of web has the name of its volume", logged).await;
    assert_eq!((driver.staged().len(), driver.published().len()), (1, 1));
    let in_use = |node: &Node| {
        let status = node.status.as_ref().unwrap();
        (status.volumes_in_use.iter().flatten().count(), status.volumes_attached.iter().flatten().count())
    };
    cluster.node("uses the volume", |node| in_use(node) == (1, 1)).await;

    // The next agent finds the volume as it is.
    let calls = driver.calls().len();
    agent.signal(Signal::KILL);
    agent.ended().await;
    let mut agent = cluster.start();
    cluster.create(&pod("later", SERVER, json!({})));
    cluster.ready("later").await;
    let ids = |pod: &Pod| pod.status.as_ref().unwrap().ids();
    assert_eq!(ids(&cluster.ready("web").await), ids(&web));
    let called: Vec<_> = driver.calls().all().split_off(calls);
    let undone = called.iter().any(|call| format!("{call:?}").contains("Un"));
    assert!(!undone, "{called:?}");

    for name in ["web", "later"] {
        cluster.kubectl(&kubectl, &["delete", "pod", name, "--timeout=100s"]).await;
    }
    let given_back = async || (driver.staged().len() + driver.published().len() == 0).then_some(());
    until("the driver has nothing mounted", given_back).await;
    cluster.node("does not use the volume", |node| in_use(node) == (0, 0)).await;
    assert_eq!(driver.violations(), Vec::<String>::new());
    agent.signal(Signal::TERM);
    assert!(agent.ended().await.0.success());
    served.stop().await;
    cluster.end().await;
}

fn change(cluster: &Cluster, word: &str) {
    let mut changed: ConfigMap = cluster.server.get("default", "words").unwrap().unwrap();
    changed.data = words(word).data;
    cluster.server.replace(&changed).unwrap();
}

fn log_of(cluster: &Cluster, pod: &Pod) -> PathBuf {
    let folder = format!("default_{}_{}", pod.key().name, pod.uid_str());
    cluster.path("logs").join(folder).join("main/0.log")
}

fn volume_dir(cluster: &Cluster, pod: &Pod, volume: &str) -> PathBuf {
    cluster.path("root").join("pods").join(pod.uid_str()).join("volumes").join(volume)
}

/// What is mounted in the folder of the pod.
fn mounts_of(cluster: &Cluster, pod: &Pod) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let volumes = volume_dir(cluster, pod, "");
    let paths = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    paths.filter(|path| Path::new(path).starts_with(&volumes)).map(str::to_owned).collect()
}
