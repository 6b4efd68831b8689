//! Plugins in memory, with folders on disk, whose calls can fail, hang, or get lost.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Volume};
use kubelet_core::{
    ConfigObjectChanges, ConfigObjectKind, ConfigObjectRef, ConfigObjects, Disk, Event, EventRecorder,
    PodExt, VolumeUsage,
};
use kubelet_volume::{
    AttachableVolumePlugin, Attributes, DeviceMount, DeviceMountableVolumePlugin, Error, Expansion,
    NodeExpandableVolumePlugin, NodeVolumes, NodeVolumesBuilder, NodeVolumesHandle, OnDisk, PodMount, Result,
    SetUp, VolumeObjects, VolumePlugin, VolumeSpec,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// What the next call of a kind does.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    Fails(&'static str),
    /// It has its effect, and its answer is lost.
    Uncertain(&'static str),
    /// It succeeds without an effect.
    DoesNothing,
    Hangs,
    /// It has its effect once this is notified.
    Waits(Arc<tokio::sync::Notify>),
    Panics,
    Infeasible(&'static str),
    FailedPrecondition(&'static str),
}

/// What all plugins of a test share: the host, and the objects of the API server.
pub(crate) struct World {
    pub(crate) root: tempfile::TempDir,
    calls: Mutex<Vec<String>>,
    faults: Mutex<HashMap<String, VecDeque<Fault>>>,
    /// Devices that are mounted for the node.
    pub(crate) devices: Mutex<BTreeSet<String>>,
    pub(crate) events: Mutex<Vec<String>>,
    pub(crate) claims: Mutex<BTreeMap<String, Arc<PersistentVolumeClaim>>>,
    pub(crate) volumes: Mutex<BTreeMap<String, Arc<PersistentVolume>>>,
    pub(crate) attached: Mutex<Vec<(String, String)>>,
    pub(crate) attached_changes: watch::Sender<u64>,
    pub(crate) changes: Mutex<Option<broadcast::Sender<ConfigObjectRef>>>,
    pub(crate) patches: Mutex<Vec<Value>>,
    /// After so many calls the agent is killed.
    pub(crate) dies_after: Mutex<Option<usize>>,
    pub(crate) died: tokio::sync::Notify,
    pub(crate) again_after: Mutex<Option<std::time::Duration>>,
    pub(crate) api_server_is_down: Mutex<bool>,
    pub(crate) exhausted: Mutex<bool>,
    /// Persistent volumes can be mounted with a SELinux context.
    pub(crate) mounts_with_contexts: Mutex<bool>,
}

impl World {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            root: tempfile::tempdir().unwrap(),
            calls: Mutex::default(),
            faults: Mutex::default(),
            devices: Mutex::default(),
            events: Mutex::default(),
            claims: Mutex::default(),
            volumes: Mutex::default(),
            attached: Mutex::default(),
            attached_changes: watch::Sender::default(),
            changes: Mutex::new(Some(broadcast::Sender::new(64))),
            patches: Mutex::default(),
            dies_after: Mutex::default(),
            died: tokio::sync::Notify::new(),
            again_after: Mutex::default(),
            api_server_is_down: Mutex::default(),
            exhausted: Mutex::default(),
            mounts_with_contexts: Mutex::default(),
        })
    }

    pub(crate) fn builder(self: &Arc<Self>) -> NodeVolumesBuilder {
        NodeVolumes::builder(self.root.path())
            .plugin(Arc::new(Files(self.clone())))
            .plugin(Arc::new(Shared {
                world: self.clone(),
                attachable: false,
            }))
            .plugin(Arc::new(Shared {
                world: self.clone(),
                attachable: true,
            }))
            .config_objects(self.clone())
            .objects(self.clone())
            .recorder(self.clone())
            .disk(Disk::inline())
            .node_name("node-1")
    }

    /// Starts an agent.
    pub(crate) fn agent(self: &Arc<Self>) -> Agent {
        Agent::of(self.builder().build().unwrap())
    }

    /// The calls of plugins since the last look.
    pub(crate) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock())
    }

    pub(crate) fn calls_so_far(&self) -> usize {
        self.calls.lock().len()
    }

    /// The next call of this kind has this fault.
    pub(crate) fn fault(&self, call: &str, fault: Fault) {
        self.faults
            .lock()
            .entry(call.to_owned())
            .or_default()
            .push_back(fault);
    }

    pub(crate) fn heal(&self) {
        self.faults.lock().clear();
    }

    /// All folders of volumes of pods, and all mounted devices.
    pub(crate) fn left(&self) -> Vec<String> {
        let mut left: Vec<String> = self
            .devices
            .lock()
            .iter()
            .map(|it| format!("device {it}"))
            .collect();
        for pod in entries(&self.root.path().join("pods")) {
            for plugin in entries(&pod.join("volumes")) {
                left.extend(entries(&plugin).iter().map(|dir| dir.display().to_string()));
            }
        }
        left
    }

    /// A config map or secret changes.
    pub(crate) fn change(&self, name: &str) {
        if let Some(changes) = &*self.changes.lock() {
            let _ = changes.send(config_map(name));
        }
    }

    /// A claim that is bound to a volume of a plugin.
    pub(crate) fn bind(&self, claim: &str, volume: &str, source: Value) {
        let mut spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": "shop", "name": claim, "uid": format!("uid-{claim}")}});
        for (key, value) in source.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let volume_object = json!({"metadata": {"name": volume}, "spec": spec});
        let claim_object = json!({"metadata": {"name": claim, "namespace": "shop", "uid": format!("uid-{claim}")},
            "spec": {"volumeName": volume}, "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
        self.volumes.lock().insert(
            volume.to_owned(),
            Arc::new(serde_json::from_value(volume_object).unwrap()),
        );
        self.claims.lock().insert(
            claim.to_owned(),
            Arc::new(serde_json::from_value(claim_object).unwrap()),
        );
    }

    /// Notes a call, and has its fault.
    pub(crate) async fn call(&self, call: String, effect: impl FnOnce() + Send) -> Result<()> {
        self.calls.lock().push(call.clone());
        let kind = call.split(' ').next().unwrap().to_owned();
        let fault = {
            let mut faults = self.faults.lock();
            let of_call = faults.get_mut(&call).and_then(VecDeque::pop_front);
            of_call.or_else(|| faults.get_mut(&kind).and_then(VecDeque::pop_front))
        };
        let result = match fault {
            Some(Fault::Fails(why)) => return Err(Error::failed(why)),
            Some(Fault::Infeasible(why)) => {
                return Err(Error::Infeasible {
                    message: why.to_owned(),
                });
            }
            Some(Fault::FailedPrecondition(why)) => {
                return Err(Error::FailedPrecondition {
                    message: why.to_owned(),
                });
            }
            Some(Fault::DoesNothing) => return Ok(()),
            Some(Fault::Panics) => panic!("a fault of the plugin"),
            Some(Fault::Hangs) => std::future::pending().await,
            Some(Fault::Waits(until)) => {
                until.notified().await;
                Ok(())
            }
            Some(Fault::Uncertain(why)) => Err(Error::uncertain(why)),
            None => Ok(()),
        };
        effect();
        let dies = {
            let mut left = self.dies_after.lock();
            if let Some(left) = left.as_mut() {
                *left = left.saturating_sub(1);
            }
            *left == Some(0)
        };
        if dies {
            self.died.notify_one();
            std::future::pending::<()>().await;
        }
        tokio::task::yield_now().await;
        result
    }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|it| it.path())
        .collect();
    entries.sort();
    entries
}

pub(crate) fn config_map(name: &str) -> ConfigObjectRef {
    ConfigObjectRef {
        kind: ConfigObjectKind::ConfigMap,
        namespace: "shop".into(),
        name: name.into(),
    }
}

/// An engine that runs.
pub(crate) struct Agent {
    pub(crate) volumes: NodeVolumesHandle,
    shutdown: CancellationToken,
    running: JoinHandle<()>,
}

impl Agent {
    pub(crate) fn of(engine: NodeVolumes) -> Self {
        let (volumes, shutdown) = (engine.handle(), CancellationToken::new());
        let running = tokio::spawn(engine.run(shutdown.clone()));
        Self {
            volumes,
            shutdown,
            running,
        }
    }

    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        self.running.await.unwrap();
    }
}

/// Volumes of each pod for itself: `emptyDir`, and config maps with their changes, and the downward API with the pod's.
pub(crate) struct Files(pub(crate) Arc<World>);

#[async_trait]
impl VolumePlugin for Files {
    fn name(&self) -> &str {
        "test/files"
    }

    fn can_support(&self, spec: &VolumeSpec) -> bool {
        let volume = spec.pod_volume();
        volume
            .is_some_and(|it| it.empty_dir.is_some() || it.config_map.is_some() || it.downward_api.is_some())
    }

    fn attributes(&self, mount: &PodMount) -> Attributes {
        Attributes {
            read_only: mount.spec.pod_volume().unwrap().config_map.is_some(),
            managed: true,
            selinux_relabel: true,
        }
    }

    async fn set_up(&self, mount: &PodMount) -> Result<SetUp> {
        let uid = mount.pod.uid();
        let dir = mount.dir.clone();
        let effect = || fs::create_dir_all(dir).unwrap();
        self.0
            .call(format!("set_up {uid}/{}", mount.spec.name()), effect)
            .await?;
        let after = *self.0.again_after.lock();
        Ok(SetUp {
            again_at: after.map(|after| tokio::time::Instant::now() + after),
        })
    }

    async fn tear_down(&self, mounted: &OnDisk) -> Result<()> {
        let effect = || _ = fs::remove_dir_all(&mounted.dir);
        self.0
            .call(format!("tear_down {}/{}", mounted.uid, mounted.name), effect)
            .await
    }

    fn config_objects(&self, mount: &PodMount) -> Vec<ConfigObjectRef> {
        let source = mount
            .spec
            .pod_volume()
            .and_then(|volume| volume.config_map.as_ref());
        source
            .map(|source| config_map(&source.name))
            .into_iter()
            .collect()
    }

    fn depends_on_pod(&self, spec: &VolumeSpec) -> bool {
        spec.pod_volume()
            .is_some_and(|volume| volume.downward_api.is_some())
    }

    async fn reconstruct(&self, found: &OnDisk) -> Result<VolumeSpec> {
        self.0
            .call(format!("reconstruct {}/{}", found.uid, found.name), || {})
            .await?;
        Ok(VolumeSpec::of_pod(Arc::new(Volume {
            name: found.name.clone(),
            empty_dir: Some(Default::default()),
            ..Volume::default()
        })))
    }

    async fn usage(&self, mounted: &OnDisk, _: &VolumeSpec) -> Result<Option<VolumeUsage>> {
        self.0
            .call(format!("usage {}/{}", mounted.uid, mounted.name), || {})
            .await?;
        let mut usage = VolumeUsage::default();
        usage.used_bytes = Some(7);
        Ok(Some(usage))
    }
}

/// Persistent volumes that the node mounts once: `hostPath` ones are there, `nfs` ones are attached first.
pub(crate) struct Shared {
    pub(crate) world: Arc<World>,
    pub(crate) attachable: bool,
}

#[async_trait]
impl VolumePlugin for Shared {
    fn name(&self) -> &str {
        if self.attachable {
            "test/attached"
        } else {
            "test/shared"
        }
    }

    fn can_support(&self, spec: &VolumeSpec) -> bool {
        spec.persistent_volume()
            .is_some_and(|spec| match self.attachable {
                true => spec.nfs.is_some(),
                false => spec.host_path.is_some(),
            })
    }

    fn attributes(&self, _: &PodMount) -> Attributes {
        let is_labeled = *self.world.mounts_with_contexts.lock();
        Attributes {
            read_only: false,
            managed: is_labeled,
            selinux_relabel: is_labeled,
        }
    }

    async fn supports_selinux_mount(&self, _: &VolumeSpec) -> Result<bool> {
        Ok(*self.world.mounts_with_contexts.lock())
    }

    async fn set_up(&self, mount: &PodMount) -> Result<SetUp> {
        let name = mount.spec.name();
        assert!(
            self.world.devices.lock().contains(name),
            "set up before its device is mounted"
        );
        let dir = mount.dir.clone();
        let effect = || fs::create_dir_all(dir).unwrap();
        self.world
            .call(
                with_label(format!("set_up {}/{name}", mount.pod.uid()), &mount.selinux_label),
                effect,
            )
            .await?;
        Ok(SetUp::default())
    }

    async fn tear_down(&self, mounted: &OnDisk) -> Result<()> {
        let effect = || _ = fs::remove_dir_all(&mounted.dir);
        self.world
            .call(format!("tear_down {}/{}", mounted.uid, mounted.name), effect)
            .await
    }

    async fn reconstruct(&self, found: &OnDisk) -> Result<VolumeSpec> {
        self.world
            .call(format!("reconstruct {}/{}", found.uid, found.name), || {})
            .await?;
        Ok(self.spec(&found.name))
    }

    fn attachable(&self) -> Option<&dyn AttachableVolumePlugin> {
        self.attachable.then_some(self)
    }

    fn device_mountable(&self) -> Option<&dyn DeviceMountableVolumePlugin> {
        Some(self)
    }

    fn expandable(&self) -> Option<&dyn NodeExpandableVolumePlugin> {
        Some(self)
    }
}

fn with_label(call: String, label: &Option<String>) -> String {
    match label {
        Some(label) => format!("{call} {label}"),
        None => call,
    }
}

impl Shared {
    fn spec(&self, name: &str) -> VolumeSpec {
        let source = match self.attachable {
            true => json!({"nfs": {"server": "s", "path": "/"}}),
            false => json!({"hostPath": {"path": "/"}}),
        };
        let volume = json!({"metadata": {"name": name}, "spec": source});
        VolumeSpec::persistent(Arc::new(serde_json::from_value(volume).unwrap()), false)
    }
}

#[async_trait]
impl AttachableVolumePlugin for Shared {
    async fn can_attach(&self, _: &VolumeSpec) -> Result<bool> {
        Ok(true)
    }

    async fn attach(&self, spec: &VolumeSpec, node: &str) -> Result<String> {
        self.world
            .call(format!("attach {} {node}", spec.name()), || {})
            .await?;
        Ok("/dev/x".to_owned())
    }

    async fn wait_for_attach(&self, _: &VolumeSpec, device_path: &str, _: &Arc<Pod>) -> Result<String> {
        Ok(device_path.to_owned())
    }

    async fn detach(&self, name: &str, node: &str) -> Result<()> {
        self.world.call(format!("detach {name} {node}"), || {}).await
    }

    async fn is_exhausted(&self, _: &VolumeSpec) -> bool {
        *self.world.exhausted.lock()
    }
}

#[async_trait]
impl DeviceMountableVolumePlugin for Shared {
    async fn can_device_mount(&self, _: &VolumeSpec) -> Result<bool> {
        Ok(true)
    }

    fn volume_name(&self, spec: &VolumeSpec) -> Result<String> {
        Ok(spec.name().to_owned())
    }

    fn device_mount_path(&self, spec: &VolumeSpec) -> Result<PathBuf> {
        Ok(self
            .world
            .root
            .path()
            .join("plugins")
            .join(self.name())
            .join(spec.name()))
    }

    async fn mount_device(&self, mount: &DeviceMount) -> Result<()> {
        let name = mount.spec.name().to_owned();
        let effect = || _ = self.world.devices.lock().insert(name.clone());
        let call = with_label(format!("mount_device {name}"), &mount.selinux_label);
        self.world.call(call, effect).await
    }

    async fn unmount_device(&self, path: &Path) -> Result<()> {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let effect = || _ = self.world.devices.lock().remove(&name);
        self.world.call(format!("unmount_device {name}"), effect).await
    }

    async fn mounted_devices(&self) -> Result<Vec<VolumeSpec>> {
        let of_plugin = |name: &&String| name.starts_with("nfs") == self.attachable;
        let devices = self.world.devices.lock();
        Ok(devices
            .iter()
            .filter(of_plugin)
            .map(|name| self.spec(name))
            .collect())
    }
}

#[async_trait]
impl NodeExpandableVolumePlugin for Shared {
    async fn requires_expansion(&self, _: &VolumeSpec) -> bool {
        true
    }

    async fn node_expand(&self, expansion: &Expansion) -> Result<bool> {
        let (old, new) = (expansion.old_size >> 30, expansion.new_size >> 30);
        self.world
            .call(
                format!("node_expand {} {old} {new}", expansion.spec.name()),
                || {},
            )
            .await?;
        Ok(true)
    }
}

#[async_trait]
impl ConfigObjects for World {
    async fn config_map(&self, _: &str, _: &str) -> kubelet_core::Result<Option<Arc<ConfigMap>>> {
        Ok(None)
    }

    async fn secret(&self, _: &str, _: &str) -> kubelet_core::Result<Option<Arc<Secret>>> {
        Ok(None)
    }

    fn changes(&self) -> Option<ConfigObjectChanges> {
        self.changes.lock().as_ref().map(broadcast::Sender::subscribe)
    }
}

#[async_trait]
impl VolumeObjects for World {
    async fn claim(&self, _: &str, name: &str) -> Result<Option<Arc<PersistentVolumeClaim>>> {
        if *self.api_server_is_down.lock() {
            return Err(Error::failed("connection refused"));
        }
        Ok(self.claims.lock().get(name).cloned())
    }

    async fn volume(&self, name: &str) -> Result<Option<Arc<PersistentVolume>>> {
        Ok(self.volumes.lock().get(name).cloned())
    }

    async fn patch_claim_status(
        &self,
        claim: &PersistentVolumeClaim,
        status: Value,
    ) -> Result<Arc<PersistentVolumeClaim>> {
        let mut object = serde_json::to_value(claim).unwrap();
        merge(&mut object["status"], &status);
        self.patches.lock().push(status);
        let patched: Arc<PersistentVolumeClaim> = Arc::new(serde_json::from_value(object).unwrap());
        let name = claim.metadata.name.clone().unwrap();
        self.claims.lock().insert(name, patched.clone());
        Ok(patched)
    }

    async fn attached(&self) -> Result<Vec<(String, String)>> {
        if *self.api_server_is_down.lock() {
            return Err(Error::failed("connection refused"));
        }
        Ok(self.attached.lock().clone())
    }

    fn attached_changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.attached_changes.subscribe())
    }
}

/// RFC 7386
fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    for (key, value) in patch {
        match value {
            Value::Null => {
                if let Some(target) = target.as_object_mut() {
                    target.remove(key);
                }
            }
            value => merge(&mut target[key], value),
        }
    }
}

impl EventRecorder for World {
    fn record(&self, event: Event<'_>) {
        let name = event.pod.key().name;
        self.events
            .lock()
            .push(format!("{name} {}: {}", event.reason, event.message));
    }
}

/// A pod that mounts all of these volumes.
pub(crate) fn pod(name: &str, volumes: Value) -> Arc<Pod> {
    let volumes = volumes.as_array().unwrap().clone();
    let mounts: Vec<Value> = volumes
        .iter()
        .map(|volume| json!({"name": volume["name"], "mountPath": "/x"}))
        .collect();
    let pod = json!({"metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}")},
        "spec": {"nodeName": "node-1", "volumes": volumes, "containers": [{"name": "main", "volumeMounts": mounts}]}});
    Arc::new(serde_json::from_value(pod).unwrap())
}

pub(crate) fn scratch(name: &str) -> Value {
    json!({"name": name, "emptyDir": {}})
}

pub(crate) fn from_config_map(name: &str) -> Value {
    json!({"name": name, "configMap": {"name": name}})
}

pub(crate) fn claimed(name: &str) -> Value {
    json!({"name": name, "persistentVolumeClaim": {"claimName": name}})
}

pub(crate) fn shared() -> Value {
    json!({"hostPath": {"path": "/"}})
}

pub(crate) fn attached() -> Value {
    json!({"nfs": {"server": "s", "path": "/"}})
}
