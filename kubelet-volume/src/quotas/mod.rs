//! Project quotas: the file system itself counts what a volume uses (`pkg/volume/util/fsquota`).

mod programs;
mod project_files;
mod volume_quotas;

use std::path::Path;

use async_trait::async_trait;

pub use self::programs::QuotaPrograms;
pub use self::volume_quotas::VolumeQuotas;
use crate::{MountPoint, Result};

/// The number of a project. The file system counts the files of a project together. Zero is no project (`QuotaID`).
pub type ProjectId = u32;

/// The project quotas of the file systems of a host (`LinuxVolumeQuotaApplier`). [`QuotaPrograms`] uses those of the
/// kernel; tests have some in memory.
///
/// # Cancel safety
///
/// When a call is dropped, its change may still happen.
#[async_trait]
pub trait ProjectQuotas: Send + Sync {
    /// Whether the file system counts what each project uses (`SupportsQuotas`).
    async fn is_counting(&self, file_system: &MountPoint) -> Result<bool>;

    /// Sets the most bytes that the files of a project may use; `None` for no limit. A limit beyond the largest that the
    /// file system knows becomes the largest.
    async fn set_limit(&self, file_system: &MountPoint, project: ProjectId, limit: Option<u64>)
    -> Result<()>;

    /// Makes a folder, and all that is and will be below it, a part of a project. On ext4 it fails if files are already
    /// there.
    async fn assign(&self, file_system: &MountPoint, project: ProjectId, dir: &Path) -> Result<()>;

    /// The project of a folder (`GetQuotaOnDir`); `None` if it has none.
    async fn project(&self, dir: &Path) -> Result<Option<ProjectId>>;

    /// What the files of a project use (`GetConsumption`, `GetInodes`). A project without files uses nothing.
    async fn usage(&self, file_system: &MountPoint, project: ProjectId) -> Result<ProjectUsage>;
}

/// What the files of a project use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProjectUsage {
    /// Bytes on the disk.
    pub bytes: u64,
    /// Files, folders and links.
    pub inodes: u64,
}
