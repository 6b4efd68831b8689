//! Reads the host's facts for the node's settings.

use std::fs;
use std::path::Path;

use super::NodeSettings;

impl NodeSettings {
    /// The defaults, with the facts of this host from `/proc` and `/sys`: memory, CPUs, sizes of huge pages, the cgroup
    /// version, swap accounting, SELinux and the paths of CPUs to mask.
    ///
    /// All memory and CPUs count as allocatable. A fact that cannot be read keeps its default. Reads some small files
    /// of the kernel, which needs no disk.
    #[must_use]
    pub fn of_this_host() -> Self {
        Self::of_host(Path::new("/"))
    }

    fn of_host(root: &Path) -> Self {
        let memory = meminfo(root, "MemTotal:").unwrap_or(0);
        let cpus = std::thread::available_parallelism().map_or(0, |cpus| cpus.get() as u64);
        let cgroup_v2 = root.join("sys/fs/cgroup/cgroup.controllers").exists();
        Self {
            memory_capacity: memory,
            allocatable_memory: memory,
            allocatable_cpu_millis: cpus * 1000,
            huge_page_sizes: huge_page_sizes(root),
            masked_paths: thermal_throttle_paths(root),
            cgroup_v2,
            swap_controller: has_swap_controller(root, cgroup_v2),
            swap_capacity: meminfo(root, "SwapTotal:").unwrap_or(0),
            selinux: root.join("sys/fs/selinux/enforce").exists(),
            ..Self::default()
        }
    }
}

/// In bytes.
fn meminfo(root: &Path, field: &str) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let total = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// `2MB`, `1GB`: smallest first.
fn huge_page_sizes(root: &Path) -> Vec<String> {
    let mut sizes: Vec<u64> = names_in(&root.join("sys/kernel/mm/hugepages"))
        .iter()
        .filter_map(|name| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok())
        .collect();
    sizes.sort_unstable();
    sizes
        .into_iter()
        .map(|kib| match kib {
            kib if kib >= 1 << 20 => format!("{}GB", kib >> 20),
            kib if kib >= 1 << 10 => format!("{}MB", kib >> 10),
            kib => format!("{kib}KB"),
        })
        .collect()
}

/// The paths of `defaultMaskedPaths` that depend on the host, one for each CPU.
fn thermal_throttle_paths(root: &Path) -> Vec<String> {
    let cpus = root.join("sys/devices/system/cpu");
    let mut numbers: Vec<u32> = names_in(&cpus)
        .iter()
        .filter_map(|name| name.strip_prefix("cpu")?.parse().ok())
        .filter(|number| cpus.join(format!("cpu{number}/thermal_throttle")).exists())
        .collect();
    numbers.sort_unstable();
    numbers
        .into_iter()
        .map(|number| format!("/sys/devices/system/cpu/cpu{number}/thermal_throttle"))
        .collect()
}

/// `checkSwapControllerAvailability`
fn has_swap_controller(root: &Path, cgroup_v2: bool) -> bool {
    let cgroups = root.join("sys/fs/cgroup");
    if !cgroup_v2 {
        return cgroups.join("memory/memory.memsw.limit_in_bytes").exists();
    }
    // The root of the tree has no limit files, so this reads the cgroup of this process.
    let own = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
    own.is_some_and(|own| cgroups.join(own).join("memory.swap.max").exists())
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> NodeSettings {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        NodeSettings::of_host(root.path())
    }

    #[test]
    fn a_host_with_one_hierarchy_of_cgroups() {
        let node = host(&[
            ("proc/meminfo", "MemTotal:       24684100 kB\nSwapTotal: 2 kB\n"),
            ("proc/self/cgroup", "0::/system.slice/agent.service\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
            (
                "sys/fs/cgroup/system.slice/agent.service/memory.swap.max",
                "max\n",
            ),
            ("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n"),
            ("sys/kernel/mm/hugepages/hugepages-64kB/nr_hugepages", "0\n"),
            ("sys/devices/system/cpu/cpu10/thermal_throttle/count", "0\n"),
            ("sys/devices/system/cpu/cpu2/thermal_throttle/count", "0\n"),
            ("sys/devices/system/cpu/cpu3/online", "1\n"),
            ("sys/fs/selinux/enforce", "1"),
        ]);
        assert_eq!(node.memory_capacity, 24_684_100 << 10);
        assert_eq!(node.swap_capacity, 2 << 10);
        assert_eq!(node.huge_page_sizes, ["64KB", "2MB", "1GB"]);
        assert_eq!(
            node.masked_paths,
            [2, 10].map(|cpu| format!("/sys/devices/system/cpu/cpu{cpu}/thermal_throttle"))
        );
        assert!(node.cgroup_v2 && node.swap_controller && node.selinux);
        assert!(node.allocatable_cpu_millis >= 1000);
    }

    #[test]
    fn a_host_with_many_hierarchies_and_one_that_tells_nothing() {
        let node = host(&[("sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", "1\n")]);
        assert!(!node.cgroup_v2 && node.swap_controller && !node.selinux);
        let node = host(&[]);
        assert_eq!((node.memory_capacity, node.huge_page_sizes.len()), (0, 0));
        assert!(!node.swap_controller);
    }
}
