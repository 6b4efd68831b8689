//! What the machine is.

mod read;
mod tmpfs;

use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;

use crate::{Error, Result};

/// Facts about the machine, as the kubelet takes them from cAdvisor once at its start. A simulated node makes up its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MachineInfo {
    /// Logical CPUs that are online (`NumCores`).
    pub cpus: u32,
    /// Bytes of memory (`MemoryCapacity`).
    pub memory: u64,
    /// Bytes of swap; 0 without any (`SwapCapacity`).
    pub swap: u64,
    /// There is swap, and what is on a file system in memory may be written to it: the kernel knows no `noswap`, or heeds it not
    /// for whom this is (`IsTmpfsNoswapOptionSupported`).
    pub tmpfs_may_be_swapped: bool,
    /// How many processes there may be at once (`MaxPID`).
    pub max_pids: Option<u64>,
    /// Preallocated huge pages by size.
    pub huge_pages: Vec<HugePages>,
    /// Bytes of the file system of the kubelet's root folder (`RootFsInfo`): `ephemeral-storage`. `None`: not known, and
    /// [`root_dir`](Self::root_dir) is asked with each status.
    pub ephemeral_storage: Option<u64>,
    /// The folder that is on the file system which pods write to, or will be.
    pub root_dir: Option<PathBuf>,
    /// 1 or 2, the version of cgroups (`CgroupVersion`), where there are any.
    pub cgroup_version: Option<u8>,
    /// `/etc/machine-id`
    pub machine_id: String,
    /// The firmware's UUID of the machine.
    pub system_uuid: String,
    /// Other for each boot.
    pub boot_id: String,
    /// When that was, for the metrics of a node's startup.
    pub boot_time: Option<Timestamp>,
    /// `uname -r`
    pub kernel_version: String,
    /// `PRETTY_NAME` of `/etc/os-release` (`ContainerOsVersion`).
    pub os_image: String,
    /// `linux`, as Go names operating systems.
    pub operating_system: String,
    /// `amd64`, `arm64`… as Go names architectures.
    pub architecture: String,
}

/// Huge pages of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugePages {
    /// Bytes of one.
    pub page_size: u64,
    /// How many.
    pub pages: u64,
}

impl MachineInfo {
    /// This machine, as `/proc`, `/sys` and `/etc` tell of it; `root_dir` is on the file system that pods write to. It need
    /// not be there yet.
    ///
    /// Reads a dozen small files, on the spot.
    ///
    /// # Errors
    ///
    /// When memory or CPUs cannot be told. What else is missing stays empty, as in the kubelet.
    pub fn read(root_dir: impl AsRef<Path>) -> Result<Self> {
        read::machine_info(Path::new("/"), root_dir.as_ref())
    }

    /// Whether a kubelet starts here (`failSwapOn`).
    ///
    /// # Errors
    ///
    /// [`Error::SwapOn`], where it is not to start on a machine with swap.
    pub fn check_swap(&self, fail_swap_on: bool) -> Result<()> {
        match fail_swap_on && self.swap > 0 {
            true => Err(Error::SwapOn),
            false => Ok(()),
        }
    }

    pub(crate) fn storage(&self) -> Option<u64> {
        let ask = || read::storage(self.root_dir.as_deref()?);
        self.ephemeral_storage.or_else(ask)
    }

    /// A machine with so many CPUs and bytes of memory, on this program's architecture.
    pub fn new(cpus: u32, memory: u64) -> Self {
        Self {
            cpus,
            memory,
            operating_system: std::env::consts::OS.to_owned(),
            architecture: go_architecture().to_owned(),
            ..Self::default()
        }
    }
}

/// Go's name (`GOARCH`) of the architecture that this was built for.
pub(crate) fn go_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
        "powerpc64" => "ppc64",
        "loongarch64" => "loong64",
        other => other,
    }
}
