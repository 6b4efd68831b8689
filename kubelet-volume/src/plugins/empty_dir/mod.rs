//! Scratch space that lives as long as its pod (`pkg/volume/emptydir`).

mod huge_pages;
mod memory;
mod quota;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Pod, Volume};
use kubelet_core::{PodExt, PodUid, VolumeUsage};

use super::in_tree::Host;
use crate::filesystem::make_dir::make_volume_dir;
use crate::filesystem::ownership::change_all;
use crate::filesystem::ready;
use crate::filesystem::remove_all::remove_all;
use crate::filesystem::walk::Progress;
use crate::{Attributes, Error, OnDisk, PodMount, Result, SetUp, VolumePlugin, VolumeSpec};

/// The permissions of the volume.
const PERMISSIONS: u32 = 0o777;

/// `emptyDir` volumes.
///
/// The size of one on the disk is not limited by the file system: the agent measures it. With
/// [`InTreePlugins::quotas`](super::InTreePlugins::quotas), the file system counts what it uses.
pub(super) struct EmptyDirPlugin {
    host: Arc<Host>,
}

impl EmptyDirPlugin {
    pub(super) fn new(host: Arc<Host>) -> Self {
        Self { host }
    }
}

fn source(spec: &VolumeSpec) -> Option<&EmptyDirVolumeSource> {
    spec.pod_volume()?.empty_dir.as_ref()
}

#[async_trait]
impl VolumePlugin for EmptyDirPlugin {
    fn name(&self) -> &str {
        "kubernetes.io/empty-dir"
    }

    fn can_support(&self, spec: &VolumeSpec) -> bool {
        source(spec).is_some()
    }

    fn attributes(&self, _: &PodMount) -> Attributes {
        Attributes {
            read_only: false,
            managed: true,
            selinux_relabel: true,
        }
    }

    async fn prepare(&self, mount: &PodMount) -> Result<()> {
        let medium = source(&mount.spec).and_then(|source| source.medium.as_deref());
        match medium {
            Some("Memory") => self.host.allocatable().await.map(drop),
            _ => Ok(()),
        }
    }

    async fn set_up(&self, mount: &PodMount) -> Result<SetUp> {
        let medium = Medium::of(&self.host, mount).await?;
        let place = Place::new(&self.host, &mount.pod.uid(), mount.spec.name(), &mount.dir);
        set_up(&self.host, &mount.pod, &place, &medium, mount.fs_group).await?;
        if let (Some(quotas), Some(size)) = (&self.host.quotas, quota::size(mount))
            && let Err(error) = quotas.assign(&*self.host.mounter, &mount.dir, size).await
        {
            tracing::warn!(dir = %mount.dir.display(), %error, "Cannot assign a quota, files are counted");
        }
        Ok(SetUp::default())
    }

    async fn tear_down(&self, mounted: &OnDisk) -> Result<()> {
        if let Some(quotas) = &self.host.quotas
            && let Err(error) = quotas.clear(&*self.host.mounter, &mounted.dir).await
        {
            tracing::warn!(dir = %mounted.dir.display(), %error, "Failed to clear quota");
        }
        let place = Place::new(&self.host, &mounted.uid, &mounted.name, &mounted.dir);
        tear_down(&self.host, &place).await
    }

    fn supports_mount_options(&self) -> bool {
        false
    }

    async fn reconstruct(&self, found: &OnDisk) -> Result<VolumeSpec> {
        Ok(VolumeSpec::of_pod(Arc::new(Volume {
            name: found.name.clone(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        })))
    }

    async fn usage(&self, mounted: &OnDisk, _: &VolumeSpec) -> Result<Option<VolumeUsage>> {
        usage(&self.host, &mounted.dir).await.map(Some)
    }
}

/// Where the files are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Medium {
    Disk,
    /// At most this many bytes; by default, the kernel's limit.
    Memory(Option<u64>),
    /// The name of the medium: `HugePages` or `HugePages-2Mi`.
    HugePages(String),
}

impl Medium {
    async fn of(host: &Host, mount: &PodMount) -> Result<Self> {
        let source = source(&mount.spec).ok_or_else(|| Error::failed("the volume has no emptyDir"))?;
        match source.medium.as_deref().unwrap_or_default() {
            "" => Ok(Self::Disk),
            "Memory" => Self::memory(host, Some(source), &mount.pod).await,
            medium if huge_pages::is_medium(medium) => Ok(Self::HugePages(medium.to_owned())),
            medium => Err(Error::failed(format!("unknown storage medium {medium:?}"))),
        }
    }

    /// In memory, with the size limit of the volume, its pod and the node.
    pub(super) async fn memory(
        host: &Host,
        source: Option<&EmptyDirVolumeSource>,
        pod: &Pod,
    ) -> Result<Self> {
        let allocatable = host.allocatable().await?;
        Ok(Self::Memory(memory::size(allocatable.get("memory"), source, pod)))
    }
}

/// The folder of a volume, and that of its mark.
pub(super) struct Place {
    dir: PathBuf,
    mark: PathBuf,
}

impl Place {
    /// `name` is that of the mark.
    pub(super) fn new(host: &Host, uid: &PodUid, name: &str, dir: &Path) -> Self {
        let marks = host.root_dir.pod_plugins_dir(uid).join("kubernetes.io~empty-dir");
        Self {
            dir: dir.to_owned(),
            mark: marks.join(name),
        }
    }
}

/// Creates the volume once; later calls keep its content (`emptyDir.SetUpAt`).
pub(super) async fn set_up(
    host: &Host,
    pod: &Pod,
    place: &Place,
    medium: &Medium,
    group: Option<u32>,
) -> Result<()> {
    let medium = if host.in_memory { medium } else { &Medium::Disk };
    let state = State::of(host, place, medium).await?;
    match medium {
        Medium::Disk if state.is_ready && state.exists => return Ok(()),
        Medium::Memory(_) if state.is_ready && (state.is_mounted || state.has_files) => return Ok(()),
        _ => {}
    }
    if state.is_ready && !state.exists {
        tracing::warn!(dir = %place.dir.display(), "A volume is marked as ready, but its folder does not exist");
    }
    let made = make(host, pod, &place.dir, medium, &state).await;
    if let Some(group) = group {
        let dir = place.dir.clone();
        let change = move || change_all(&dir, group, false, &Progress::default());
        if let Err(error) = host.run(change).await {
            tracing::error!(dir = %place.dir.display(), %error, "Cannot give a volume to the pod's group");
        }
    }
    made?;
    let mark = place.mark.clone();
    host.run(move || {
        ready::set_ready(&mark);
        Ok(())
    })
    .await
}

/// What is there of a volume.
struct State {
    is_ready: bool,
    is_mounted: bool,
    exists: bool,
    /// Files of an agent that could not mount.
    has_files: bool,
}

impl State {
    async fn of(host: &Host, place: &Place, medium: &Medium) -> Result<Self> {
        let is_mounted = *medium != Medium::Disk && host.mounter.is_mount_point(&place.dir).await?;
        let (dir, mark) = (place.dir.clone(), place.mark.clone());
        host.run(move || {
            Ok(Self {
                is_ready: ready::is_ready(&mark),
                is_mounted,
                exists: dir.is_dir(),
                has_files: std::fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some()),
            })
        })
        .await
    }
}

async fn make(host: &Host, pod: &Pod, dir: &Path, medium: &Medium, state: &State) -> Result<()> {
    let made = dir.to_owned();
    host.run(move || make_volume_dir(&made, PERMISSIONS)).await?;
    let mounted = match medium {
        Medium::Disk => return Ok(()),
        Medium::Memory(_) if state.is_mounted => return Ok(()),
        Medium::Memory(size) => {
            let size = size.map(|bytes| format!("size={bytes}"));
            let options: Vec<String> = size.into_iter().chain(["noswap".to_owned()]).collect();
            host.mounter.mount("tmpfs", dir, "tmpfs", &options).await
        }
        Medium::HugePages(medium) if state.is_mounted => {
            let mounts = host.mounter.mounts(dir).await?;
            return huge_pages::check_mounted(pod, dir, medium, &mounts);
        }
        Medium::HugePages(medium) => {
            let option = huge_pages::page_size_option(medium, pod)?;
            return host.mounter.mount("nodev", dir, "hugetlbfs", &[option]).await;
        }
    };
    match mounted {
        Err(Error::NotPermitted { message }) => {
            tracing::debug!(dir = %dir.display(), message, "Cannot mount a tmpfs, the volume is on the disk");
            Ok(())
        }
        mounted => mounted,
    }
}

/// Unmounts and removes the volume, whatever its medium, and what containers mounted in it (`emptyDir.TearDownAt`).
pub(super) async fn tear_down(host: &Host, place: &Place) -> Result<()> {
    let mark = place.mark.clone();
    let removed = host.run(move || ready::remove(&mark)).await;
    removed.map_err(|error| {
        let mark = place.mark.display();
        Error::failed(format!("failed to remove ready dir [{mark}]: {error}"))
    })?;
    for mount in host.mounter.mounts(&place.dir).await?.into_iter().rev() {
        host.mounter.unmount(&mount.path).await?;
    }
    let dir = place.dir.clone();
    host.run(move || remove_all(&dir)).await
}

/// What is in memory has a file system of its own; on the disk, all files are counted.
pub(super) async fn usage(host: &Host, dir: &Path) -> Result<VolumeUsage> {
    match host.mounter.is_mount_point(dir).await? {
        true => host.measure_file_system(dir.to_owned()).await,
        false => host.measure_files(dir.to_owned()).await,
    }
}
