//! Volumes as the kubelet v1.36.2 set them up: the same files, modes, owners, links, mounts, contents, events and places
//! for containers, before and after the objects changed, and nothing left after the deletion.
//!
//! What a sub-path or a container adds is not of the volume manager, and is left out.

mod tree;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{FixedNode, PodExt, VolumeManager};
use kubelet_volume::{HostMounter, InTreePlugins, NodeVolumes, NodeVolumesHandle};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tree::{Entry, Tree};
use world::World;

#[derive(Deserialize)]
struct Recording {
    objects: Vec<Value>,
    objects_changed: Vec<Value>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    manifest: Value,
    first: Phase,
    after_change: Phase,
    left_after_deletion: bool,
}

#[derive(Deserialize)]
struct Phase {
    uid: String,
    files: Vec<Entry>,
    events: Vec<Value>,
    mounts: BTreeMap<String, Vec<ContainerMount>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerMount {
    container_path: String,
    host_path: String,
    readonly: bool,
}

fn recording() -> Recording {
    let packed = include_bytes!("../../recorded/volumes.json.gz");
    let mut text = String::new();
    flate2::read::GzDecoder::new(&packed[..])
        .read_to_string(&mut text)
        .unwrap();
    serde_json::from_str(&text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn volumes_are_those_of_the_kubelet() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can mount, and give files away");
        assert!(std::env::var_os("CI").is_none(), "CI runs as root");
        return;
    }
    let recording = recording();
    assert_eq!(recording.cases.len(), 61);
    let mut differences = Vec::new();
    for case in &recording.cases {
        let mut node = TestNode::new(case);
        node.run(case, &recording).await;
        differences.append(&mut node.differences);
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// A node with the pod of one case.
struct TestNode {
    name: String,
    root: PathBuf,
    srv: PathBuf,
    _folder: tempfile::TempDir,
    world: Arc<World>,
    volumes: NodeVolumesHandle,
    shutdown: CancellationToken,
    engine: Option<JoinHandle<()>>,
    differences: Vec<String>,
}

/// The allocatable memory of the node of the recordings.
const ALLOCATABLE: &str = "24581692Ki";

impl TestNode {
    fn new(case: &Case) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (root, srv) = (folder.path().join("kubelet"), folder.path().join("srv"));
        let world = Arc::new(World::new(&srv));
        let node = json!({"metadata": {}, "status": {"allocatable": {"cpu": "2", "memory": ALLOCATABLE, "ephemeral-storage": "0"}}});
        let node = Arc::new(FixedNode::new(Arc::new(serde_json::from_value(node).unwrap())));
        let plugins = InTreePlugins::new(&root)
            .config_objects(world.clone())
            .tokens(world.clone())
            .recorder(world.clone())
            .node(node.clone());
        let engine = NodeVolumes::builder(&root)
            .plugins(plugins.build())
            .config_objects(world.clone())
            .objects(world.clone())
            .recorder(world.clone())
            .node(node)
            .mounter(Arc::new(HostMounter::new()))
            .build()
            .unwrap();
        let (volumes, shutdown) = (engine.handle(), CancellationToken::new());
        let engine = tokio::spawn(engine.run(shutdown.clone()));
        Self {
            name: case.name.clone(),
            root,
            srv,
            _folder: folder,
            world,
            volumes,
            shutdown,
            engine: Some(engine),
            differences: Vec::new(),
        }
    }

    async fn run(&mut self, case: &Case, recording: &Recording) {
        let mut manifest: Value = case.manifest.clone();
        self.place(&mut manifest, &case.first);
        let pod: Arc<Pod> = Arc::new(serde_json::from_value(manifest.clone()).unwrap());
        world::make_pod_dirs(&self.root, &pod.uid());
        let is_shared = |event: &Value| event["reason"] == "AlreadyMountedVolume";
        let other = match case.first.events.iter().any(is_shared) {
            true => Some(self.mount_in_another_pod().await),
            false => None,
        };
        self.world.set(&recording.objects);
        let first = self.volumes.wait_for_attach_and_mount(&pod).await;
        self.compare("first", &case.first, first, &manifest);

        self.world.set(&recording.objects_changed);
        manifest["metadata"]["labels"]["a"] = json!("changed");
        manifest["metadata"]["annotations"]["note"] = json!("changed");
        let pod: Arc<Pod> = Arc::new(serde_json::from_value(manifest.clone()).unwrap());
        let changed = self.volumes.wait_for_attach_and_mount(&pod).await;
        self.wait_for_files(&case.after_change, &manifest).await;
        self.compare("after_change", &case.after_change, changed, &manifest);

        for pod in [Some(pod), other].into_iter().flatten() {
            self.volumes.wait_for_unmount(&pod).await.unwrap();
        }
        self.shutdown.cancel();
        self.engine.take().unwrap().await.unwrap();
        let mut left = tree::files_below(&self.root.join("pods").join(&case.first.uid));
        // The empty folders of plugins go with the pod's.
        left.retain(|path| path.components().count() > 2);
        if left.is_empty() == case.left_after_deletion {
            self.differ(format!("left after deletion: {left:?}"));
        }
    }

    /// The change of an object arrives on its own. If the files never become what they should, that is compared later.
    async fn wait_for_files(&self, recorded: &Phase, manifest: &Value) {
        let pod_dir = self.root.join("pods").join(&recorded.uid);
        let expected = Tree::recorded(&recorded.files, manifest);
        for _ in 0..50 {
            let found = Tree::read(&pod_dir);
            if found.is_ok_and(|found| expected.differences(&found).is_empty()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Gives the pod what the API server and the sources of pods add, and moves the other folders of the node.
    fn place(&self, manifest: &mut Value, first: &Phase) {
        let metadata = &mut manifest["metadata"];
        metadata["uid"] = json!(first.uid);
        let texts = first.files.iter().filter_map(|entry| entry.content.as_deref());
        let seen = texts.filter_map(|text| text.split("kubernetes.io/config.seen=\"").nth(1));
        if let Some(seen) = seen.filter_map(|text| text.split('"').next()).next() {
            metadata["annotations"]["kubernetes.io/config.seen"] = json!(seen);
            metadata["annotations"]["kubernetes.io/config.source"] = json!("api");
        }
        for volume in manifest["spec"]["volumes"].as_array_mut().unwrap() {
            if let Some(path) = volume.pointer("/hostPath/path").and_then(Value::as_str) {
                let path = path.replace("/srv", &self.srv.display().to_string());
                volume["hostPath"]["path"] = json!(path);
            }
        }
    }

    /// As in the recording, where several pods ran at a time.
    async fn mount_in_another_pod(&self) -> Arc<Pod> {
        let other = json!({"metadata": {"name": "other", "namespace": "vol", "uid": "other"}, "spec": {
            "containers": [{"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "local"}}]}});
        let other = Arc::new(serde_json::from_value(other).unwrap());
        self.volumes.wait_for_attach_and_mount(&other).await.unwrap();
        other
    }

    fn compare(&mut self, phase: &str, recorded: &Phase, synced: kubelet_core::Result<()>, manifest: &Value) {
        let pod_dir = self.root.join("pods").join(&recorded.uid);
        let expected = Tree::recorded(&recorded.files, manifest);
        for line in expected.differences(&Tree::read(&pod_dir).unwrap()) {
            self.differ(format!("{phase}: {line}"));
        }
        let all = recorded.events.iter().map(|event| {
            let text = |key: &str| event[key].as_str().unwrap().to_owned();
            (text("reason"), text("message"))
        });
        // The pod's sync makes this event of the error.
        let (of_sync, mut expected): (BTreeSet<_>, BTreeSet<_>) =
            all.partition(|(_, message)| message.starts_with(OF_SYNC));
        let srv = self.srv.display().to_string();
        let events = self.world.events().into_iter();
        let events: BTreeSet<_> = events
            .map(|(reason, message)| (reason, message.replace(&srv, "/srv")))
            .collect();
        if !of_sync.is_empty() {
            let error = synced.as_ref().unwrap_err().to_string();
            for (_, message) in of_sync {
                let message = message.trim_start_matches(OF_SYNC);
                if !error.ends_with(message) {
                    self.differ(format!("{phase}: {error} instead of {message}"));
                }
            }
            expected.clear();
        } else if synced.is_ok() == expected.iter().any(|(reason, _)| reason == "FailedMount") {
            self.differ(format!("{phase}: {synced:?}"));
        }
        if expected != events {
            self.differ(format!("{phase}: events {events:?} instead of {expected:?}"));
        }
        self.compare_mounts(phase, recorded, manifest);
    }

    /// Where containers find the volumes. Mounts of sub-paths are not the volume manager's.
    fn compare_mounts(&mut self, phase: &str, recorded: &Phase, manifest: &Value) {
        let mounted = self
            .volumes
            .mounted_volumes(&kubelet_core::PodUid::new(&recorded.uid));
        let spec = &manifest["spec"];
        let all = [&spec["initContainers"], &spec["containers"]];
        for container in all.into_iter().filter_map(Value::as_array).flatten() {
            let Some(mounts) = recorded.mounts.get(container["name"].as_str().unwrap()) else {
                continue;
            };
            for mount in container["volumeMounts"].as_array().unwrap() {
                let is_whole = mount["subPath"].is_null() && mount["subPathExpr"].is_null();
                let path = mount["mountPath"].as_str().unwrap();
                let Some(expected) = mounts.iter().find(|it| it.container_path == path) else {
                    continue;
                };
                let Some(volume) = mounted.get(mount["name"].as_str().unwrap()) else {
                    self.differ(format!("{phase}: {path} is not mounted"));
                    continue;
                };
                let read_only = volume.read_only || mount["readOnly"] == json!(true);
                if read_only != expected.readonly {
                    self.differ(format!("{phase}: {path} read-only: {read_only}"));
                }
                let host_path = volume.path.display().to_string();
                let host_path = host_path
                    .replace(&self.root.display().to_string(), "/var/lib/kubelet")
                    .replace(&self.srv.display().to_string(), "/srv");
                if is_whole && host_path != expected.host_path {
                    self.differ(format!(
                        "{phase}: {path} is {host_path}, not {}",
                        expected.host_path
                    ));
                }
            }
        }
    }

    fn differ(&mut self, what: String) {
        self.differences.push(format!("{}: {what}", self.name));
    }
}

/// The beginning of the event with which a pod's sync reports the error of the volume manager.
const OF_SYNC: &str = "Unable to attach or mount volumes: ";

/// Unmounts what a test that failed has left.
impl Drop for TestNode {
    fn drop(&mut self) {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let points = table.lines().rev().filter_map(|line| line.split(' ').nth(4));
        for point in points.filter(|point| Path::new(point).starts_with(&self.root)) {
            let _ = rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

/// The path in a tree, without what differs from run to run.
fn normal(path: &Path) -> String {
    let is_timestamp = |part: &str| part.starts_with("..2") && part.contains('_');
    let parts = path.iter().map(|part| part.to_str().unwrap());
    let parts = parts.map(|part| if is_timestamp(part) { "..time" } else { part });
    parts.collect::<Vec<_>>().join("/")
}
