//! Finds the mounts of the host's cgroups.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use kubelet_core::cgroups::CgroupDriver;

use super::tree::Tree;

/// The mount point of the cgroup hierarchy, or the folder to look for it (`CgroupRoot`).
const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// The mounts of the host's cgroups (`CgroupSubsystems`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupMounts {
    /// By controller, or by name for a named hierarchy. Empty with cgroup v2.
    pub(super) v1: BTreeMap<String, PathBuf>,
    /// The hierarchy of cgroup v2. Beside hierarchies of v1, it has no controllers.
    pub(super) v2: Option<PathBuf>,
}

/// The version of the cgroups that pods are put into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V2,
}

impl Version {
    pub(super) fn is_v2(self) -> bool {
        self == Self::V2
    }
}

impl CgroupMounts {
    /// Reads the mounts of this host.
    ///
    /// # Errors
    ///
    /// `/proc/self/mountinfo` cannot be read, or has no cgroup mounts.
    pub fn of_this_host() -> io::Result<Self> {
        let mounts = Self::parse(&std::fs::read_to_string("/proc/self/mountinfo")?);
        if mounts.v1.is_empty() && mounts.v2.is_none() {
            return Err(io::Error::other("failed to find cgroup mounts"));
        }
        Ok(mounts)
    }

    /// One hierarchy with all controllers, mounted at this path.
    pub fn v2(at: impl Into<PathBuf>) -> Self {
        Self {
            v1: BTreeMap::new(),
            v2: Some(at.into()),
        }
    }

    /// One hierarchy for each of these controllers.
    pub fn v1(controllers: impl IntoIterator<Item = (String, PathBuf)>) -> Self {
        Self {
            v1: controllers.into_iter().collect(),
            v2: None,
        }
    }

    /// Parses `/proc/self/mountinfo`. If a controller has several mounts, the one with the shortest path counts.
    fn parse(mountinfo: &str) -> Self {
        let (mut v1, mut v2) = (BTreeMap::<String, PathBuf>::new(), None::<PathBuf>);
        let is_shorter = |at: &Path, than: &Path| at.as_os_str().len() < than.as_os_str().len();
        for line in mountinfo.lines() {
            let Some((mount, file_system)) = line.split_once(" - ") else {
                continue;
            };
            let Some(at) = mount.split(' ').nth(4).map(PathBuf::from) else {
                continue;
            };
            let mut file_system = file_system.split(' ');
            match file_system.next() {
                Some("cgroup2") if v2.as_ref().is_none_or(|known| is_shorter(&at, known)) => v2 = Some(at),
                Some("cgroup") => {
                    for option in file_system.nth(1).unwrap_or_default().split(',') {
                        let controller = option.strip_prefix("name=").unwrap_or(option);
                        let is_option =
                            matches!(option, "rw" | "ro" | "xattr" | "noprefix" | "clone_children")
                                || option.contains('=') && !option.starts_with("name=");
                        let known = v1.get(controller);
                        if !is_option && known.is_none_or(|known| is_shorter(&at, known)) {
                            v1.insert(controller.to_owned(), at.clone());
                        }
                    }
                }
                _ => {}
            }
        }
        if v2.as_deref() == Some(Path::new(CGROUP_ROOT)) {
            v1.clear();
        }
        Self { v1, v2 }
    }

    /// Checks that the cgroup with this path, or with systemd, with this name of a slice, is in all hierarchies that pods need
    /// (`Validate`). Blocks while it looks.
    ///
    /// # Errors
    ///
    /// What is missing, in the kubelet's words.
    pub fn check(&self, driver: &CgroupDriver, cgroup: &str) -> Result<(), String> {
        let name = driver.parse(cgroup);
        let path = PathBuf::from(driver.path(&name).trim_start_matches('/'));
        let is_systemd = matches!(driver, CgroupDriver::Systemd { .. });
        Tree::new(self.clone(), is_systemd, false).validate(&path, &name)
    }

    pub(super) fn version(&self) -> Version {
        match self.v1.is_empty() {
            true => Version::V2,
            false => Version::V1,
        }
    }

    /// Each mount point once.
    pub fn all(&self) -> Vec<&Path> {
        let mut all: Vec<&Path> = self.v1.values().chain(&self.v2).map(PathBuf::as_path).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The mount point of this controller.
    pub(super) fn of(&self, controller: &str) -> Option<&Path> {
        match self.version() {
            Version::V1 => self.v1.get(controller).map(PathBuf::as_path),
            Version::V2 => self.v2.as_deref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_from_mountinfo() {
        let hybrid = "\
25 1 0:22 / / rw - ext4 /dev/vda rw
30 25 0:26 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
33 25 0:28 / /run/other/place/memory rw,relatime - cgroup cgroup rw,memory
34 30 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,release_agent=/lib/agent,name=systemd
35 30 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";
        let mounts = CgroupMounts::parse(hybrid);
        assert_eq!(mounts.version(), Version::V1);
        let found: Vec<_> = mounts
            .v1
            .iter()
            .map(|(name, at)| (name.as_str(), at.to_str().unwrap()))
            .collect();
        let expected = [
            ("cpu", "/sys/fs/cgroup/cpu,cpuacct"),
            ("cpuacct", "/sys/fs/cgroup/cpu,cpuacct"),
            ("memory", "/sys/fs/cgroup/memory"),
            ("systemd", "/sys/fs/cgroup/systemd"),
        ];
        assert_eq!(found, expected);
        assert_eq!(mounts.of("memory"), Some(Path::new("/sys/fs/cgroup/memory")));
        assert_eq!(mounts.of("hugetlb"), None);
        assert_eq!(mounts.all().len(), 4, "{:?}", mounts.all());

        let unified = "30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        let mounts = CgroupMounts::parse(unified);
        assert_eq!(mounts, CgroupMounts::v2("/sys/fs/cgroup"));
        assert_eq!(
            (mounts.version(), mounts.of("cpu")),
            (Version::V2, Some(Path::new("/sys/fs/cgroup")))
        );
    }
}
