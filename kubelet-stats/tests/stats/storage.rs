//! The whole summary: file systems, logs, volumes, rates.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Pod, PodSpec, Volume};
use k8s_openapi::jiff::Timestamp;
use kubelet_core::stats::{
    FsStats, RuntimeContainer, RuntimeContainerUsage, RuntimeCpu, RuntimeFileSystem, RuntimeFileSystems,
    RuntimeList, RuntimeSandbox, StatsPods,
};
use kubelet_core::{PodUid, RootDir, SummaryProvider as _, VolumeUsage, VolumeUsages};
use kubelet_stats::source::{StatFs, StatFsResult};
use kubelet_stats::{Collector, NodeSummary, SummaryConfig};

use crate::tree::{FixedRuntime, Tree, file_systems};

struct Volumes;

#[async_trait::async_trait]
impl VolumeUsages for Volumes {
    async fn volume_usages(&self, uid: &PodUid) -> BTreeMap<String, VolumeUsage> {
        assert_eq!(uid.as_str(), "a");
        let usage = |used, claim: Option<&str>| {
            let mut usage = VolumeUsage::default();
            usage.time = Some(Timestamp::from_second(100).unwrap());
            usage.used_bytes = Some(used);
            usage.inodes_used = Some(1);
            usage.claim = claim.map(|name| ("default".to_owned(), name.to_owned()));
            usage.abnormal = claim.map(|_| true);
            usage
        };
        BTreeMap::from([
            ("cache".to_owned(), usage(1_000_000, None)),
            ("data".to_owned(), usage(5_000_000, Some("data-claim"))),
            ("memory".to_owned(), usage(7_000_000, None)),
        ])
    }
}

struct Pods;

impl StatsPods for Pods {
    fn pod(&self, _: &PodUid) -> Option<Arc<Pod>> {
        let empty_dir = |name: &str, medium: Option<&str>| Volume {
            name: name.into(),
            empty_dir: Some(EmptyDirVolumeSource {
                medium: medium.map(Into::into),
                ..Default::default()
            }),
            ..Default::default()
        };
        let spec = PodSpec {
            volumes: Some(vec![
                empty_dir("cache", None),
                empty_dir("memory", Some("Memory")),
            ]),
            ..Default::default()
        };
        Some(Arc::new(Pod {
            spec: Some(spec),
            ..Default::default()
        }))
    }
}

/// A pod `web` with the container `main`, which has written 3000 bytes and a log.
fn runtime(tree: &Tree, second: i64, cpu: u64) -> FixedRuntime {
    let at = Timestamp::from_second(second).unwrap();
    let mountpoint = tree.dir.path().to_str().unwrap().to_owned();
    let layer = |used| RuntimeFileSystem {
        timestamp: at,
        mountpoint: mountpoint.clone(),
        used_bytes: Some(used),
        inodes_used: Some(2),
    };
    let list = RuntimeList {
        sandboxes: vec![RuntimeSandbox {
            id: "s".into(),
            namespace: "default".into(),
            pod: "web".into(),
            uid: "a".into(),
            created_at: Timestamp::from_second(50).ok(),
            ready: true,
        }],
        containers: vec![RuntimeContainer {
            id: "c".into(),
            sandbox_id: "s".into(),
            name: "main".into(),
            running: true,
            ..Default::default()
        }],
    };
    FixedRuntime {
        list: list.into(),
        usages: vec![RuntimeContainerUsage {
            id: "c".into(),
            name: "main".into(),
            cpu: Some(RuntimeCpu {
                timestamp: at,
                usage_core_nano_seconds: Some(cpu),
                ..Default::default()
            }),
            writable_layer: Some(layer(3_000)),
            ..Default::default()
        }],
        file_systems: RuntimeFileSystems {
            images: vec![layer(9_000)],
            containers: Vec::new(),
        },
        ..Default::default()
    }
}

fn node() -> Tree {
    let tree = Tree::node();
    tree.add_v1("/kubepods", 500, 5_000);
    tree.add_v1("/kubepods/poda", 500, 5_000);
    tree.write("var/log/pods/default_web_a/main/0.log", &"x".repeat(5000));
    tree.write("var/log/pods/default_web_a/main/0.log.old", "y");
    tree.write("var/log/pods/default_web_a/main/folder/not-counted", "z");
    tree
}

fn summary(tree: &Tree, runtime: FixedRuntime) -> NodeSummary {
    let config = SummaryConfig {
        root_dir: RootDir::new(tree.path("var/lib/kubelet")),
        pod_logs_dir: tree.path("var/log/pods"),
        runtime: Some(Arc::new(runtime)),
        volumes: Some(Arc::new(Volumes)),
        pods: Some(Arc::new(Pods)),
        kubelet_cgroup: Some("/none".to_owned()),
        ..SummaryConfig::new("node1")
    };
    NodeSummary::new(tree.collector(&["/kubepods"]), config)
}

#[tokio::test]
async fn everything_of_a_node() {
    let tree = node();
    let summary = summary(&tree, runtime(&tree, 60, 0));
    let shown = summary.get(true).await.unwrap();

    let node = &shown.node;
    assert_eq!(node.node_name, "node1");
    let fs = node.fs.as_ref().unwrap();
    assert!(fs.capacity_bytes > Some(0) && fs.used_bytes <= fs.capacity_bytes);
    let (images, containers) = {
        let runtime = node.runtime.as_ref().unwrap();
        (
            runtime.image_fs.as_ref().unwrap(),
            runtime.container_fs.as_ref().unwrap(),
        )
    };
    assert_eq!(images, containers);
    assert_eq!((images.used_bytes, images.inodes_used), (Some(9_000), Some(2)));
    assert_eq!(images.capacity_bytes, fs.capacity_bytes);
    assert_eq!(summary.dedicated_file_systems().await.unwrap(), (false, false));
    let rlimit = node.rlimit.as_ref().unwrap();
    assert_eq!(
        (rlimit.max_pid, rlimit.num_of_running_processes),
        (Some(32768), Some(239))
    );
    let [pods] = &node.system_containers[..] else {
        panic!("{:?}", node.system_containers)
    };
    assert_eq!(
        (&*pods.name, pods.cpu.as_ref().unwrap().usage_core_nano_seconds),
        ("pods", Some(500))
    );

    let [pod] = &shown.pods.as_ref().unwrap()[..] else {
        panic!("{:?}", shown.pods)
    };
    assert_eq!(
        (&*pod.pod_ref.name, &*pod.pod_ref.namespace, &*pod.pod_ref.uid),
        ("web", "default", "a")
    );
    assert_eq!(pod.start_time.as_ref().unwrap().0.as_second(), 50);
    assert_eq!(
        pod.memory.as_ref().unwrap().rss_bytes,
        Some(5_000),
        "of its cgroup"
    );
    let [main] = &pod.containers.as_ref().unwrap()[..] else {
        panic!("{pod:?}")
    };
    let rootfs = main.rootfs.as_ref().unwrap();
    assert_eq!(
        (rootfs.used_bytes, rootfs.capacity_bytes),
        (Some(3_000), fs.capacity_bytes)
    );
    let logs = main.logs.as_ref().unwrap();
    assert_eq!(
        logs.inodes_used,
        Some(2),
        "the files of the folder, not those below"
    );
    let volumes: Vec<_> = pod
        .volume_stats
        .iter()
        .map(|volume| (&*volume.name, volume.pvc_ref.is_some()))
        .collect();
    assert_eq!(volumes, [("cache", false), ("data", true), ("memory", false)]);
    assert_eq!(pod.volume_stats[1].pvc_ref.as_ref().unwrap().name, "data-claim");
    assert!(pod.volume_stats[1].volume_health_stats.unwrap().abnormal);
    // Writable layer, logs, the local volume and /etc/hosts.
    let hosts = 4096.min(blocks(&tree, "var/lib/kubelet/pods/a/etc-hosts"));
    let ephemeral = pod.ephemeral_storage.as_ref().unwrap();
    assert_eq!(
        ephemeral.used_bytes,
        Some(3_000 + logs.used_bytes.unwrap() + 1_000_000 + hosts)
    );
    assert_eq!(ephemeral.inodes_used, Some(2 + 2 + 1 + 1));
}

fn blocks(tree: &Tree, path: &str) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(tree.path(path)).unwrap()) * 512
}

#[tokio::test]
async fn the_json_has_the_fields_of_the_kubelet() {
    let tree = node();
    let summary = summary(&tree, runtime(&tree, 60, 0)).get(false).await.unwrap();
    let json = serde_json::to_value(summary).unwrap();
    let keys = |pointer: &str| -> Vec<String> {
        json.pointer(pointer)
            .and_then(|value| value.as_object())
            .unwrap()
            .keys()
            .cloned()
            .collect()
    };
    let node = [
        "cpu",
        "fs",
        "memory",
        "nodeName",
        "rlimit",
        "runtime",
        "startTime",
        "swap",
        "systemContainers",
    ];
    assert_eq!(keys("/node"), node);
    let pod = [
        "containers",
        "cpu",
        "ephemeral-storage",
        "memory",
        "podRef",
        "startTime",
        "swap",
        "volume",
    ];
    assert_eq!(keys("/pods/0"), pod);
    let container = [
        "cpu",
        "io",
        "logs",
        "memory",
        "name",
        "rootfs",
        "startTime",
        "swap",
    ];
    assert_eq!(keys("/pods/0/containers/0"), container);
}

#[tokio::test]
async fn the_agent_is_not_delayed_by_a_missing_root_folder() {
    let tree = node();
    tree.remove("var/lib/kubelet");
    let error = summary(&tree, runtime(&tree, 60, 0))
        .summary(false)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("var/lib/kubelet"), "{error}");
}

#[tokio::test]
async fn without_a_runtime_the_cgroups_are_the_containers() {
    let tree = node();
    let id = "e".repeat(64);
    tree.add_v1(&format!("/kubepods/poda/{id}"), 42, 1);
    tree.add_v1(&format!("/docker/{id}"), 43, 1);
    let config = SummaryConfig {
        root_dir: RootDir::new(tree.path("var/lib/kubelet")),
        ..SummaryConfig::new("laptop")
    };
    let summary = NodeSummary::new(tree.collector(&["/kubepods", "/docker"]), config);
    let pods = summary.summary(false).await.unwrap().pods.unwrap();
    let shown: Vec<_> = pods
        .iter()
        .map(|pod| {
            let containers = pod.containers.as_ref().unwrap();
            let cpu = containers[0].cpu.as_ref().unwrap().usage_core_nano_seconds;
            (
                &*pod.pod_ref.name,
                &*pod.pod_ref.uid,
                containers[0].name.len(),
                cpu,
            )
        })
        .collect();
    assert_eq!(shown, [("/docker", "", 64, Some(43)), ("", "a", 64, Some(42))]);
}

/// Each of these folders is on a device of its own.
struct Disks;

impl StatFs for Disks {
    fn stat(&self, path: &Path) -> std::io::Result<StatFsResult> {
        let minor = match path.to_str() {
            Some("/images") => 2,
            Some("/layers") => 3,
            _ => 1,
        };
        Ok(StatFsResult {
            major: 1,
            minor,
            capacity: 1000 * minor,
            available: 10 * minor,
            ..Default::default()
        })
    }
}

#[tokio::test]
async fn images_and_containers_on_disks_of_their_own() {
    let tree = node();
    tree.write(
        "proc/self/mountinfo",
        "1 0 1:1 / / rw - ext4 /dev/a rw\n2 1 1:2 / /images rw - xfs /dev/b rw\n3 1 1:3 / /layers rw - xfs /dev/c rw\n",
    );
    let shown = async |images: &str, containers: &[&str]| {
        let part = |mountpoint: &str| RuntimeFileSystem {
            mountpoint: mountpoint.to_owned(),
            used_bytes: Some(5),
            ..Default::default()
        };
        let runtime = FixedRuntime {
            file_systems: RuntimeFileSystems {
                images: vec![part(images)],
                containers: containers.iter().map(|path| part(path)).collect(),
            },
            ..Default::default()
        };
        let mut config = tree.config(&[]);
        config.file_systems = file_systems(&tree.path("proc"), Arc::new(Disks));
        let config = (
            config,
            SummaryConfig {
                runtime: Some(Arc::new(runtime)),
                ..SummaryConfig::new("node1")
            },
        );
        let summary = NodeSummary::new(Collector::new(config.0), config.1);
        let runtime = summary.summary(false).await.unwrap().node.runtime.unwrap();
        assert_eq!(summary.image_fs_stats().await.unwrap(), runtime.image_fs);
        let capacity = |fs: Option<FsStats>| fs.unwrap().capacity_bytes.unwrap();
        let dedicated = summary.dedicated_file_systems().await.unwrap();
        (
            capacity(runtime.image_fs),
            capacity(runtime.container_fs),
            dedicated,
        )
    };
    assert_eq!(shown("/", &[]).await, (1000, 1000, (false, false)));
    assert_eq!(shown("/images", &["/images"]).await, (2000, 2000, (true, false)));
    assert_eq!(shown("/images", &["/layers"]).await, (2000, 3000, (true, true)));
    assert_eq!(shown("/", &["/layers"]).await, (1000, 3000, (true, true)));
    assert_eq!(
        shown("/other", &["/"]).await,
        (1000, 1000, (false, false)),
        "on the same device"
    );
}

#[tokio::test]
async fn the_file_system_of_images_alone() {
    let tree = node();
    let shown = async |config: SummaryConfig, mountinfo: &str| {
        tree.write("proc/self/mountinfo", mountinfo);
        let summary = NodeSummary::new(tree.collector(&[]), config);
        summary.image_fs_stats().await
    };
    let of = |images: &[&str]| {
        let part = |mountpoint: &&str| RuntimeFileSystem {
            mountpoint: (*mountpoint).to_owned(),
            used_bytes: Some(5),
            ..Default::default()
        };
        let runtime = FixedRuntime {
            file_systems: RuntimeFileSystems {
                images: images.iter().map(part).collect(),
                containers: Vec::new(),
            },
            ..Default::default()
        };
        SummaryConfig {
            runtime: Some(Arc::new(runtime)),
            ..SummaryConfig::new("node1")
        }
    };
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let folder = tree.dir.path().to_str().unwrap();

    let known = shown(of(&[folder]), &mounts).await.unwrap().unwrap();
    assert_eq!(known.used_bytes, Some(5));
    assert!(known.capacity_bytes > Some(0) && known.available_bytes <= known.capacity_bytes);
    let none = shown(SummaryConfig::new("node1"), &mounts).await.unwrap();
    assert_eq!(none, None, "without a runtime");

    // A file system that is not in the table, and no folder: only what the runtime reports.
    for images in [folder, ""] {
        let unknown = shown(of(&[images]), "").await.unwrap().unwrap();
        assert_eq!((unknown.used_bytes, unknown.capacity_bytes), (Some(5), None));
    }
    let gone = shown(of(&["/no/such/folder"]), &mounts).await.unwrap_err();
    assert!(gone.is_gone(), "{gone}");
    let nothing = shown(of(&[]), &mounts).await.unwrap_err().to_string();
    assert!(
        nothing.contains("imageFs information is unavailable"),
        "{nothing}"
    );
}
