//! Plugins on a temporary root folder, with what is around them in memory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, ServiceAccountTokenProjection, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kubelet_core::{
    Clock, ClusterTrustBundles, ConfigObjects, Disk, Event, EventRecorder, FixedNode, PodCertificates,
    PodCredential, PodExt, PodUid, ServiceAccountToken, ServiceAccountTokens, VolumeLeases,
};
use kubelet_volume::{
    Error, FsGroupChangePolicy, InTreePlugins, MountPoint, Mounter, OnDisk, PodMount, Result, VolumePlugin,
    VolumeSpec,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// The wall clock of the tests.
pub(super) const START: &str = "2026-01-01T00:00:00Z";

/// A mount table in memory, which notes what is mounted with which options.
#[derive(Default)]
pub(super) struct MemoryMounter {
    pub(super) mounted: Mutex<Vec<MountPoint>>,
    pub(super) calls: Mutex<Vec<String>>,
    /// The next mounts fail so.
    pub(super) refuses: Mutex<Option<fn() -> Error>>,
}

#[async_trait]
impl Mounter for MemoryMounter {
    async fn mount(&self, source: &str, target: &Path, fs_type: &str, options: &[String]) -> Result<()> {
        let call = format!("mount {fs_type} {} {source}", options.join(","));
        self.calls.lock().push(call);
        if let Some(error) = *self.refuses.lock() {
            return Err(error());
        }
        self.mounted.lock().push(MountPoint {
            source: source.to_owned(),
            path: target.to_owned(),
            fs_type: fs_type.to_owned(),
            options: options.to_owned(),
        });
        Ok(())
    }

    async fn unmount(&self, target: &Path) -> Result<()> {
        let mut mounted = self.mounted.lock();
        if let Some(at) = mounted.iter().rposition(|mount| mount.path == target) {
            self.calls.lock().push("unmount".to_owned());
            mounted.remove(at);
        }
        Ok(())
    }

    async fn is_mount_point(&self, path: &Path) -> Result<bool> {
        Ok(self.mounted.lock().iter().any(|mount| mount.path == path))
    }

    async fn mounts(&self, below: &Path) -> Result<Vec<MountPoint>> {
        let mounted = self.mounted.lock();
        let below = mounted.iter().filter(|mount| mount.path.starts_with(below));
        Ok(below.cloned().collect())
    }
}

/// The objects of an API server, and what it was asked.
#[derive(Default)]
pub(super) struct World {
    pub(super) config_map: Mutex<Option<Arc<ConfigMap>>>,
    pub(super) secret: Mutex<Option<Arc<Secret>>>,
    pub(super) events: Mutex<Vec<String>>,
    pub(super) forgotten: Mutex<Vec<PodUid>>,
}

impl World {
    pub(super) fn set_config_map(&self, object: Value) {
        *self.config_map.lock() = Some(Arc::new(serde_json::from_value(object).unwrap()));
    }

    pub(super) fn set_secret(&self, data: impl IntoIterator<Item = (String, Vec<u8>)>) {
        let data = data.into_iter().map(|(key, value)| (key, ByteString(value)));
        *self.secret.lock() = Some(Arc::new(Secret {
            data: Some(data.collect()),
            ..Secret::default()
        }));
    }
}

#[async_trait]
impl ConfigObjects for World {
    async fn config_map(&self, _: &str, _: &str) -> kubelet_core::Result<Option<Arc<ConfigMap>>> {
        Ok(self.config_map.lock().clone())
    }

    async fn secret(&self, _: &str, _: &str) -> kubelet_core::Result<Option<Arc<Secret>>> {
        Ok(self.secret.lock().clone())
    }
}

/// Each token is renewed after as many seconds as its lifetime has.
#[async_trait]
impl ServiceAccountTokens for World {
    async fn token(
        &self,
        _: &Arc<Pod>,
        wanted: &ServiceAccountTokenProjection,
    ) -> kubelet_core::Result<ServiceAccountToken> {
        let seconds = wanted.expiration_seconds.unwrap_or(3600);
        let start: Timestamp = START.parse().unwrap();
        let mut token = ServiceAccountToken::new(format!("token for {seconds}"));
        token.renew_at = Some(start + jiff::SignedDuration::from_secs(seconds));
        Ok(token)
    }

    fn forget(&self, uid: &PodUid) {
        self.forgotten.lock().push(uid.clone());
    }
}

#[async_trait]
impl ClusterTrustBundles for World {
    async fn by_name(&self, name: &str, allow_missing: bool) -> kubelet_core::Result<Vec<u8>> {
        match (name, allow_missing) {
            ("missing", true) => Ok(Vec::new()),
            ("missing", false) => Err(kubelet_core::Error::Certificates {
                message: format!("clustertrustbundle {name:?} not found"),
            }),
            _ => Ok(format!("anchors of {name}").into_bytes()),
        }
    }

    async fn by_signer(
        &self,
        signer: &str,
        selector: Option<&LabelSelector>,
        _: bool,
    ) -> kubelet_core::Result<Vec<u8>> {
        let labels = selector.and_then(|selector| selector.match_labels.as_ref());
        Ok(format!("anchors of {signer} {labels:?}").into_bytes())
    }
}

#[async_trait]
impl PodCertificates for World {
    async fn credential(
        &self,
        _: &Arc<Pod>,
        volume: &str,
        source_index: usize,
    ) -> kubelet_core::Result<PodCredential> {
        Ok(PodCredential {
            key: format!("key of {volume}/{source_index};").into_bytes(),
            chain: b"chain".to_vec(),
        })
    }

    fn forget(&self, _: &PodUid) {}
}

impl EventRecorder for World {
    fn record(&self, event: Event<'_>) {
        self.events
            .lock()
            .push(format!("{}: {}", event.reason, event.message));
    }
}

/// An agent's plugins.
pub(super) struct Fixture {
    folder: tempfile::TempDir,
    pub(super) world: Arc<World>,
    pub(super) mounter: Arc<MemoryMounter>,
    pub(super) plugins: Vec<Arc<dyn VolumePlugin>>,
}

impl Fixture {
    /// With mounts in memory: files stay on the disk.
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (world, mounter) = (Arc::new(World::default()), Arc::new(MemoryMounter::default()));
        let plugins = plugins(folder.path(), &world).mounter(mounter.clone()).build();
        Self {
            folder,
            world,
            mounter,
            plugins,
        }
    }

    /// With mounts on this host.
    pub(super) fn on_host() -> Self {
        let mut fixture = Self::new();
        fixture.plugins = plugins(fixture.root(), &fixture.world).build();
        fixture
    }

    pub(super) fn root(&self) -> &Path {
        self.folder.path()
    }

    /// The next agent on the same folder.
    pub(super) fn restart(&mut self) {
        let made = plugins(self.root(), &self.world);
        self.plugins = made.mounter(self.mounter.clone()).build();
    }

    pub(super) fn of(&self, spec: &VolumeSpec) -> Arc<dyn VolumePlugin> {
        let mut able = self.plugins.iter().filter(|plugin| plugin.can_support(spec));
        let plugin = able.next().expect("a plugin");
        assert!(able.next().is_none(), "only one");
        Arc::clone(plugin)
    }

    /// The mount of a volume in a pod.
    pub(super) fn mount(&self, pod: &Arc<Pod>, spec: VolumeSpec) -> PodMount {
        let plugin = self.of(&spec).name().replace('/', "~");
        let volumes = self.root().join("pods").join(pod.uid().as_str()).join("volumes");
        let context = pod.spec.as_ref().unwrap().security_context.as_ref();
        let fs_group = context.and_then(|context| context.fs_group);
        PodMount {
            pod: Arc::clone(pod),
            outer_name: "v".to_owned(),
            dir: volumes.join(plugin).join(spec.name()),
            spec: Arc::new(spec),
            device_mount_path: None,
            fs_group: fs_group.map(|group| u32::try_from(group).unwrap()),
            fs_group_change_policy: FsGroupChangePolicy::Always,
            selinux_label: None,
            leases: VolumeLeases::default(),
        }
    }

    /// Sets up a volume of a pod that has nothing else.
    pub(super) async fn set_up(&self, volume: Value) -> (PodMount, Result<kubelet_volume::SetUp>) {
        let mount = self.mount(&pod(json!({})), of_pod(volume));
        let done = self.of(&mount.spec).set_up(&mount).await;
        (mount, done)
    }

    pub(super) async fn tear_down(&self, mount: &PodMount) {
        let plugin = self.of(&mount.spec);
        plugin.tear_down(&on_disk(mount)).await.unwrap();
        plugin.tear_down(&on_disk(mount)).await.unwrap();
        assert!(mount.dir.symlink_metadata().is_err(), "{}", mount.dir.display());
    }

    /// Where marks are.
    pub(super) fn mark(&self, name: &str) -> PathBuf {
        self.root()
            .join("pods/u/plugins/kubernetes.io~empty-dir")
            .join(name)
            .join("ready")
    }
}

pub(super) fn plugins(root: &Path, world: &Arc<World>) -> InTreePlugins {
    let node = json!({"metadata": {}, "status": {"allocatable": {"memory": "1Gi"}}});
    let node = Arc::new(serde_json::from_value(node).unwrap());
    InTreePlugins::new(root)
        .disk(Disk::inline())
        .clock(Clock::starting_at(START.parse().unwrap()))
        .node(Arc::new(FixedNode::new(node)))
        .config_objects(world.clone())
        .tokens(world.clone())
        .trust_bundles(world.clone())
        .certificates(world.clone())
        .recorder(world.clone())
}

/// A pod with this security context.
pub(super) fn pod(security_context: Value) -> Arc<Pod> {
    let pod = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u", "labels": {"a": "1"}},
        "spec": {"securityContext": security_context, "containers": [{"name": "main"}]}});
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// A volume of the pod's spec with the name `v`.
pub(super) fn of_pod(mut volume: Value) -> VolumeSpec {
    volume["name"] = json!("v");
    let volume: Volume = serde_json::from_value(volume).unwrap();
    VolumeSpec::of_pod(Arc::new(volume))
}

/// A persistent volume with the name `pv`.
pub(super) fn persistent(spec: Value, read_only: bool) -> VolumeSpec {
    let volume = json!({"metadata": {"name": "pv"}, "spec": spec});
    VolumeSpec::persistent(Arc::new(serde_json::from_value(volume).unwrap()), read_only)
}

pub(super) fn on_disk(mount: &PodMount) -> OnDisk {
    OnDisk {
        uid: mount.pod.uid(),
        name: mount.spec.name().to_owned(),
        dir: mount.dir.clone(),
        is_block: false,
    }
}

pub(super) fn read(mount: &PodMount, name: &str) -> String {
    fs::read_to_string(mount.dir.join(name)).unwrap()
}

pub(super) fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Whether this process may mount; a test that needs it is skipped otherwise.
#[allow(clippy::print_stdout)]
pub(super) fn may_mount() -> bool {
    let may = rustix::process::geteuid().is_root();
    if !may {
        println!("SKIPPED: only root can mount");
        assert!(std::env::var_os("CI").is_none(), "CI runs as root");
    }
    may
}
