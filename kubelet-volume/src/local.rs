//! Volumes that need only this host.

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

mod atomic_writer;
mod dir;
mod empty_dir;
mod host_path;
mod ownership;
mod projected;
mod tmpfs;

use self::dir::make_dir;
use self::empty_dir::Medium;
use self::ownership::{fs_group, give_to_group};
use self::projected as projection;
use kubelet_core::{
    Clock, ConfigObjects, Disk, Error, Event, EventRecorder, EventType, LogEvents, MountedVolume,
    NoConfigObjects, NoServiceAccountTokens, PodExt, PodUid, Result, RootDir, ServiceAccountTokens,
    VolumeManager,
};

/// How long volumes are retried before the pod's sync fails (`podAttachAndMountTimeout`, minus three seconds, since the
/// sync gives up then).
const PATIENCE: Duration = Duration::from_secs(2 * 60);
/// The wait between attempts doubles from the first value to the second (`exponentialbackoff`).
const WAITS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(2 * 60 + 2));

/// Sets up volumes that need only this host: `emptyDir` on disk or in memory, `hostPath`, and projected volumes with
/// service account tokens, config maps and the downward API fields name, namespace and UID. That is enough for ordinary
/// pods: `kube-api-access-…`, which an API server adds to each pod, is such a volume.
///
/// Folders and files have the kubelet's paths and layout. Projected files are in memory, on their own tmpfs, if the
/// agent is allowed to mount one; each sync of the pod updates them. A pod with any other volume waits, with an error
/// and an event.
///
/// As with the kubelet, these mounts must be visible to the container runtime: both use the same mount namespace, or
/// the mounts of the root folder are shared.
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
    /// Sets up volumes in the pods' folders below `root_dir`.
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

    /// Which thread does file work; by default another thread.
    #[must_use]
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disk = disk;
        self
    }

    /// The clock for the names of folders of projected files; by default the operating system's.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Records events about volumes that cannot be set up; by default they are logged.
    #[must_use]
    pub fn recorder(mut self, recorder: Arc<dyn EventRecorder>) -> Self {
        self.recorder = recorder;
        self
    }

    /// The source of config maps; by default there are none.
    #[must_use]
    pub fn config_objects(mut self, objects: Arc<dyn ConfigObjects>) -> Self {
        self.config_objects = objects;
        self
    }

    /// The source of service account tokens; by default there are none.
    #[must_use]
    pub fn tokens(mut self, tokens: Arc<dyn ServiceAccountTokens>) -> Self {
        self.tokens = tokens;
        self
    }

    /// Whether projected files, and `emptyDir` volumes with the medium `Memory`, are in memory if the agent may mount a
    /// tmpfs. Otherwise they are on the disk of the root folder. By default they are in memory, as with the kubelet.
    #[must_use]
    pub fn in_memory(mut self, in_memory: bool) -> Self {
        self.in_memory = in_memory;
        self
    }

    /// Tries to set up one volume once. The error has the kubelet's text.
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
                        tracing::debug!(path = %made.display(), "Cannot mount a tmpfs, the volume is on disk");
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

    /// Whether an earlier sync, or an earlier run of the agent, has set it up; the pod can then continue with that.
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

/// The folders of the kubelet's plugins, with `/` in their names escaped.
const EMPTY_DIR: &str = "kubernetes.io~empty-dir";
const PROJECTED: &str = "kubernetes.io~projected";
/// The volumes that are deleted with their pod: scratch space and copies of API objects. A kubelet that ran here before
/// may have created some that this agent does not support.
const COPIES: [&str; 5] = [
    EMPTY_DIR,
    PROJECTED,
    "kubernetes.io~configmap",
    "kubernetes.io~downward-api",
    "kubernetes.io~secret",
];

/// The supported kinds of volumes.
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
                 does not support this kind of volume"
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

    fn mounted_volumes(&self, uid: &PodUid) -> BTreeMap<String, MountedVolume> {
        let mounted = self.mounted.lock().get(uid).cloned().unwrap_or_default();
        mounted
            .into_iter()
            .map(|(name, path)| (name, MountedVolume::new(path)))
            .collect()
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

/// The pod's volumes that a container mounts, sorted by name (`getExpectedVolumes`), without image volumes, which the
/// runtime mounts.
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

/// Unmounts and removes all volumes of a plugin, and its folder.
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
