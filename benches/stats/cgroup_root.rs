//! A cgroup for the pods of a program, in each hierarchy.

use std::fs;
use std::path::{Path, PathBuf};

/// A cgroup directly below the root. It is removed when dropped.
pub(crate) struct CgroupRoot {
    name: String,
    folders: Vec<PathBuf>,
}

impl CgroupRoot {
    pub(crate) fn new() -> Self {
        let name = format!("/bench-stats-{}", std::process::id());
        let folders: Vec<PathBuf> = hierarchies().iter().map(|root| root.join(&name[1..])).collect();
        for folder in &folders {
            fs::create_dir_all(folder).unwrap();
            // In a new cgroup of version 1 no process may run before it has CPUs and memory nodes.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let above = folder.parent().unwrap().join(file);
                if let (true, Ok(text)) = (folder.join(file).exists(), fs::read(above)) {
                    fs::write(folder.join(file), text).unwrap();
                }
            }
        }
        Self { name, folders }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for CgroupRoot {
    fn drop(&mut self) {
        self.folders.iter().for_each(|folder| remove(folder));
    }
}

/// Version 2 has one hierarchy, version 1 one for each controller.
fn hierarchies() -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    if root.join("cgroup.controllers").exists() {
        return vec![root.to_owned()];
    }
    let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir()).collect()
}

/// Removes a cgroup and those below it, if no process is in them.
fn remove(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}
