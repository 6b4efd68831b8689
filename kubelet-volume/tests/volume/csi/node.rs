//! A node with one driver and the plugin, without a volume manager: each test calls the operations itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{PersistentVolume, Pod, Volume};
use k8s_openapi::api::storage::v1::CSIDriver;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::{
    Clock, PodExt, PodUid, RootDir, ServiceAccountToken, ServiceAccountTokens, VolumeLeases, clock::api_time,
};
use kubelet_testing::csi_driver::{CsiCall, CsiMethod, MemoryCsi, ServedCsi, VOLUME_FILE};
use kubelet_volume::csi::{CsiDrivers, CsiPlugin, FixedCsiObjects};
use kubelet_volume::{
    DeviceMount, DeviceMountableVolumePlugin, FsGroupChangePolicy, MountPoint, Mounter, OnDisk, PodMount,
    Result, VolumePlugin, VolumeSpec,
};
use serde_json::{Value, json};

pub(crate) const DRIVER: &str = "disk.example.com";

pub(crate) struct Node {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) driver: MemoryCsi,
    pub(crate) served: Option<ServedCsi>,
    pub(crate) objects: FixedCsiObjects,
    pub(crate) drivers: CsiDrivers,
    pub(crate) plugin: Arc<CsiPlugin>,
}

impl Node {
    /// A driver without attachment, that is registered.
    pub(crate) fn new() -> Self {
        Self::with(json!({"attachRequired": false}))
    }

    pub(crate) fn with(spec: Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let driver = MemoryCsi::new(DRIVER);
        let served = driver.serve(&dir.path().join("csi.sock")).unwrap();
        let objects = FixedCsiObjects::new();
        objects.set_driver(csi_driver(spec));
        let drivers = CsiDrivers::new();
        drivers.add(DRIVER, dir.path().join("csi.sock"));
        let plugin = Self::plugin(dir.path(), &drivers, &objects);
        Self {
            dir,
            driver,
            served: Some(served),
            objects,
            drivers,
            plugin,
        }
    }

    fn plugin(dir: &Path, drivers: &CsiDrivers, objects: &FixedCsiObjects) -> Arc<CsiPlugin> {
        let root = RootDir::new(dir.join("kubelet"));
        let objects = Arc::new(objects.clone());
        let builder = CsiPlugin::builder(root, "node-1", drivers.clone(), objects, Arc::new(Folders));
        let builder = builder.tokens(Arc::new(Tokens)).volume_health(true);
        Arc::new(builder.clock(Clock::starting_at(now())).build())
    }

    /// A new process: nothing is known but what is on the disk.
    pub(crate) fn restart_agent(&mut self) {
        self.plugin = Self::plugin(self.dir.path(), &self.drivers, &self.objects);
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("kubelet")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("csi.sock")
    }

    pub(crate) async fn stop_driver(&mut self) {
        self.served.take().unwrap().stop().await;
    }

    pub(crate) fn start_driver(&mut self) {
        self.served = Some(self.driver.serve(&self.socket()).unwrap());
    }

    pub(crate) fn mount(&self, pod: &str, spec: VolumeSpec) -> PodMount {
        let pod = pod_named(pod);
        let dir = self.volume_dir(&pod.uid(), spec.name());
        PodMount {
            pod,
            outer_name: "data".into(),
            spec: Arc::new(spec),
            dir,
            device_mount_path: None,
            fs_group: None,
            fs_group_change_policy: FsGroupChangePolicy::Always,
            selinux_label: None,
            leases: VolumeLeases::default(),
        }
    }

    pub(crate) fn volume_dir(&self, uid: &PodUid, name: &str) -> PathBuf {
        let volumes = self.root().join("pods").join(uid.as_str()).join("volumes");
        volumes.join("kubernetes.io~csi").join(name)
    }

    pub(crate) async fn stage(&self, spec: &VolumeSpec) -> Result<PathBuf> {
        let device_mount_path = self.plugin.device_mount_path(spec).unwrap();
        let mount = DeviceMount {
            spec: Arc::new(spec.clone()),
            device_path: String::new(),
            device_mount_path: device_mount_path.clone(),
            fs_group: None,
            selinux_label: None,
        };
        self.plugin.mount_device(&mount).await.map(|()| device_mount_path)
    }

    pub(crate) async fn unstage(&self, spec: &VolumeSpec) -> Result<()> {
        let path = self.plugin.device_mount_path(spec).unwrap();
        self.plugin.unmount_device(&path).await
    }

    pub(crate) async fn tear_down(&self, mount: &PodMount) -> Result<()> {
        self.plugin.tear_down(&on_disk(mount)).await
    }

    pub(crate) fn calls_of(&self, method: CsiMethod) -> Vec<CsiCall> {
        let all = self.driver.calls().all().into_iter();
        all.filter(|call| call.method == method).collect()
    }

    /// Nothing is mounted, and no file or folder of a volume is left.
    pub(crate) fn assert_clean(&self) {
        assert_eq!(self.driver.published(), []);
        assert_eq!(self.driver.staged(), []);
        assert_eq!(self.driver.violations(), Vec::<String>::new());
        let mut left = Vec::new();
        files_below(&self.root(), &mut left);
        assert_eq!(left, Vec::<PathBuf>::new());
    }
}

fn files_below(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files_below(&path, files),
            false => files.push(path),
        }
    }
}

pub(crate) fn on_disk(mount: &PodMount) -> OnDisk {
    OnDisk {
        uid: mount.pod.uid(),
        name: mount.spec.name().to_owned(),
        dir: mount.dir.clone(),
        is_block: mount.spec.is_block(),
    }
}

/// With the defaults of the API server.
pub(crate) fn csi_driver(mut spec: Value) -> CSIDriver {
    let defaults = json!({
        "attachRequired": true,
        "podInfoOnMount": false,
        "fsGroupPolicy": "ReadWriteOnceWithFSType",
        "volumeLifecycleModes": ["Persistent"],
        "requiresRepublish": false,
    });
    for (key, value) in defaults.as_object().unwrap() {
        spec.as_object_mut().unwrap().entry(key).or_insert(value.clone());
    }
    serde_json::from_value(json!({"metadata": {"name": DRIVER}, "spec": spec})).unwrap()
}

pub(crate) fn pod_named(name: &str) -> Arc<Pod> {
    let pod = json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-of-{name}")},
        "spec": {"serviceAccountName": "robot", "containers": []},
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// A persistent volume with the handle `handle-of-<name>`. `more` is merged into its spec.
pub(crate) fn persistent(name: &str, csi: Value, more: Value) -> VolumeSpec {
    let mut source = json!({"driver": DRIVER, "volumeHandle": format!("handle-of-{name}")});
    source
        .as_object_mut()
        .unwrap()
        .extend(csi.as_object().unwrap().clone());
    let mut spec = json!({"csi": source, "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"});
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let volume: PersistentVolume =
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
    VolumeSpec::persistent(Arc::new(volume), false)
}

pub(crate) fn plain(name: &str) -> VolumeSpec {
    persistent(name, json!({}), json!({}))
}

pub(crate) fn inline(csi: Value) -> VolumeSpec {
    let mut source = json!({"driver": DRIVER});
    source
        .as_object_mut()
        .unwrap()
        .extend(csi.as_object().unwrap().clone());
    let volume: Volume = serde_json::from_value(json!({"name": "scratch", "csi": source})).unwrap();
    VolumeSpec::of_pod(Arc::new(volume))
}

pub(crate) fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// What is in the file of a mount that its driver has left behind.
pub(crate) const LEFT: &str = "left";

/// A folder counts as mounted while the driver has its file in it.
pub(crate) struct Folders;

#[async_trait]
impl Mounter for Folders {
    async fn mount(&self, _: &str, _: &Path, _: &str, _: &[String]) -> Result<()> {
        panic!("drivers mount")
    }

    async fn unmount(&self, path: &Path) -> Result<()> {
        let file = path.join(VOLUME_FILE);
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(text, LEFT, "drivers unmount");
        std::fs::remove_file(file).unwrap();
        Ok(())
    }

    async fn is_mount_point(&self, path: &Path) -> Result<bool> {
        Ok(path.join(VOLUME_FILE).exists())
    }

    async fn mounts(&self, _: &Path) -> Result<Vec<MountPoint>> {
        Ok(Vec::new())
    }
}

/// Tokens for ten minutes, of which the last two are for the renewal.
struct Tokens;

#[async_trait]
impl ServiceAccountTokens for Tokens {
    async fn token(
        &self,
        pod: &Arc<Pod>,
        wanted: &k8s_openapi::api::core::v1::ServiceAccountTokenProjection,
    ) -> kubelet_core::Result<ServiceAccountToken> {
        let audience = wanted.audience.as_deref().unwrap_or("the API server");
        let mut token = ServiceAccountToken::new(format!("{} for {audience}", pod.key().name));
        let seconds = wanted.expiration_seconds.unwrap_or(600);
        let at = |seconds: i64| now() + Duration::from_secs(seconds.unsigned_abs());
        token.renew_at = Some(at(seconds - 120));
        token.expires_at = Some(api_time(at(seconds)).0);
        Ok(token)
    }

    fn forget(&self, _: &PodUid) {}
}
