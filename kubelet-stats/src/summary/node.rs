//! The node, and its system containers.

use std::path::Path;
use std::time::Duration;

use kubelet_core::stats::{
    ContainerStats, FsStats, NodeStats, RlimitStats, RuntimeFileSystem, SYSTEM_CONTAINER_KUBELET,
    SYSTEM_CONTAINER_MISC, SYSTEM_CONTAINER_PODS, SYSTEM_CONTAINER_RUNTIME,
};

use super::{NodeSummary, cgroup, time};
use crate::reading::{FileSystem, Reading, Snapshot};
use crate::source::Detail;
use crate::{Error, Result};

impl NodeSummary {
    /// CPU, memory, swap and the start of the node (`GetCPUAndMemoryStats`).
    pub(super) fn node_cpu_and_memory(&self, root: &Reading) -> NodeStats {
        let psi = self.inner.config.psi;
        NodeStats {
            node_name: self.inner.config.node_name.clone(),
            start_time: root.spec.creation_time.and_then(time),
            cpu: Some(cgroup::cpu(root, psi)),
            memory: Some(cgroup::memory(root, psi)),
            swap: cgroup::swap(root),
            ..Default::default()
        }
    }

    /// What the root cgroup shows (`Get`).
    pub(super) fn node_stats(&self, root: &Reading) -> NodeStats {
        NodeStats {
            io: cgroup::io(root, self.inner.config.psi),
            network: cgroup::network(root),
            start_time: self.inner.booted.or(root.spec.creation_time).and_then(time),
            ..self.node_cpu_and_memory(root)
        }
    }

    /// The agent, the runtime, other daemons, and all pods together. A cgroup that cannot be read is left out
    /// (`GetSystemContainersStats`).
    pub(super) async fn system_containers(
        &self,
        snapshot: Option<&Snapshot>,
        age_of_pods: Duration,
        only_cpu_and_memory: bool,
    ) -> Vec<ContainerStats> {
        let config = &self.inner.config;
        let containers = [
            (SYSTEM_CONTAINER_KUBELET, &config.kubelet_cgroup),
            (SYSTEM_CONTAINER_RUNTIME, &config.runtime_cgroup),
            (SYSTEM_CONTAINER_MISC, &config.system_cgroup),
            (SYSTEM_CONTAINER_PODS, &config.pods_cgroup),
        ];
        let mut found = Vec::new();
        for (name, cgroup_name) in containers {
            let Some(cgroup_name) = cgroup_name.as_deref().filter(|name| !name.is_empty()) else {
                continue;
            };
            let fresh = age_of_pods.is_zero() && name == SYSTEM_CONTAINER_PODS;
            let reading = match snapshot
                .and_then(|all| all.cgroup(cgroup_name))
                .filter(|_| !fresh)
            {
                Some(reading) => Ok(reading.clone()),
                None => {
                    let collector = &self.inner.collector;
                    collector
                        .cgroup_with(Detail::Summary, cgroup_name, age_of_pods)
                        .await
                }
            };
            let reading = match reading {
                Ok(reading) => reading,
                Err(error) => {
                    tracing::debug!(%error, container = name, "read a system container");
                    continue;
                }
            };
            let mut stats = container(&reading, name, config.psi);
            if only_cpu_and_memory {
                stats.io = None;
            }
            if name == SYSTEM_CONTAINER_KUBELET {
                stats.start_time = time(self.inner.started);
            }
            found.push(stats);
        }
        found
    }

    /// (`RlimitStats`)
    pub(super) async fn rlimit(&self) -> RlimitStats {
        let collector = self.inner.collector.config();
        let processes = collector.processes.clone();
        let (max_pid, running) = collector
            .disk
            .run(move || Ok(processes.process_limits()))
            .await
            .unwrap_or_default();
        RlimitStats {
            time: time(collector.clock.now()),
            max_pid,
            num_of_running_processes: running,
        }
    }

    /// The file system of the agent's root folder (`RootFsInfo`).
    pub(super) async fn root_file_system(&self) -> Result<FileSystem> {
        let root = self.inner.config.root_dir.path();
        self.inner.collector.file_systems().of_path(root).await
    }

    /// The file systems of images and of containers (`ImageFsStats`). `None` without a runtime. They are one, unless the
    /// runtime reports containers on another device.
    pub(super) async fn runtime_file_systems(&self) -> Result<(Option<FsStats>, Option<FsStats>)> {
        let Some(runtime) = &self.inner.config.runtime else {
            return Ok((None, None));
        };
        let file_systems = runtime.file_systems().await?;
        let Some(images) = file_systems.images.first() else {
            return Err(no_image_fs());
        };
        let of_images = self.known_file_system(&images.mountpoint).await;
        let image_fs = part_of(images, of_images.as_ref());
        if let Some(containers) = file_systems.containers.first()
            && containers.mountpoint != images.mountpoint
            && let Some(of_containers) = self.known_file_system(&containers.mountpoint).await
            && of_images.is_some_and(|of_images| of_images.device != of_containers.device)
        {
            return Ok((Some(image_fs), Some(part_of(containers, Some(&of_containers)))));
        }
        Ok((Some(image_fs.clone()), Some(image_fs)))
    }

    /// The file system of images, without the rest of the summary (`ImageFsStats`). `None` without a runtime. The capacity
    /// and the available space are `None` if no file system is known for the folder of the images.
    ///
    /// # Errors
    ///
    /// If the runtime or the file system cannot be read.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn image_fs_stats(&self) -> Result<Option<FsStats>> {
        let Some(runtime) = &self.inner.config.runtime else {
            return Ok(None);
        };
        let file_systems = runtime.file_systems().await?;
        let images = file_systems.images.first().ok_or_else(no_image_fs)?;
        if images.mountpoint.is_empty() {
            return Ok(Some(part_of(images, None)));
        }
        let of_images = self.inner.collector.file_systems();
        let of_images = match of_images.of_path(Path::new(&images.mountpoint)).await {
            Ok(file_system) => Some(file_system),
            Err(error @ Error::NoFileSystem { .. }) => {
                tracing::debug!(%error, "read the file system of images");
                None
            }
            Err(error) => return Err(error),
        };
        Ok(Some(part_of(images, of_images.as_ref())))
    }

    /// The file system of a folder that the runtime names; `None` if it is unknown here, or hangs (`getFsInfo`).
    pub(super) async fn known_file_system(&self, mountpoint: &str) -> Option<FileSystem> {
        if mountpoint.is_empty() {
            return None;
        }
        match self
            .inner
            .collector
            .file_systems()
            .of_path(Path::new(mountpoint))
            .await
        {
            Ok(file_system) => Some(file_system),
            Err(error) => {
                tracing::debug!(%error, mountpoint, "read the file system of the runtime");
                None
            }
        }
    }

    /// Whether images or containers have a file system that is not the node's (`HasDedicatedImageFs`), and whether those of
    /// images and of containers differ (`HasDedicatedContainerFs`). Without a runtime, neither.
    ///
    /// # Errors
    ///
    /// If the runtime or a file system cannot be read.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn dedicated_file_systems(&self) -> Result<(bool, bool)> {
        let Some(runtime) = &self.inner.config.runtime else {
            return Ok((false, false));
        };
        let root = self.root_file_system().await?.device;
        let file_systems = runtime.file_systems().await?;
        let device = async |part: Option<&RuntimeFileSystem>| match part {
            Some(part) => Some(self.known_file_system(&part.mountpoint).await?.device),
            None => None,
        };
        // The first one that is known here (`ImageFsDevice`).
        let mut images = None;
        for part in &file_systems.images {
            if images.is_none() {
                images = device(Some(part)).await;
            }
        }
        let images = images.ok_or_else(no_image_fs)?;
        let containers = device(file_systems.containers.first())
            .await
            .unwrap_or_else(|| images.clone());
        Ok((images != root || containers != root, images != containers))
    }
}

fn no_image_fs() -> Error {
    let error = std::io::Error::other("imageFs information is unavailable");
    Error::Runtime(kubelet_core::Error::runtime("ImageFsInfo", error))
}

/// What the runtime uses of a file system, and what is free.
fn part_of(part: &RuntimeFileSystem, file_system: Option<&FileSystem>) -> FsStats {
    let mut stats = FsStats {
        time: time(part.timestamp),
        used_bytes: Some(part.used_bytes.unwrap_or(0)),
        inodes_used: part.inodes_used,
        ..Default::default()
    };
    if let Some(file_system) = file_system {
        fill_capacity(&mut stats, file_system);
    }
    stats
}

/// A cgroup as a container, without file systems (`GetCgroupStats`).
pub(super) fn container(reading: &Reading, name: &str, psi: bool) -> ContainerStats {
    ContainerStats {
        name: name.to_owned(),
        start_time: reading.spec.creation_time.and_then(time),
        cpu: Some(cgroup::cpu(reading, psi)),
        memory: Some(cgroup::memory(reading, psi)),
        io: cgroup::io(reading, psi),
        swap: cgroup::swap(reading),
        ..Default::default()
    }
}

/// The node's file system, as of the last reading of the root cgroup (`RootFsStats`).
pub(super) fn root_fs_stats(file_system: &FileSystem, root: &Reading) -> FsStats {
    let mut stats = FsStats {
        time: time(root.usage.timestamp),
        used_bytes: Some(file_system.used()),
        inodes_used: file_system.inodes_used(),
        ..Default::default()
    };
    fill_capacity(&mut stats, file_system);
    stats
}

/// What is free in the file system.
pub(super) fn fill_capacity(stats: &mut FsStats, file_system: &FileSystem) {
    stats.available_bytes = Some(file_system.available);
    stats.capacity_bytes = Some(file_system.capacity);
    stats.inodes_free = file_system.inodes_free;
    stats.inodes = file_system.inodes;
}
