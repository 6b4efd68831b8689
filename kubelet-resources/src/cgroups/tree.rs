//! Cgroups as folders and files. The kubelet's `CgroupManager` does this through libcontainer.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use kubelet_core::cgroups::{CgroupLimits, CgroupName, UNLIMITED};
use rustix::process::{Pid, Signal, kill_process};

use super::limits::{Setting, settings, weight_to_shares};
use super::mounts::{CgroupMounts, Version};

/// The controllers that a cgroup of v1 must have to count as existing.
const NEEDED_V1: [&str; 7] = ["cpu", "cpuacct", "cpuset", "memory", "systemd", "pids", "hugetlb"];
/// The controllers that the kubelet uses (`getSupportedUnifiedControllers`).
const NEEDED_V2: [&str; 5] = ["cpu", "cpuset", "memory", "hugetlb", "pids"];
/// The hierarchy of v1 in which only systemd creates slices.
const OF_SYSTEMD: &str = "systemd";

/// The cgroups in all hierarchies, by their paths from a hierarchy's own root, without a leading slash.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    mounts: CgroupMounts,
    /// Whether systemd is the driver: it creates slices in its own hierarchy.
    is_systemd: bool,
    /// Whether the scheduler may not balance load across the CPUs of a new cgroup; v1 only.
    no_load_balance: bool,
}

impl Tree {
    pub(super) fn new(mounts: CgroupMounts, is_systemd: bool, no_load_balance: bool) -> Self {
        Self {
            mounts,
            is_systemd,
            no_load_balance,
        }
    }

    pub(super) fn version(&self) -> Version {
        self.mounts.version()
    }

    /// Checks that it exists in all hierarchies (`Validate`). `name` is for the error.
    ///
    /// # Errors
    ///
    /// What is missing, in the kubelet's words.
    pub(super) fn validate(&self, path: &Path, name: &CgroupName) -> Result<(), String> {
        match (self.mounts.version(), &self.mounts.v2) {
            (Version::V2, Some(mount)) => {
                let dir = mount.join(path);
                let enabled = controllers(&dir)
                    .map_err(|error| format!("could not read controllers for cgroup {name}: {error}"))?;
                let of_host = controllers(mount).unwrap_or_default();
                let mut missing: Vec<&str> = NEEDED_V2
                    .into_iter()
                    .filter(|controller| of_host.contains(*controller) && !enabled.contains(*controller))
                    .collect();
                missing.sort_unstable();
                match missing.is_empty() {
                    true => Ok(()),
                    false => Err(format!(
                        "cgroup {name} has some missing controllers: {}",
                        missing.join(", ")
                    )),
                }
            }
            _ => {
                let needed = NEEDED_V1
                    .iter()
                    .filter_map(|controller| self.mounts.v1.get(*controller));
                let missing: BTreeSet<_> = needed
                    .map(|mount| mount.join(path))
                    .filter(|dir| !dir.is_dir())
                    .map(|dir| dir.display().to_string())
                    .collect();
                let missing: Vec<String> = missing.into_iter().collect();
                match missing.is_empty() {
                    true => Ok(()),
                    false => Err(format!(
                        "cgroup {name} has some missing paths: {}",
                        missing.join(", ")
                    )),
                }
            }
        }
    }

    /// Creates it in all hierarchies, with its parents.
    pub(super) fn create(&self, name: &Path) -> io::Result<()> {
        match self.mounts.version() {
            Version::V2 => match &self.mounts.v2 {
                Some(mount) => create_v2(mount, name),
                None => Err(io::Error::other("no cgroups are mounted")),
            },
            Version::V1 => {
                if self.no_load_balance
                    && let Some(mount) = self.mounts.v1.get("cpuset")
                {
                    // Before the CPUs are copied: with them, the kernel would change its scheduling domains.
                    create_v1(&mount.join(name))?;
                    let file = mount.join(name).join("cpuset.sched_load_balance");
                    write(&file, "0").map_err(|error| at(&file, &error))?;
                }
                let mounts = self.mounts.v1.iter();
                let mounts = mounts.filter(|(controller, _)| !self.is_systemd || *controller != OF_SYSTEMD);
                // The hierarchy of v2 beside them has no controllers, but its cgroups have pressure stall information.
                let unified = self.mounts.v2.iter().filter(|_| !self.is_systemd);
                for mount in mounts
                    .map(|(_, mount)| mount)
                    .chain(unified)
                    .collect::<BTreeSet<_>>()
                {
                    create_v1(&mount.join(name))?;
                }
                match self.mounts.v1.get("cpuset") {
                    Some(mount) => inherit_cpuset(mount, name),
                    None => Ok(()),
                }
            }
        }
    }

    /// Writes all limits that can be written. The error has those that could not be written.
    pub(super) fn set(&self, name: &Path, limits: &CgroupLimits) -> io::Result<()> {
        let settings = settings(limits, self.mounts.version());
        let mut failed: Vec<Setting> = Vec::new();
        let mut problems = Vec::new();
        for setting in settings {
            if self.write(name, &setting).is_err() {
                failed.push(setting);
            }
        }
        // A value that the kernel refused may be valid after a later write, for example a short period after its quota.
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

    /// Its CPU and memory limits.
    pub(super) fn written(&self, name: &Path) -> io::Result<CgroupLimits> {
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
        let mut limits = CgroupLimits::default();
        match self.mounts.version() {
            Version::V1 => {
                limits.memory = Some(one("memory", "memory.limit_in_bytes")?);
                limits.cpu_shares = Some(one("cpu", "cpu.shares")?);
                limits.cpu_quota = Some(one("cpu", "cpu.cfs_quota_us")?);
                limits.cpu_period = Some(one("cpu", "cpu.cfs_period_us")?);
            }
            Version::V2 => {
                let (text, file) = read("cpu", "cpu.max")?;
                let (quota, period) = text.split_once(' ').unwrap_or((&text, ""));
                limits.memory = Some(one("memory", "memory.max")?);
                limits.cpu_shares = Some(weight_to_shares(one("cpu", "cpu.weight")?));
                limits.cpu_quota = Some(number(quota, &file)?);
                limits.cpu_period = Some(number(period, &file)?);
            }
        }
        Ok(limits)
    }

    /// Its memory usage, if the kernel reports it.
    pub(super) fn memory_usage(&self, name: &Path) -> Option<u64> {
        let file = match self.mounts.version() {
            Version::V1 => "memory.usage_in_bytes",
            Version::V2 => "memory.current",
        };
        let text = fs::read_to_string(self.mounts.of("memory")?.join(name).join(file)).ok()?;
        text.trim().parse().ok()
    }

    /// The names of the cgroups directly below it, in at least one hierarchy.
    pub(super) fn below(&self, path: &Path) -> io::Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for dir in self.mounts.all().into_iter().map(|mount| mount.join(path)) {
            let entries = match fs::read_dir(&dir) {
                Ok(entries) => entries,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(at(&dir, &error)),
            };
            let folders = entries
                .flatten()
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            names.extend(folders.filter_map(|entry| entry.file_name().into_string().ok()));
        }
        Ok(names)
    }

    /// Whether it exists in at least one hierarchy.
    pub(super) fn is_somewhere(&self, path: &Path) -> bool {
        self.mounts.all().iter().any(|mount| mount.join(path).is_dir())
    }

    /// Kills all processes in it (`tryKillingCgroupProcesses`).
    pub(super) fn kill(&self, name: &Path) -> io::Result<()> {
        let mut pids = BTreeSet::new();
        for mount in self.mounts.all() {
            find_processes(&mount.join(name), &mut pids);
        }
        for pid in pids.iter().filter_map(|pid| Pid::from_raw(*pid)) {
            match kill_process(pid, Signal::KILL) {
                // The process has ended meanwhile.
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(io::Error::other(format!("cannot kill process {pid:?}: {error}"))),
            }
        }
        Ok(())
    }

    /// Removes it and all its children from all hierarchies.
    ///
    /// # Errors
    ///
    /// The first one that could not be removed, after all others were removed.
    pub(super) fn remove(&self, name: &Path) -> io::Result<()> {
        // Try all of them.
        let mounts = self.mounts.all().into_iter();
        let removed: Vec<_> = mounts.map(|mount| remove(&mount.join(name))).collect();
        removed.into_iter().collect()
    }
}

/// The enabled controllers of a cgroup of v2.
fn controllers(dir: &Path) -> io::Result<BTreeSet<String>> {
    let file = dir.join("cgroup.controllers");
    let text = fs::read_to_string(&file).map_err(|error| at(&file, &error))?;
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

fn create_v1(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir).map_err(|error| at(dir, &error))
}

fn create_v2(mount: &Path, name: &Path) -> io::Result<()> {
    let of_host = controllers(mount).unwrap_or_default();
    let mut dir = mount.to_owned();
    for part in name {
        // A cgroup can have a limit only if its parent enables the controller. If the kernel refuses to enable one,
        // `exists` or the later write reports it.
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

/// No process can run in a cgroup without CPUs and memory nodes, so each cgroup copies those of its parent.
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

/// Uses one write, as the kernel requires, and never creates the file.
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
    // A process of another PID namespace is 0.
    pids.extend(
        text.lines()
            .filter_map(|line| line.trim().parse::<i32>().ok())
            .filter(|pid| *pid > 0),
    );
    for below in folders(dir) {
        find_processes(&below, pids);
    }
}

/// Children first: a cgroup with children cannot be removed.
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
