//! The cgroup of a run, in each hierarchy.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The environment variable with the name of this run's cgroup, for the inner stages.
pub(crate) const VARIABLE: &str = "CHAOS_CGROUP";
/// How long the last processes of a run may take to die.
const EMPTY_WITHIN: Duration = Duration::from_secs(10);

/// The cgroup of the run, inside, with the path that agents know it by.
pub(crate) fn cgroup() -> String {
    format!("/{}", std::env::var(VARIABLE).unwrap())
}

/// Version 2 has one hierarchy, version 1 one for each controller.
pub(crate) fn hierarchies() -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    if root.join("cgroup.controllers").exists() {
        return vec![root.to_owned()];
    }
    let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir() && !path.is_symlink()).collect()
}

/// A new cgroup in each hierarchy. It is removed when dropped.
pub(crate) struct Cgroups {
    name: String,
    folders: Vec<PathBuf>,
}

impl Cgroups {
    /// A cgroup with a name that no other run has: this process bears it.
    pub(crate) fn new(hierarchies: &[PathBuf]) -> Result<Self, String> {
        let name = format!("chaos-{}", std::process::id());
        let mut cgroups = Self { name, folders: Vec::new() };
        for root in hierarchies {
            let folder = root.join(&cgroups.name);
            // Not one that exists: it is of others.
            fs::create_dir(&folder).map_err(|error| format!("cgroup {}: {error}", folder.display()))?;
            cgroups.folders.push(folder.clone());
            // In a new cgroup of version 1 no process may run before it has CPUs and memory nodes.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if let (true, Ok(text)) = (folder.join(file).exists(), fs::read(root.join(file))) {
                    fs::write(folder.join(file), text)
                        .map_err(|error| format!("cgroup {}: {file}: {error}", folder.display()))?;
                }
            }
        }
        Ok(cgroups)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        fn remove(folder: &Path) {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    remove(&entry.path());
                }
            }
            let _ = fs::remove_dir(folder);
        }
        // After a kill the processes die while this runs.
        let begun = Instant::now();
        loop {
            self.folders.iter().for_each(|folder| remove(folder));
            if !self.folders.iter().any(|folder| folder.exists()) || begun.elapsed() > EMPTY_WITHIN {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_new_and_removed() {
        let [first, second] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let roots = [first.path().to_owned(), second.path().to_owned()];
        let cgroups = Cgroups::new(&roots).unwrap();
        let folders: Vec<_> = roots.iter().map(|root| root.join(cgroups.name())).collect();
        fs::create_dir(folders[0].join("pods")).unwrap();
        assert!(folders.iter().all(|folder| folder.exists()));
        drop(cgroups);
        assert!(!folders.iter().any(|folder| folder.exists()));
    }

    #[test]
    fn a_cgroup_of_others_is_refused_and_stays() {
        let [first, second] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let roots = [first.path().to_owned(), second.path().to_owned()];
        let name = format!("chaos-{}", std::process::id());
        fs::create_dir(roots[1].join(&name)).unwrap();
        let error = Cgroups::new(&roots).err().unwrap();
        assert!(error.contains(&name), "{error}");
        assert!(!roots[0].join(&name).exists());
        assert!(roots[1].join(&name).exists());
    }
}
