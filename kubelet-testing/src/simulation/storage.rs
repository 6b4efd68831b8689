//! The volumes of a simulated node: those of the kubelet itself, those of CSI drivers, and disks of a plugin that is not the
//! kubelet's.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{
    ConfigMap, FlexPersistentVolumeSource, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec,
    Secret,
};
use kube_client::Client;
use kubelet_config::{ApiServerTokens, ConfigObjectWatches};
use kubelet_core::{Clock, Disk, EventRecorder, Jitter, NodeGetter, RootDir};
use kubelet_volume::{
    ApiServerVolumeObjects, Attributes, DeviceMount, DeviceMountableVolumePlugin, Error, InTreePlugins,
    Mounter, NodeVolumes, OnDisk, PodMount, Result, SetUp, VolumePlugin, VolumeSpec,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::agent::AgentError;
use super::csi;
use crate::csi_driver::{MemoryCsi, VOLUME_FILE};
use crate::memory_cri::{MemoryCri, hash};
use crate::{ApiServer, MemoryMounter};
use kubelet_cri::v1;

/// The driver of the disks.
const DRIVER: &str = "sim/disk";
/// The folder of their volumes in a pod's folder.
const DISK_FOLDER: &str = "sim~disk";
/// How many config maps, secrets and disks there are.
pub(super) const OBJECTS: u64 = 3;
/// The folders of volumes whose files are written as a whole, with the link that then exists.
const WRITTEN: [&str; 4] = [
    "kubernetes.io~configmap",
    "kubernetes.io~downward-api",
    "kubernetes.io~projected",
    "kubernetes.io~secret",
];
const DATA_LINK: &str = "..data";
/// The files of a config map, which all have the same content.
const VERSION_FILES: [&str; 2] = ["version", "copy"];
/// How often the config maps of a new pod change while it starts, at most.
const CHANGES: usize = 8;
/// Within this time.
const STARTS_WITHIN: Duration = Duration::from_secs(20);
/// How the names of volumes with tokens begin.
const TOKENS: &str = "kube-api-access-";

/// What the volumes of a simulated agent need.
pub(super) struct Parts<'a> {
    pub(super) name: &'a str,
    pub(super) root_dir: &'a Path,
    pub(super) client: Client,
    pub(super) mounter: MemoryMounter,
    pub(super) csi: MemoryCsi,
    pub(super) clock: Clock,
    pub(super) jitter: Jitter,
    pub(super) recorder: Arc<dyn EventRecorder>,
    pub(super) node: Arc<dyn NodeGetter>,
}

/// Assembles the volumes of an agent.
pub(super) fn volumes(parts: Parts<'_>) -> Result<(NodeVolumes, ConfigObjectWatches), AgentError> {
    let watches = ConfigObjectWatches::new(parts.client.clone());
    let objects = Arc::new(watches.handle());
    let mounter: Arc<dyn Mounter> = Arc::new(parts.mounter.clone());
    let tokens = ApiServerTokens::new(parts.client.clone())
        .clock(parts.clock)
        .jitter(parts.jitter.clone());
    let plugins = InTreePlugins::new(parts.root_dir)
        .disk(Disk::inline())
        .clock(parts.clock)
        .mounter(mounter.clone())
        .recorder(parts.recorder.clone())
        .node(parts.node.clone())
        .config_objects(objects.clone())
        .tokens(Arc::new(tokens));
    let disks = Disks {
        folder: parts.root_dir.join("plugins").join(DISK_FOLDER),
        mounter: mounter.clone(),
    };
    let csi = csi::plugin(&parts, mounter.clone());
    let volumes = NodeVolumes::builder(parts.root_dir)
        .plugins(plugins.build())
        .plugin(Arc::new(disks))
        .plugin(Arc::new(csi))
        .mounter(mounter)
        .recorder(parts.recorder)
        .node(parts.node)
        .node_name(parts.name)
        .clock(parts.clock)
        .disk(Disk::inline())
        .jitter(parts.jitter)
        .config_objects(objects)
        .objects(Arc::new(ApiServerVolumeObjects::new(parts.client, parts.name)))
        .build()?;
    Ok((volumes, watches))
}

/// Creates the objects that volumes refer to. Returns the problems.
pub(super) fn create_objects(api: &ApiServer) -> Vec<String> {
    let mut problems = Vec::new();
    problems.extend(csi::create_drivers(api).err());
    for number in 0..OBJECTS {
        problems.extend(create_some(api, number).err());
    }
    let problems = problems.into_iter();
    problems
        .map(|error| format!("objects of volumes: {error}"))
        .collect()
}

/// A config map, a secret, and claims with a volume each.
fn create_some(api: &ApiServer, number: u64) -> Result<(), AgentError> {
    let named = |kind: &str| json!({"name": format!("{kind}-{number}"), "namespace": "default"});
    api.create(&of::<ConfigMap>(
        json!({"metadata": named("config"), "data": versions(0)}),
    ))?;
    api.create(&of::<Secret>(
        json!({"metadata": named("secret"), "stringData": {"key": "word"}}),
    ))?;
    let sources = [
        ("disk", json!({"flexVolume": {"driver": DRIVER}})),
        (
            csi::ATTACHED_DISK,
            csi::source(csi::ATTACHED, csi::ATTACHED_DISK, number),
        ),
        (csi::PLAIN_DISK, csi::source(csi::PLAIN, csi::PLAIN_DISK, number)),
    ];
    for (disk, source) in sources {
        let claim = format!("{disk}-claim");
        create_claim(api, &named(&claim), &format!("{disk}-{number}"), source)?;
    }
    Ok(())
}

/// A claim, and the volume to which the controllers bind it.
fn create_claim(api: &ApiServer, claim: &Value, volume: &str, source: Value) -> Result<(), AgentError> {
    let spec = json!({"volumeName": volume, "accessModes": ["ReadWriteMany"], "storageClassName": "sim",
        "resources": {"requests": {"storage": "1Gi"}}});
    let claim = json!({"metadata": claim, "spec": spec});
    let claim = api.create(&of::<PersistentVolumeClaim>(claim))?;
    let reference = json!({"kind": "PersistentVolumeClaim", "namespace": "default",
        "name": claim.metadata.name, "uid": claim.metadata.uid});
    let mut spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"],
        "storageClassName": "sim", "claimRef": reference});
    if let (Value::Object(spec), Value::Object(source)) = (&mut spec, source) {
        spec.extend(source);
    }
    api.create(&of::<PersistentVolume>(
        json!({"metadata": {"name": volume}, "spec": spec}),
    ))?;
    Ok(())
}

/// The files of a config map.
fn versions(version: u64) -> BTreeMap<String, String> {
    let files = VERSION_FILES.map(|file| (file.to_owned(), version.to_string()));
    BTreeMap::from(files)
}

/// Changes one of the config maps.
pub(super) fn change_config_map(api: &ApiServer, number: u64, version: u64) {
    let name = format!("config-{}", number % OBJECTS);
    if let Ok(Some(mut map)) = api.get::<ConfigMap>("default", &name) {
        map.data = Some(versions(version));
        // If the server is away, the user tries again later.
        let _ = api.replace(&map);
    }
}

pub(super) fn of<K: DeserializeOwned + Default>(object: Value) -> K {
    serde_json::from_value(object).unwrap_or_default()
}

/// Adds random volumes to a pod, and mounts them in its first container. They follow from the pod's name and `seed`, so
/// that pods are otherwise the same as without.
pub(super) fn add_volumes(pod: &mut Value, seed: u64) {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut rng = fastrand::Rng::with_seed(hash(seed, &name));
    // A token is renewed for as long as its pod lives, which makes quiet time expensive.
    pod["spec"]["automountServiceAccountToken"] = json!(rng.u8(..8) == 0);
    if rng.u8(..3) > 0 {
        return;
    }
    let number = rng.u64(..OBJECTS);
    let of = |kind: &str| format!("{kind}-{number}");
    let fields = json!([{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]);
    let kinds = [
        json!({"configMap": {"name": of("config")}}),
        json!({"secret": {"secretName": of("secret")}}),
        json!({"downwardAPI": {"items": fields}}),
        json!({"projected": {"sources": [{"configMap": {"name": of("config")}}, {"downwardAPI": {"items": fields}}]}}),
        json!({"emptyDir": {"medium": "Memory"}}),
        json!({"persistentVolumeClaim": {"claimName": of("disk-claim")}}),
        json!({"persistentVolumeClaim": {"claimName": of(&format!("{}-claim", csi::ATTACHED_DISK))}}),
        json!({"persistentVolumeClaim": {"claimName": of(&format!("{}-claim", csi::PLAIN_DISK))}}),
        json!({"csi": {"driver": csi::PLAIN}}),
    ];
    for _ in 0..rng.usize(1..=2) {
        let kind = rng.usize(..kinds.len());
        let mut volume = kinds[kind].clone();
        let name = format!("v{kind}");
        volume["name"] = json!(name);
        let spec = &mut pod["spec"];
        let volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
        if volumes.iter().any(|known| known["name"] == volume["name"]) {
            continue;
        }
        let mount = json!({"name": name, "mountPath": format!("/v/{kind}")});
        let files: &[&str] = match (volume["secret"].is_null(), has_config_map(&volume)) {
            (_, true) => &VERSION_FILES,
            (false, _) => &["key"],
            _ => &[],
        };
        push(&mut spec["volumes"], volume);
        push(&mut spec["containers"][0]["volumeMounts"], mount);
        for file in files {
            let mount = json!({"name": name, "mountPath": format!("/files/{kind}/{file}"), "subPath": file});
            push(&mut spec["containers"][0]["volumeMounts"], mount);
        }
    }
}

fn has_config_map(volume: &Value) -> bool {
    let is_source = |source: &Value| !source["configMap"].is_null();
    let mut sources = volume["projected"]["sources"].as_array().into_iter().flatten();
    is_source(volume) || sources.any(is_source)
}

/// The moments after the creation of this pod at which its config maps change. They follow from the pod's name and `seed`.
pub(super) fn changes_at_start(pod: &Value, seed: u64) -> Vec<Duration> {
    let mut volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    if !volumes.any(has_config_map) {
        return Vec::new();
    }
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let mut rng = fastrand::Rng::with_seed(hash(seed, format_args!("changes of {name}")));
    let count = rng.usize(1..=CHANGES);
    (0..count).map(|_| STARTS_WITHIN.mul_f64(rng.f64())).collect()
}

fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(items) => items.push(item),
        other => *other = json!([item]),
    }
}

/// What is wrong with the volumes of a container that starts.
pub(super) fn missing(config: &v1::ContainerConfig, mounter: &MemoryMounter) -> Vec<String> {
    // The version of each volume of which there are single files.
    let mut versions = BTreeMap::new();
    let wrong = config.mounts.iter().filter_map(|mount| {
        let path = Path::new(&mount.host_path);
        if let Some((volume, version)) = volume_and_version(path) {
            if !path.exists() {
                return Some(format!("is started when {} is gone", path.display()));
            }
            let first = versions.entry(volume).or_insert(version);
            return (*first != version).then(|| {
                let (first, version) = (first.display(), version.display());
                format!(
                    "has files of the versions {first} and {version} of {}",
                    volume.display()
                )
            });
        }
        if csi::is_mount(path) {
            let is_there = mounter.is_mounted(path) && path.join(VOLUME_FILE).exists();
            return (!is_there).then(|| too_early(path));
        }
        let plugin = path.parent()?.file_name()?.to_str()?;
        let is_there = match plugin {
            DISK_FOLDER => mounter.is_mounted(path),
            "kubernetes.io~secret" | "kubernetes.io~projected" => {
                mounter.is_mounted(path) && path.join(DATA_LINK).exists()
            }
            plugin if WRITTEN.contains(&plugin) => path.join(DATA_LINK).exists(),
            "kubernetes.io~empty-dir" => path.exists(),
            _ => true,
        };
        (!is_there).then(|| too_early(path))
    });
    wrong.collect()
}

/// The volume that a single file of it is in, and the version of the volume's files.
fn volume_and_version(path: &Path) -> Option<(&Path, &Path)> {
    let of_plugin = |at: &&Path| {
        let name = at.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| WRITTEN.contains(&name))
    };
    let plugin = path.ancestors().find(of_plugin)?;
    let mut parts = path.strip_prefix(plugin).ok()?.iter();
    let (name, version, _) = (parts.next()?, parts.next()?, parts.next()?);
    let is_volume = |at: &&Path| at.parent() == Some(plugin) && at.file_name() == Some(name);
    Some((path.ancestors().find(is_volume)?, Path::new(version)))
}

fn too_early(path: &Path) -> String {
    format!("is started before its volume {} is there", path.display())
}

/// What runs with a volume that is unmounted.
pub(super) fn users(runtime: &MemoryCri, path: &Path) -> Vec<String> {
    let mut running = runtime.containers();
    running.retain(|container| container.state() == v1::ContainerState::ContainerRunning);
    let uses = |container: &&v1::ContainerStatus| {
        container
            .mounts
            .iter()
            .any(|mount| Path::new(&mount.host_path) == path)
    };
    let users = running.iter().filter(uses);
    users
        .map(|container| {
            let name = container.metadata.as_ref().map_or("", |metadata| &metadata.name);
            format!(
                "{} is unmounted while container {name} runs with it",
                path.display()
            )
        })
        .collect()
}

/// What is still mounted for pods that are not in `living`, or without any pod.
pub(super) fn left_mounted(
    mounter: &MemoryMounter,
    root_dir: &Path,
    is_living: impl Fn(&str) -> bool,
) -> Vec<String> {
    let (pods, mounts) = (RootDir::new(root_dir).pods_dir(), mounter.all());
    let pod_of = |path: &Path| -> Option<String> {
        let uid = path.strip_prefix(&pods).ok()?.components().next()?;
        uid.as_os_str().to_str().map(str::to_owned)
    };
    let mut left = Vec::new();
    for mount in &mounts {
        let is_used = match pod_of(&mount.path) {
            Some(uid) => is_living(&uid),
            None => mounts.iter().any(|other| Path::new(&other.source) == mount.path),
        };
        if !is_used {
            left.push(format!("{} is still mounted", mount.path.display()));
        }
    }
    left
}

/// The mounts and the written files of a node, to compare before and after a restart of its agent.
pub(super) fn snapshot(mounter: &MemoryMounter, root_dir: &Path) -> Vec<String> {
    let mut all: Vec<String> = mounter
        .all()
        .iter()
        .map(|mount| mount.path.display().to_string())
        .collect();
    for pod in entries(&RootDir::new(root_dir).pods_dir()) {
        for plugin in entries(&pod.join("volumes")) {
            for volume in entries(&plugin) {
                // Tokens are in the memory of an agent alone: the next one requests others.
                let has_token = volume
                    .file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with(TOKENS));
                let data = match has_token {
                    true => PathBuf::new(),
                    false => fs::read_link(volume.join(DATA_LINK)).unwrap_or_default(),
                };
                all.push(format!("{} {}", volume.display(), data.display()));
            }
        }
    }
    all.sort_unstable();
    all
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Volumes of a driver that stages them: the node mounts each once, and binds it for each pod.
struct Disks {
    folder: PathBuf,
    mounter: Arc<dyn Mounter>,
}

impl Disks {
    fn staged(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

fn spec_of(name: &str) -> VolumeSpec {
    let flex = FlexPersistentVolumeSource {
        driver: DRIVER.to_owned(),
        ..Default::default()
    };
    let mut volume = PersistentVolume {
        spec: Some(PersistentVolumeSpec {
            flex_volume: Some(flex),
            ..Default::default()
        }),
        ..Default::default()
    };
    volume.metadata.name = Some(name.to_owned());
    VolumeSpec::persistent(Arc::new(volume), false)
}

fn make(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).map_err(|error| Error::io(dir, error))
}

/// Removes an empty folder.
fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io(dir, error)),
        _ => Ok(()),
    }
}

#[async_trait]
impl VolumePlugin for Disks {
    fn name(&self) -> &str {
        "sim/disk"
    }

    fn can_support(&self, spec: &VolumeSpec) -> bool {
        let flex = spec
            .persistent_volume()
            .and_then(|spec| spec.flex_volume.as_ref());
        flex.is_some_and(|flex| flex.driver == DRIVER)
    }

    fn attributes(&self, _: &PodMount) -> Attributes {
        Attributes::default()
    }

    async fn set_up(&self, mount: &PodMount) -> Result<SetUp> {
        make(&mount.dir)?;
        if !self.mounter.is_mount_point(&mount.dir).await? {
            let staged = self.staged(mount.spec.name());
            let bind = ["bind".to_owned()];
            self.mounter
                .mount(&staged.to_string_lossy(), &mount.dir, "", &bind)
                .await?;
        }
        Ok(SetUp::default())
    }

    async fn tear_down(&self, mounted: &OnDisk) -> Result<()> {
        self.mounter.unmount(&mounted.dir).await?;
        remove(&mounted.dir)
    }

    async fn reconstruct(&self, found: &OnDisk) -> Result<VolumeSpec> {
        Ok(spec_of(&found.name))
    }

    fn device_mountable(&self) -> Option<&dyn DeviceMountableVolumePlugin> {
        Some(self)
    }
}

#[async_trait]
impl DeviceMountableVolumePlugin for Disks {
    async fn can_device_mount(&self, _: &VolumeSpec) -> Result<bool> {
        Ok(true)
    }

    fn volume_name(&self, spec: &VolumeSpec) -> Result<String> {
        Ok(spec.name().to_owned())
    }

    fn device_mount_path(&self, spec: &VolumeSpec) -> Result<PathBuf> {
        Ok(self.staged(spec.name()))
    }

    async fn mount_device(&self, mount: &DeviceMount) -> Result<()> {
        make(&mount.device_mount_path)?;
        if self.mounter.is_mount_point(&mount.device_mount_path).await? {
            return Ok(());
        }
        self.mounter
            .mount("/dev/sim", &mount.device_mount_path, "ext4", &[])
            .await
    }

    async fn unmount_device(&self, device_mount_path: &Path) -> Result<()> {
        self.mounter.unmount(device_mount_path).await?;
        remove(device_mount_path)
    }

    async fn mounted_devices(&self) -> Result<Vec<VolumeSpec>> {
        let names = entries(&self.folder).into_iter();
        let names = names.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
        Ok(names.map(|name| spec_of(&name)).collect())
    }
}
