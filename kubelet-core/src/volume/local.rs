//! The volumes that need nothing but this host.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, ProjectedVolumeSource, Volume};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::dir::make_dir;
use super::empty_dir::{self, Medium};
use super::ownership::{fs_group, give_to_group};
use super::{
    NoServiceAccountTokens, ServiceAccountTokens, VolumeManager, atomic_writer, host_path, projection, tmpfs,
};
use crate::{
    Clock, ConfigObjects, Disk, Error, Event, EventRecorder, EventType, LogEvents, NoConfigObjects, PodExt,
    PodUid, Result, RootDir,
};

/// How long volumes are tried for before the pod's sync begins anew (`podAttachAndMountTimeout`; three seconds shorter,
/// as the sync gives up then).
const PATIENCE: Duration = Duration::from_secs(2 * 60);
/// The waits between tries double from the first to the second (`exponentialbackoff`).
const WAITS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(2 * 60 + 2));

/// Sets up the volumes that need nothing but this host: `emptyDir` on its disk or in its memory, `hostPath`, and of projected volumes
/// those that are made of service account tokens, config maps and the pod's name, namespace and UID. With that ordinary
/// pods run: `kube-api-access-…`, which an API server gives each pod, is one of these.
///
/// Folders and files lie where the kubelet has them, and are laid out like the kubelet's. Projected files are in memory, on a
/// tmpfs of their own, where the agent may mount one, and are brought up to date with each sync of their pod. A pod that asks
/// for any other volume waits, and its error and event say so.
///
/// As with the kubelet, what is mounted here must reach the container runtime: both see the same mounts, or those of the
/// root folder are shared.
///
/// Answers to the kubelet's `volumemanager.VolumeManager` with these three plugins.
pub struct LocalVolumes {
    root_dir: RootDir,
    disk: Disk,
    clock: Clock,
    recorder: Arc<dyn EventRecorder>,
    config_objects: Arc<dyn ConfigObjects>,
    tokens: Arc<dyn ServiceAccountTokens>,
    in_memory: bool,
    mounted: Mutex<BTreeMap<PodUid, BTreeMap<String, PathBuf>>>,
}

impl LocalVolumes {
    /// Volumes in the folders of their pods below `root_dir`.
    pub fn new(root_dir: impl Into<PathBuf>) -> Self {
        Self {
            root_dir: RootDir::new(root_dir),
            disk: Disk::default(),
            clock: Clock::system(),
            recorder: Arc::new(LogEvents),
            config_objects: Arc::new(NoConfigObjects),
            tokens: Arc::new(NoServiceAccountTokens),
            in_memory: true,
            mounted: Mutex::default(),
        }
    }

    /// Who works on files; another thread by default.
    #[must_use]
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disk = disk;
        self
    }

    /// What folders of projected files are named by; the operating system's clock by default.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Who records that a volume could not be set up; by default it is logged.
    #[must_use]
    pub fn recorder(mut self, recorder: Arc<dyn EventRecorder>) -> Self {
        self.recorder = recorder;
        self
    }

    /// Where config maps are read; by default there are none.
    #[must_use]
    pub fn config_objects(mut self, objects: Arc<dyn ConfigObjects>) -> Self {
        self.config_objects = objects;
        self
    }

    /// Who gives service account tokens; by default nobody.
    #[must_use]
    pub fn tokens(mut self, tokens: Arc<dyn ServiceAccountTokens>) -> Self {
        self.tokens = tokens;
        self
    }

    /// Whether projected files and `emptyDir` of the medium `Memory` are in memory, where the agent may mount that, or on the
    /// disk of the root folder; by default they are in memory, as the kubelet's.
    #[must_use]
    pub fn in_memory(mut self, in_memory: bool) -> Self {
        self.in_memory = in_memory;
        self
    }

    /// One volume, once. An error in the kubelet's words.
    async fn set_up(&self, pod: &Arc<Pod>, volume: &Volume, kind: &Kind<'_>) -> Result<PathBuf, String> {
        let dir = |plugin| self.volume_dir(&pod.uid(), plugin, &volume.name);
        match kind {
            Kind::EmptyDir(medium) => {
                let (dir, group) = (dir(EMPTY_DIR), fs_group(pod));
                let made = dir.clone();
                let medium = if self.in_memory { *medium } else { Medium::Disk };
                self.on_disk(move || empty_dir::make(&made, medium, group))
                    .await?;
                Ok(dir)
            }
            Kind::HostPath { path, kind } => {
                let (checked, kind) = (PathBuf::from(path), (*kind).to_owned());
                self.on_disk(move || host_path::check(&checked, &kind)).await?;
                Ok(PathBuf::from(path))
            }
            Kind::Projected(source) => {
                let (objects, tokens) = (&*self.config_objects, &*self.tokens);
                let payload = projection::payload(pod, source, objects, tokens).await?;
                let (dir, group, now) = (dir(PROJECTED), fs_group(pod), self.clock.now());
                let (made, in_memory) = (dir.clone(), self.in_memory);
                let write = move || {
                    make_dir(&made, 0o777)?;
                    if in_memory && !tmpfs::mount(&made, None)? {
                        tracing::debug!(path = %made.display(), "the files of a volume are on the disk");
                    }
                    let finish = || group.map_or(Ok(()), |group| give_to_group(&made, group, true));
                    atomic_writer::write(&made, &payload, now, finish)
                };
                self.on_disk(write).await?;
                Ok(dir)
            }
        }
    }

    async fn on_disk(&self, work: impl FnOnce() -> io::Result<()> + Send + 'static) -> Result<(), String> {
        self.disk.run(work).await.map_err(|error| error.to_string())
    }

    fn volume_dir(&self, uid: &PodUid, plugin: &str, name: &str) -> PathBuf {
        self.root_dir.pod_volumes_dir(uid).join(plugin).join(name)
    }

    /// Whether an earlier sync, or an earlier agent, has set it up: then the pod goes on with what is there.
    fn was_set_up(&self, uid: &PodUid, volume: &Volume, kind: &Kind<'_>) -> Option<PathBuf> {
        let dir = self.volume_dir(uid, PROJECTED, &volume.name);
        let is_there = matches!(kind, Kind::Projected(_)) && dir.join("..data").exists();
        is_there.then_some(dir)
    }

    fn waits(pod: &Pod, unmounted: &[&str], unknown: &[&str], why: &str) -> Error {
        let list = |names: &[&str]| names.join(" ");
        Error::SyncPod {
            pod: pod.key(),
            uid: pod.uid(),
            message: format!(
                "unmounted volumes=[{}], unattached volumes=[], failed to process volumes=[{}]: {why}",
                list(unmounted),
                list(unknown)
            ),
        }
    }
}

/// The folders of the kubelet's plugins, `/` in their names escaped.
const EMPTY_DIR: &str = "kubernetes.io~empty-dir";
const PROJECTED: &str = "kubernetes.io~projected";
/// What goes with its pod: scratch space, and copies of what the API server has. A kubelet that ran here before may have made
/// some that are not offered yet.
const COPIES: [&str; 5] = [
    EMPTY_DIR,
    PROJECTED,
    "kubernetes.io~configmap",
    "kubernetes.io~downward-api",
    "kubernetes.io~secret",
];

/// What a volume is, of those that are offered.
enum Kind<'a> {
    EmptyDir(Medium),
    HostPath { path: &'a str, kind: &'a str },
    Projected(&'a ProjectedVolumeSource),
}

impl<'a> Kind<'a> {
    fn of(volume: &'a Volume, pod: &Pod) -> Option<Self> {
        if let Some(empty_dir) = &volume.empty_dir {
            return Medium::of(empty_dir, pod).map(Self::EmptyDir);
        }
        if let Some(host_path) = &volume.host_path {
            let kind = host_path.type_.as_deref().unwrap_or_default();
            return Some(Self::HostPath {
                path: &host_path.path,
                kind,
            });
        }
        let projected = volume.projected.as_ref();
        projected
            .filter(|source| projection::is_offered(source))
            .map(Self::Projected)
    }
}

#[async_trait]
impl VolumeManager for LocalVolumes {
    async fn wait_for_attach_and_mount(&self, pod: &Arc<Pod>) -> Result<()> {
        let uid = pod.uid();
        let wanted = used_volumes(pod);
        let mut known = Vec::new();
        let mut unknown = Vec::new();
        for volume in &wanted {
            match Kind::of(volume, pod) {
                Some(kind) => known.push((*volume, kind)),
                None => unknown.push(volume.name.as_str()),
            }
        }
        if let Some(first) = unknown.first() {
            let names: Vec<&str> = wanted.iter().map(|volume| volume.name.as_str()).collect();
            let why = format!(
                "failed to get Plugin from volumeSpec for volume {first:?} err=no volume plugin matched: this agent \
                 does not offer this kind of volume"
            );
            return Err(Self::waits(pod, &names, &unknown, &why));
        }

        let mut mounted = BTreeMap::new();
        let (begun, mut wait) = (Instant::now(), WAITS.0);
        loop {
            let mut failed = Vec::new();
            for (volume, kind) in known {
                let problem = match self.set_up(pod, volume, &kind).await {
                    Ok(path) => {
                        mounted.insert(volume.name.clone(), path);
                        continue;
                    }
                    Err(problem) => problem,
                };
                self.recorder.record(Event::about(
                    pod,
                    EventType::Warning,
                    "FailedMount",
                    format!(
                        "MountVolume.SetUp failed for volume {:?} : {problem}",
                        volume.name
                    ),
                ));
                match self.was_set_up(&uid, volume, &kind) {
                    Some(path) => _ = mounted.insert(volume.name.clone(), path),
                    None => failed.push((volume, kind)),
                }
            }
            if failed.is_empty() {
                self.mounted.lock().insert(uid, mounted);
                return Ok(());
            }
            let left = PATIENCE.saturating_sub(begun.elapsed());
            if left.is_zero() {
                let names: Vec<&str> = failed.iter().map(|(volume, _)| volume.name.as_str()).collect();
                return Err(Self::waits(pod, &names, &[], "context deadline exceeded"));
            }
            sleep(wait.min(left)).await;
            wait = (wait * 2).min(WAITS.1);
            known = failed;
        }
    }

    fn mounted_volumes(&self, uid: &PodUid) -> BTreeMap<String, PathBuf> {
        self.mounted.lock().get(uid).cloned().unwrap_or_default()
    }

    async fn wait_for_unmount(&self, pod: &Arc<Pod>) -> Result<()> {
        self.unmount_orphaned(&pod.uid()).await
    }

    async fn unmount_orphaned(&self, uid: &PodUid) -> Result<()> {
        let dir = self.root_dir.pod_volumes_dir(uid);
        let removed = dir.clone();
        let removing = self.disk.run(move || {
            COPIES
                .iter()
                .try_for_each(|plugin| remove_volumes(&removed.join(plugin)))
        });
        removing
            .await
            .map_err(|error| Error::io(&dir, Some(uid), error))?;
        self.mounted.lock().remove(uid);
        self.tokens.forget(uid);
        Ok(())
    }
}

/// The pod's volumes that a container mounts, in the order of their names (`getExpectedVolumes`). An image as a volume is
/// the runtime's to mount.
fn used_volumes(pod: &Pod) -> Vec<&Volume> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let regular = containers.map(|container| (&container.volume_mounts, &container.volume_devices));
    let ephemeral = spec.ephemeral_containers.iter().flatten();
    let all = regular.chain(ephemeral.map(|container| (&container.volume_mounts, &container.volume_devices)));
    let mut used = BTreeSet::new();
    for (mounts, devices) in all {
        used.extend(mounts.iter().flatten().map(|mount| mount.name.as_str()));
        used.extend(devices.iter().flatten().map(|device| device.name.as_str()));
    }
    let volumes = spec
        .volumes
        .iter()
        .flatten()
        .filter(|volume| volume.image.is_none());
    let mut volumes: Vec<&Volume> = volumes
        .filter(|volume| used.contains(volume.name.as_str()))
        .collect();
    volumes.sort_by(|a, b| a.name.cmp(&b.name));
    volumes
}

/// All volumes of a plugin and its folder, and what is mounted on them.
fn remove_volumes(plugin: &Path) -> io::Result<()> {
    let volumes = match fs::read_dir(plugin) {
        Ok(volumes) => volumes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for volume in volumes {
        let volume = volume?.path();
        tmpfs::unmount(&volume)?;
        fs::remove_dir_all(volume)?;
    }
    fs::remove_dir(plugin)
}
