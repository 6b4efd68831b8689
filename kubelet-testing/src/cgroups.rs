//! The cgroups above those of containers, which no runtime removes.

use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = "/sys/fs/cgroup";
/// The file of the CPU weight and the highest weight, in cgroup v1 and v2.
#[cfg(all(feature = "containerd", target_os = "linux"))]
const HIGHEST_WEIGHT: [(&str, &str); 2] = [("cpu.shares", "262144"), ("cpu.weight", "10000")];

/// Removes a cgroup and those below it, in each hierarchy. Those with processes stay.
pub(crate) fn remove(cgroup: &str) {
    for hierarchy in hierarchies() {
        remove_tree(&hierarchy.join(cgroup));
    }
}

/// Makes a cgroup with the highest CPU weight. An existing cgroup keeps its weight.
///
/// `runc` starts a container from inside the container's cgroup. With the default weight, the cgroup above the
/// containers can get no CPU for a minute if processes of the host are busy. Then starts take minutes.
#[cfg(all(feature = "containerd", target_os = "linux"))]
pub(crate) fn make_with_highest_weight(cgroup: &str) {
    for hierarchy in hierarchies() {
        let cgroup = hierarchy.join(cgroup);
        if fs::create_dir(&cgroup).is_ok() {
            for (file, weight) in HIGHEST_WEIGHT {
                // Most hierarchies have neither file.
                let _ = fs::write(cgroup.join(file), weight);
            }
        }
    }
}

/// The hierarchies of cgroup v1, or the one of v2.
fn hierarchies() -> Vec<PathBuf> {
    let root = Path::new(ROOT);
    match root.join("cgroup.controllers").exists() {
        true => vec![root.to_owned()],
        false => folders(root),
    }
}

fn remove_tree(cgroup: &Path) {
    for below in folders(cgroup) {
        remove_tree(&below);
    }
    let _ = fs::remove_dir(cgroup);
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}
