//! Where the controllers of cgroup v1 are mounted.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// The controllers that are read (`supportedSubsystems`, as far as the kubelet asks for them).
const CONTROLLERS: [&str; 6] = ["cpu", "cpuacct", "memory", "pids", "blkio", "hugetlb"];

/// The mountpoint of each controller, the first one of each (`GetCgroupMounts`).
pub(super) fn controllers(mountinfo: &str) -> BTreeMap<&'static str, PathBuf> {
    let mut found = BTreeMap::new();
    for line in mountinfo.lines() {
        let Some((left, right)) = line.split_once(" - ") else {
            continue;
        };
        let mut right = right.split(' ');
        let (Some("cgroup"), Some(options)) = (right.next(), right.nth(1)) else {
            continue;
        };
        let Some(mountpoint) = left.split(' ').nth(4) else {
            continue;
        };
        for option in options.split(',') {
            if let Some(name) = CONTROLLERS.iter().find(|name| **name == option) {
                found.entry(*name).or_insert_with(|| PathBuf::from(mountpoint));
            }
        }
    }
    found
}

/// The controllers in folders of `root` that are named after them, e.g. `cpu,cpuacct`.
pub(super) fn controllers_below(root: &std::path::Path) -> BTreeMap<&'static str, PathBuf> {
    let mut found = BTreeMap::new();
    let mut folders: Vec<PathBuf> = std::fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    folders.sort();
    for folder in folders {
        let Some(names) = folder.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        for name in CONTROLLERS
            .iter()
            .filter(|name| names.split(',').any(|part| part == **name))
        {
            found.entry(*name).or_insert_with(|| folder.clone());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_mountinfo() {
        let mountinfo = "\
28 25 0:25 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw,nsdelegate
31 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:12 - cgroup cgroup rw,cpu,cpuacct
32 25 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
99 25 0:29 / /mnt/memory rw - cgroup cgroup rw,memory
";
        let found: Vec<_> = controllers(mountinfo).into_iter().collect();
        let at = |path: &str| PathBuf::from(path);
        assert_eq!(
            found,
            [
                ("cpu", at("/sys/fs/cgroup/cpu,cpuacct")),
                ("cpuacct", at("/sys/fs/cgroup/cpu,cpuacct")),
                ("memory", at("/sys/fs/cgroup/memory")),
            ]
        );
    }
}
