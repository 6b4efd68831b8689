//! What is freed before a pod is evicted, and which file systems it is on.

#[cfg(unix)]
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use kubelet_core::runtime::{GcPolicy, Runtime};
use kubelet_core::stats::{RuntimeFileSystem, RuntimeUsages};
use kubelet_core::{Disk, KubeletHandle};
use kubelet_eviction::{BoxError, ContainerGc, FileSystemInfo, FileSystems, ImageGc};
use kubelet_kuberuntime::{CriRuntime, ImageGcManager};

use crate::context::Context;
use crate::rooms::runtime::RuntimeRoom;

/// Images that no container uses. A runtime of pods has none.
pub(super) struct UnusedImages(pub(super) Option<ImageGcManager>);

#[async_trait]
impl ImageGc for UnusedImages {
    async fn delete_unused_images(&self) -> Result<(), BoxError> {
        match &self.0 {
            Some(images) => Ok(images.delete_unused_images().await?),
            None => Ok(()),
        }
    }
}

/// Containers that have ended.
pub(super) struct DeadContainers {
    kubelet: KubeletHandle,
    runtime: Arc<dyn Runtime>,
    policy: GcPolicy,
}

impl DeadContainers {
    pub(super) fn new(context: &Context, kubelet: &KubeletHandle, runtime: &RuntimeRoom) -> Self {
        Self {
            kubelet: kubelet.clone(),
            runtime: runtime.runtime.clone(),
            policy: context.settings.gc_policy.clone(),
        }
    }
}

#[async_trait]
impl ContainerGc for DeadContainers {
    async fn delete_all_unused_containers(&self) -> Result<(), BoxError> {
        let policy = GcPolicy {
            all_sources_ready: self.kubelet.sources().all_ready(),
            evict_terminated_pods: true,
            ..self.policy.clone()
        };
        Ok(self
            .runtime
            .garbage_collect(&policy, self.kubelet.workers())
            .await?)
    }
}

/// The file systems as the runtime reports them (`HasDedicatedImageFs`, `HasDedicatedContainerFs`).
pub(super) struct OfRuntime {
    manager: Option<Arc<CriRuntime>>,
    root_dir: PathBuf,
    disk: Disk,
}

impl OfRuntime {
    pub(super) fn new(context: &Context, runtime: &RuntimeRoom) -> Self {
        Self {
            manager: runtime.manager.clone(),
            root_dir: context.root_dir.path().to_owned(),
            disk: context.disk,
        }
    }
}

#[async_trait]
impl FileSystemInfo for OfRuntime {
    async fn file_systems(&self) -> Result<FileSystems, BoxError> {
        let Some(manager) = &self.manager else {
            return Ok(FileSystems::default());
        };
        let reported = manager.file_systems().await?;
        let folder = |of: Vec<RuntimeFileSystem>| {
            let first = of.into_iter().next();
            first
                .map(|first| PathBuf::from(first.mountpoint))
                .filter(|path| !path.as_os_str().is_empty())
        };
        // A runtime that keeps no images, e.g. one of processes, is on the file system of the agent.
        let Some(images) = folder(reported.images) else {
            return Ok(FileSystems::default());
        };
        let containers = folder(reported.containers).unwrap_or_else(|| images.clone());
        let root_dir = self.root_dir.clone();
        let compare = move || -> std::io::Result<FileSystems> {
            let of_images = device(&images)?;
            let split_container_fs = of_images != device(&containers)?;
            let dedicated_image_fs = split_container_fs || of_images != device(&root_dir)?;
            Ok(FileSystems {
                dedicated_image_fs,
                split_container_fs,
            })
        };
        Ok(self.disk.run(compare).await?)
    }
}

#[cfg(unix)]
fn device(path: &Path) -> std::io::Result<u64> {
    Ok(std::fs::metadata(path)?.dev())
}

#[cfg(not(unix))]
fn device(_: &Path) -> std::io::Result<u64> {
    Ok(0)
}
