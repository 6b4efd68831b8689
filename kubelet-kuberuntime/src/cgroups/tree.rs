//! Cgroups as folders and files (what the kubelet's `CgroupManager` does through libcontainer).

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

use super::limits::{Limits, Setting, UNLIMITED, weight_to_shares};
use super::mounts::{CgroupMounts, Version};

/// The controllers without which a cgroup of v1 does not count as there; others may be mounted.
const NEEDED_V1: [&str; 7] = ["cpu", "cpuacct", "cpuset", "memory", "systemd", "pids", "hugetlb"];
/// The controllers that a kubelet uses (`getSupportedUnifiedControllers`).
const NEEDED_V2: [&str; 5] = ["cpu", "cpuset", "memory", "hugetlb", "pids"];
/// The name of a pod's cgroup goes on with its UID (`podCgroupNamePrefix`).
const POD_PREFIX: &str = "pod";

/// The cgroups below one root, in all hierarchies. Names are paths from a hierarchy's own root.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    mounts: CgroupMounts,
    /// `/kubepods`, with the node's own root before it.
    root: PathBuf,
}

impl Tree {
    /// `root`: without a leading slash.
    pub(super) fn new(mounts: CgroupMounts, root: PathBuf) -> Self {
        Self { mounts, root }
    }

    /// Of the pods of a class; the guaranteed ones lie in the root.
    pub(super) fn class(&self, class: Option<&str>) -> PathBuf {
        match class {
            Some(class) => self.root.join(class),
            None => self.root.clone(),
        }
    }

    /// All that pods lie in.
    fn classes(&self) -> [PathBuf; 3] {
        [
            self.class(None),
            self.class(Some("burstable")),
            self.class(Some("besteffort")),
        ]
    }

    /// Whether all of it is there (`Validate`).
    pub(super) fn exists(&self, name: &Path) -> bool {
        match (self.mounts.version(), &self.mounts.v2) {
            (Version::V2, Some(mount)) => {
                let Some(enabled) = controllers(&mount.join(name)) else {
                    return false;
                };
                let of_host = controllers(mount).unwrap_or_default();
                let mut needed = NEEDED_V2
                    .iter()
                    .filter(|controller| of_host.contains(**controller));
                needed.all(|controller| enabled.contains(*controller))
            }
            _ => {
                let mut needed = NEEDED_V1
                    .iter()
                    .filter_map(|controller| self.mounts.v1.get(*controller));
                needed.all(|mount| mount.join(name).is_dir())
            }
        }
    }

    /// Makes it, in all hierarchies, with those above it.
    pub(super) fn create(&self, name: &Path) -> io::Result<()> {
        match self.mounts.version() {
            Version::V2 => match &self.mounts.v2 {
                Some(mount) => create_v2(mount, name),
                None => Err(io::Error::other("no cgroups are mounted")),
            },
            Version::V1 => {
                for mount in BTreeSet::from_iter(self.mounts.v1.values()) {
                    fs::create_dir_all(mount.join(name)).map_err(|error| at(&mount.join(name), &error))?;
                }
                match self.mounts.v1.get("cpuset") {
                    Some(mount) => inherit_cpuset(mount, name),
                    None => Ok(()),
                }
            }
        }
    }

    /// Writes what can be written; what could not is told.
    pub(super) fn set(&self, name: &Path, limits: &Limits) -> io::Result<()> {
        let settings = limits.settings(self.mounts.version());
        let mut failed: Vec<Setting> = Vec::new();
        let mut problems = Vec::new();
        for setting in settings {
            if self.write(name, &setting).is_err() {
                failed.push(setting);
            }
        }
        // What the kernel refuses may be right beside what came after it: a short period beside its quota.
        for setting in failed {
            if let Err(error) = self.write(name, &setting) {
                problems.push(format!("{}={}: {error}", setting.file, setting.value));
            }
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(io::Error::other(problems.join(", "))),
        }
    }

    fn write(&self, name: &Path, setting: &Setting) -> io::Result<()> {
        let Some(mount) = self.mounts.of(setting.controller) else {
            return Ok(());
        };
        let dir = mount.join(name);
        if setting.controller == "hugetlb" && self.mounts.version() == Version::V2 {
            let enabled = controllers(mount).unwrap_or_default();
            if !enabled.contains("hugetlb") {
                return Ok(());
            }
        }
        let file = dir.join(&setting.file);
        if setting.optional && !file.exists() {
            return Ok(());
        }
        write(&file, &setting.value)
    }

    /// What it allows of CPU and memory.
    pub(super) fn written(&self, name: &Path) -> io::Result<Limits> {
        let read = |controller: &str, file: &str| -> io::Result<(String, PathBuf)> {
            let mount = self.mounts.of(controller);
            let mount = mount.ok_or_else(|| io::Error::other(format!("{controller} is not mounted")))?;
            let file = mount.join(name).join(file);
            let text = fs::read_to_string(&file).map_err(|error| at(&file, &error))?;
            Ok((text.trim().to_owned(), file))
        };
        let number = |text: &str, file: &Path| match text {
            "max" => Ok(UNLIMITED),
            text => {
                let problem = |_| io::Error::other(format!("{}: {text:?} is not a number", file.display()));
                text.parse::<i64>().map_err(problem)
            }
        };
        let one = |controller, file| -> io::Result<i64> {
            let (text, file) = read(controller, file)?;
            number(&text, &file)
        };
        Ok(match self.mounts.version() {
            Version::V1 => Limits {
                memory: Some(one("memory", "memory.limit_in_bytes")?),
                cpu_shares: Some(one("cpu", "cpu.shares")?),
                cpu_quota: Some(one("cpu", "cpu.cfs_quota_us")?),
                cpu_period: Some(one("cpu", "cpu.cfs_period_us")?),
                ..Limits::default()
            },
            Version::V2 => {
                let (text, file) = read("cpu", "cpu.max")?;
                let (quota, period) = text.split_once(' ').unwrap_or((&text, ""));
                Limits {
                    memory: Some(one("memory", "memory.max")?),
                    cpu_shares: Some(weight_to_shares(one("cpu", "cpu.weight")?)),
                    cpu_quota: Some(number(quota, &file)?),
                    cpu_period: Some(number(period, &file)?),
                    ..Limits::default()
                }
            }
        })
    }

    /// How much memory it uses, where that is told.
    pub(super) fn memory_usage(&self, name: &Path) -> Option<u64> {
        let file = match self.mounts.version() {
            Version::V1 => "memory.usage_in_bytes",
            Version::V2 => "memory.current",
        };
        let text = fs::read_to_string(self.mounts.of("memory")?.join(name).join(file)).ok()?;
        text.trim().parse().ok()
    }

    /// By UID: the pods that have a cgroup, if only in one hierarchy (`GetAllPodsFromCgroups`).
    pub(super) fn pods(&self) -> io::Result<BTreeSet<String>> {
        let mut uids = BTreeSet::new();
        for mount in self.mounts.all() {
            for class in self.classes() {
                let entries = match fs::read_dir(mount.join(&class)) {
                    Ok(entries) => entries,
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    Err(error) => return Err(at(&mount.join(&class), &error)),
                };
                for entry in entries.flatten() {
                    let name = entry.file_name();
                    let uid = name.to_str().and_then(|name| name.strip_prefix(POD_PREFIX));
                    if let Some(uid) = uid.filter(|uid| !uid.is_empty())
                        && entry.file_type().is_ok_and(|kind| kind.is_dir())
                    {
                        uids.insert(uid.to_owned());
                    }
                }
            }
        }
        Ok(uids)
    }

    /// The names under which the pod has a cgroup: more than one if it changed its class.
    pub(super) fn names_of(&self, uid: &str) -> Vec<PathBuf> {
        let mounts = self.mounts.all();
        let names = self
            .classes()
            .into_iter()
            .map(|class| class.join(format!("{POD_PREFIX}{uid}")));
        names
            .filter(|name| mounts.iter().any(|mount| mount.join(name).is_dir()))
            .collect()
    }

    /// Kills all that runs in it (`tryKillingCgroupProcesses`).
    pub(super) fn kill(&self, name: &Path) -> io::Result<()> {
        let mut pids = BTreeSet::new();
        for mount in self.mounts.all() {
            find_processes(&mount.join(name), &mut pids);
        }
        for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid)) {
            match kill_process(pid, Signal::KILL) {
                // It ended by itself.
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(io::Error::other(format!("cannot kill process {pid:?}: {error}"))),
            }
        }
        Ok(())
    }

    /// Removes it, with all below it, from all hierarchies.
    ///
    /// # Errors
    ///
    /// The first that could not be removed, after all that could were.
    pub(super) fn remove(&self, name: &Path) -> io::Result<()> {
        // All of them are tried.
        let mounts = self.mounts.all().into_iter();
        let removed: Vec<_> = mounts.map(|mount| remove(&mount.join(name))).collect();
        removed.into_iter().collect()
    }
}

/// What is enabled in a cgroup of v2; `None` if it is not there.
fn controllers(dir: &Path) -> Option<BTreeSet<String>> {
    let text = fs::read_to_string(dir.join("cgroup.controllers")).ok()?;
    Some(text.split_whitespace().map(str::to_owned).collect())
}

fn create_v2(mount: &Path, name: &Path) -> io::Result<()> {
    let of_host = controllers(mount).unwrap_or_default();
    let mut dir = mount.to_owned();
    for part in name {
        // What a cgroup does not hand down, those in it cannot be bound by. One that the kernel refuses is shown by
        // `exists`, or by the write that comes to nothing.
        for controller in &of_host {
            let _ = write(&dir.join("cgroup.subtree_control"), &format!("+{controller}"));
        }
        dir.push(part);
        match fs::create_dir(&dir) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(at(&dir, &error)),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// In a cgroup without CPUs and memory nodes nothing can run: each takes those of the one above it.
fn inherit_cpuset(mount: &Path, name: &Path) -> io::Result<()> {
    let mut dir = mount.to_owned();
    for part in name {
        let above = dir.clone();
        dir.push(part);
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let read =
                |dir: &Path| fs::read_to_string(dir.join(file)).map_err(|error| at(&dir.join(file), &error));
            if read(&dir)?.trim().is_empty() {
                write(&dir.join(file), read(&above)?.trim())?;
            }
        }
    }
    Ok(())
}

/// In one write, as the kernel wants it, and never making the file.
fn write(file: &Path, value: &str) -> io::Result<()> {
    fs::OpenOptions::new()
        .write(true)
        .open(file)?
        .write_all(value.as_bytes())
}

fn find_processes(dir: &Path, pids: &mut BTreeSet<i32>) {
    let Ok(text) = fs::read_to_string(dir.join("cgroup.procs")) else {
        return;
    };
    // One of another PID namespace is 0.
    pids.extend(
        text.lines()
            .filter_map(|line| line.trim().parse::<i32>().ok())
            .filter(|pid| *pid > 0),
    );
    for below in folders(dir) {
        find_processes(&below, pids);
    }
}

/// Those below first: a cgroup that has others in it cannot be removed.
fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir(dir) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(_) => {}
    }
    for below in folders(dir) {
        remove(&below)?;
    }
    match fs::remove_dir(dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(at(dir, &error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn folders(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
