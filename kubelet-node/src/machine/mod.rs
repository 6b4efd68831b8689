//! Facts about the machine.

mod read;
mod tmpfs;

use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;

use crate::{Error, Result};

/// Facts about the machine. The kubelet gets them from cAdvisor once at its start. A simulated node makes them
/// up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MachineInfo {
    /// The number of logical CPUs that are online (`NumCores`).
    pub cpus: u32,
    /// The logical CPUs that are online, as `0-3,8`. If empty, they are numbered from 0.
    pub online_cpus: String,
    /// Bytes of memory (`MemoryCapacity`).
    pub memory: u64,
    /// Bytes of swap; 0 if there is none (`SwapCapacity`).
    pub swap: u64,
    /// Whether files on tmpfs may be written to swap: there is swap, and the kernel does not support the mount
    /// option `noswap`, or not in this user namespace (`IsTmpfsNoswapOptionSupported`).
    pub tmpfs_may_be_swapped: bool,
    /// The largest number of processes at a time (`MaxPID`).
    pub max_pids: Option<u64>,
    /// Preallocated huge pages by size.
    pub huge_pages: Vec<HugePages>,
    /// Bytes of the file system of the kubelet's root folder (`RootFsInfo`), reported as `ephemeral-storage`.
    /// `None` if unknown; then the file system of [`root_dir`](Self::root_dir) is read with each status.
    pub ephemeral_storage: Option<u64>,
    /// A folder on the file system that pods write to. It need not exist yet.
    pub root_dir: Option<PathBuf>,
    /// The version of cgroups, 1 or 2 (`CgroupVersion`); `None` without cgroups.
    pub cgroup_version: Option<u8>,
    /// `/etc/machine-id`
    pub machine_id: String,
    /// The system UUID from the firmware.
    pub system_uuid: String,
    /// The boot id, which changes with each boot.
    pub boot_id: String,
    /// The boot time, for the metrics of the node's start.
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
    /// Bytes of one page.
    pub page_size: u64,
    /// The number of pages.
    pub pages: u64,
}

impl MachineInfo {
    /// Reads the facts about this machine from `/proc`, `/sys` and `/etc`. `root_dir` is on the file system
    /// that pods write to; it need not exist yet.
    ///
    /// The call blocks while it reads a dozen small files.
    ///
    /// # Errors
    ///
    /// Memory or CPUs cannot be read. Other missing facts stay empty, as in the kubelet.
    pub fn read(root_dir: impl AsRef<Path>) -> Result<Self> {
        read::machine_info(Path::new("/"), root_dir.as_ref())
    }

    /// Adds what the kubelet reads besides cAdvisor's machine: the limit of processes, swap of tmpfs, the file system of
    /// `root_dir`, cgroups, boot time, kernel and system. For a caller that has read CPUs, memory, swap, huge pages and
    /// ids itself.
    ///
    /// The call blocks while it reads some small files. Facts that are missing stay empty.
    #[must_use]
    pub fn with_facts_of_host(self, root_dir: impl AsRef<Path>) -> Self {
        read::facts_of_host(self, Path::new("/"), root_dir.as_ref())
    }

    /// Checks that the machine has the CPUs that are reserved, e.g. `0-1,6` (`reservedSystemCPUs`, `getReservedCPUs`).
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if one of them is not online, or `reserved` is not a list of CPUs.
    pub fn check_reserved_cpus(&self, reserved: &str) -> Result<()> {
        if reserved.is_empty() {
            return Ok(());
        }
        let online = match self.online_cpus.as_str() {
            "" => format!("0-{}", self.cpus.saturating_sub(1)),
            online => online.to_owned(),
        };
        let has = read::cpu_ranges(&online).unwrap_or_default();
        let wanted = read::cpu_ranges(reserved);
        let is_online = |cpu: u32| has.iter().any(|range| range.contains(&cpu));
        let are_online = |mut range: std::ops::RangeInclusive<u32>| range.all(is_online);
        match wanted.is_some_and(|ranges| ranges.into_iter().all(are_online)) {
            true => Ok(()),
            false => Err(Error::Invalid {
                what: "reserved-cpus".to_owned(),
                why: format!("{reserved} is not a subset of online-cpus: {online}"),
            }),
        }
    }

    /// Checks that the kubelet may start on this machine (`failSwapOn`).
    ///
    /// # Errors
    ///
    /// [`Error::SwapOn`] if the machine has swap and `fail_swap_on` is true.
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

    /// A machine with this many CPUs and bytes of memory, of this program's architecture.
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

/// Go's name (`GOARCH`) of the architecture of this build.
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
