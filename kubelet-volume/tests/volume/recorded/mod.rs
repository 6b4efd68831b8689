//! Volumes as the kubelet v1.36.2 set them up: the same files, modes, owners, links, mounts, contents and errors, before
//! and after the objects changed, and nothing left after the deletion.
//!
//! The plugins run here without a manager. What a sub-path or a container adds is not theirs, and is left out.

mod tree;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Volume};
use kubelet_core::PodExt;
use kubelet_volume::{DeviceMount, FsGroupChangePolicy, OnDisk, PodMount, VolumePlugin, VolumeSpec};
use serde::Deserialize;
use serde_json::{Value, json};
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

#[tokio::test]
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
    plugins: Vec<Arc<dyn VolumePlugin>>,
    mounted: Vec<Mounted>,
    of_other_pods: Vec<Mounted>,
    differences: Vec<String>,
}

struct Mounted {
    plugin: Arc<dyn VolumePlugin>,
    mount: PodMount,
}

impl TestNode {
    fn new(case: &Case) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (root, srv) = (folder.path().join("kubelet"), folder.path().join("srv"));
        let world = Arc::new(World::new(&srv));
        let plugins = world.plugins(&root);
        Self {
            name: case.name.clone(),
            root,
            srv,
            _folder: folder,
            world,
            plugins,
            mounted: Vec::new(),
            of_other_pods: Vec::new(),
            differences: Vec::new(),
        }
    }

    async fn run(&mut self, case: &Case, recording: &Recording) {
        let mut manifest: Value = case.manifest.clone();
        self.place(&mut manifest, &case.first);
        let pod: Pod = serde_json::from_value(manifest.clone()).unwrap();
        world::make_pod_dirs(&self.root, &pod.uid());
        if case
            .first
            .events
            .iter()
            .any(|event| event["reason"] == "AlreadyMountedVolume")
        {
            self.mount_in_another_pod().await;
        }
        self.world.set(&recording.objects);
        let first = self.set_up_all(&Arc::new(pod)).await;
        self.compare("first", &case.first, first, &manifest);

        self.world.set(&recording.objects_changed);
        manifest["metadata"]["labels"]["a"] = json!("changed");
        manifest["metadata"]["annotations"]["note"] = json!("changed");
        let pod = serde_json::from_value(manifest.clone()).unwrap();
        let changed = self.set_up_all(&Arc::new(pod)).await;
        self.compare("after_change", &case.after_change, changed, &manifest);

        let all = self.mounted.drain(..).chain(self.of_other_pods.drain(..));
        for Mounted { plugin, mount } in all.collect::<Vec<_>>() {
            let on_disk = on_disk(&mount);
            plugin.tear_down(&on_disk).await.unwrap();
            plugin.tear_down(&on_disk).await.unwrap();
        }
        let uid = kubelet_core::PodUid::new(&case.first.uid);
        let mut left = tree::files_below(&self.root.join("pods").join(uid.as_str()));
        // The empty folders of plugins go with the pod's.
        left.retain(|path| path.components().count() > 2);
        if left.is_empty() == case.left_after_deletion {
            self.differ(format!("left after deletion: {left:?}"));
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
        let volumes = manifest["spec"]["volumes"].as_array_mut().unwrap();
        for volume in volumes {
            if let Some(path) = volume.pointer("/hostPath/path").and_then(Value::as_str) {
                let path = path.replace("/srv", &self.srv.display().to_string());
                volume["hostPath"]["path"] = json!(path);
            }
        }
    }

    /// Sets up the volumes that a container mounts; returns the errors.
    async fn set_up_all(&mut self, pod: &Arc<Pod>) -> Vec<String> {
        let spec = pod.spec.as_ref().unwrap();
        let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        let mounts = containers.flat_map(|container| container.volume_mounts.iter().flatten());
        let used: BTreeSet<&str> = mounts.map(|mount| mount.name.as_str()).collect();
        let volumes: Vec<&Volume> = spec.volumes.iter().flatten().collect();
        let mut errors = Vec::new();
        self.mounted.clear();
        for volume in volumes
            .into_iter()
            .filter(|volume| used.contains(volume.name.as_str()))
        {
            let Some(spec) = self.world.resolve(volume) else {
                errors.push(format!(
                    "error processing PVC vol/{}: PVC is not bound",
                    "unbound"
                ));
                continue;
            };
            let mounted = self.mounted(pod, &volume.name, spec);
            match set_up(&mounted).await {
                Ok(()) => self.mounted.push(mounted),
                Err(error) => {
                    let srv = self.srv.display().to_string();
                    errors.push(error.to_string().replace(&srv, "/srv"));
                    // What failed is torn down too.
                    self.mounted.push(mounted);
                }
            }
        }
        errors
    }

    fn mounted(&self, pod: &Arc<Pod>, outer_name: &str, spec: VolumeSpec) -> Mounted {
        let mut able = self.plugins.iter().filter(|plugin| plugin.can_support(&spec));
        let plugin = Arc::clone(able.next().unwrap());
        assert!(able.next().is_none(), "two plugins for {}", spec.name());
        let volumes = self.root.join("pods").join(pod.uid().as_str()).join("volumes");
        let dir = volumes.join(plugin.name().replace('/', "~")).join(spec.name());
        let context = pod.spec.as_ref().unwrap().security_context.as_ref();
        let fs_group = context.and_then(|context| context.fs_group);
        let mount = PodMount {
            pod: Arc::clone(pod),
            outer_name: outer_name.to_owned(),
            spec: Arc::new(spec),
            dir,
            device_mount_path: None,
            fs_group: fs_group.map(|group| u32::try_from(group).unwrap()),
            fs_group_change_policy: FsGroupChangePolicy::Always,
            selinux_label: None,
        };
        Mounted { plugin, mount }
    }

    /// As in the recording, where several pods ran at a time.
    async fn mount_in_another_pod(&mut self) {
        let other = json!({"metadata": {"name": "other", "namespace": "vol", "uid": "other"}, "spec": {"containers": []}});
        let other = Arc::new(serde_json::from_value(other).unwrap());
        let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "local"}});
        let volume = serde_json::from_value(volume).unwrap();
        let spec = self.world.resolve(&volume).unwrap();
        let mounted = self.mounted(&other, "v", spec);
        set_up(&mounted).await.unwrap();
        self.of_other_pods.push(mounted);
    }

    fn compare(&mut self, phase: &str, recorded: &Phase, errors: Vec<String>, manifest: &Value) {
        let pod_dir = self.root.join("pods").join(&recorded.uid);
        let expected = Tree::recorded(&recorded.files, manifest);
        let found = Tree::read(&pod_dir);
        for line in expected.differences(&found) {
            self.differ(format!("{phase}: {line}"));
        }
        let failed = |reason: &str| {
            let of_reason = recorded.events.iter().filter(|event| event["reason"] == reason);
            of_reason
                .map(|event| event["message"].as_str().unwrap().to_owned())
                .collect::<BTreeSet<_>>()
        };
        let prefix = "MountVolume.SetUp failed for volume \"v\" : ";
        let waits = "Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to process volumes=[v]: ";
        let expected = failed("FailedMount").into_iter().map(|message| {
            let message = message
                .strip_prefix(prefix)
                .or(message.strip_prefix(waits))
                .unwrap_or(&message);
            message.to_owned()
        });
        let (expected, errors): (BTreeSet<_>, BTreeSet<_>) =
            (expected.collect(), errors.into_iter().collect());
        if expected != errors {
            self.differ(format!("{phase}: errors {errors:?} instead of {expected:?}"));
        }
        let (expected, events) = (
            failed("AlreadyMountedVolume"),
            self.world.events("AlreadyMountedVolume"),
        );
        if expected != events {
            self.differ(format!("{phase}: events {events:?} instead of {expected:?}"));
        }
        self.compare_mounts(phase, recorded, manifest);
    }

    /// Where containers find the volumes. Mounts of sub-paths are not the plugins'.
    fn compare_mounts(&mut self, phase: &str, recorded: &Phase, manifest: &Value) {
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
                let mut all = self.mounted.iter();
                let found = all.find(|it| it.mount.outer_name == mount["name"].as_str().unwrap());
                let Some(Mounted {
                    plugin,
                    mount: volume,
                }) = found
                else {
                    self.differ(format!("{phase}: {path} is not mounted"));
                    continue;
                };
                let read_only = plugin.attributes(volume).read_only || mount["readOnly"] == json!(true);
                let host_path = plugin.path(volume).display().to_string();
                if read_only != expected.readonly {
                    self.differ(format!("{phase}: {path} read-only: {read_only}"));
                }
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

async fn set_up(mounted: &Mounted) -> kubelet_volume::Result<()> {
    let Mounted { plugin, mount } = mounted;
    if let Some(devices) = plugin.device_mountable() {
        let device_mount_path = devices.device_mount_path(&mount.spec)?;
        let mount = DeviceMount {
            spec: Arc::clone(&mount.spec),
            device_path: String::new(),
            device_mount_path,
            fs_group: mount.fs_group,
            selinux_label: None,
        };
        devices.mount_device(&mount).await?;
    }
    plugin.prepare(mount).await?;
    plugin.set_up(mount).await.map(drop)
}

fn on_disk(mount: &PodMount) -> OnDisk {
    OnDisk {
        uid: mount.pod.uid(),
        name: mount.spec.name().to_owned(),
        dir: mount.dir.clone(),
        is_block: false,
    }
}

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
