//! Cgroups of version 1.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use k8s_openapi::jiff::Timestamp;

use super::at_rest::at_rest;
use super::blkio::Schedulers;
use super::creation::CreationTimes;
use super::round::Round;
use super::{folder, list_below, mounts};
use crate::reading::{CpuSpec, CpuUsage, HugetlbUsage, MemorySpec, MemoryUsage, Spec};
use crate::source::pseudo_file::{Folder, Opened, first_line, missing, parse};
use crate::source::{CgroupFiles, CgroupUsage, Cgroups, Detail, Listed, Wanted};
use crate::{Error, Result};

/// The kernel counts in this unit (`clockTicks`), in nanoseconds.
const TICK: u64 = 10_000_000;

/// A limit of memory above this is none. The kernel shows the largest number of bytes in whole pages.
const UNLIMITED: u64 = 1 << 62;

/// Cgroups of version 1: a hierarchy for each controller.
pub struct CgroupsV1 {
    controllers: BTreeMap<&'static str, PathBuf>,
    creation: CreationTimes,
    hugetlb: bool,
    /// The root of the memory controller counts its children, so all cgroups do. It cannot change while there are cgroups.
    hierarchy: OnceLock<bool>,
    /// The kernel limits memory and swap together.
    swap_limits: OnceLock<bool>,
    schedulers: Schedulers,
}

impl CgroupsV1 {
    /// The cgroups at these mountpoints: `cpu`, `cpuacct`, `memory`, `pids`, `blkio`, `hugetlb`, as far as there
    /// are. `boot`: no cgroup counts as older.
    pub fn new(controllers: BTreeMap<&'static str, PathBuf>, boot: Option<Timestamp>) -> Self {
        Self {
            controllers,
            creation: CreationTimes::new(boot),
            hugetlb: false,
            hierarchy: OnceLock::new(),
            swap_limits: OnceLock::new(),
            schedulers: Schedulers::default(),
        }
    }

    /// The cgroups in folders of `root` that are named after controllers, e.g. `cpu,cpuacct`: a recorded tree.
    pub fn below(root: &Path, boot: Option<Timestamp>) -> Self {
        Self::new(mounts::controllers_below(root), boot)
    }

    /// Also reads huge pages. The kubelet does not.
    #[must_use]
    pub fn with_hugetlb(mut self) -> Self {
        self.hugetlb = true;
        self
    }
}

impl Cgroups for CgroupsV1 {
    fn list(&self, root: &str) -> Result<Listed> {
        let mut listed = Listed::default();
        // A cgroup is shown only if the first of these has it: its processes are read there.
        let mut controllers = ["cpu", "memory"].into_iter();
        if let Some(mountpoint) = controllers.find_map(|controller| self.controllers.get(controller)) {
            match list_below(mountpoint, root, &mut listed) {
                Err(error) if !error.is_gone() => return Err(error),
                _ => {}
            }
        }
        listed.names.sort_unstable();
        listed.names.dedup();
        self.creation.retain(root, &listed.names);
        Ok(listed)
    }

    fn spec(&self, name: &str) -> Result<Spec> {
        let folders = Folders::open(self, &mut Round::default(), name, Detail::All);
        let mut files = Folder::none();
        let mut spec = self.spec_of(name, &folders)?;
        if let Some(cpu) = folders.cpu {
            files.enter(cpu);
            spec.cpu = Some(read_cpu_spec(&mut files)?);
        }
        if let Some(memory) = folders.memory {
            files.enter(memory);
            spec.memory = Some(self.read_memory_spec(&mut files, InheritedLimits::default(), Detail::All)?);
        }
        if let Some(pids) = folders.pids {
            files.enter(pids);
            spec.threads_max = Some(files.number("pids.max")?.unwrap_or(0));
        }
        Ok(spec)
    }

    fn usage(&self, name: &str, spec: &Spec) -> Result<CgroupUsage> {
        let mut usage = CgroupUsage::default();
        let mut files = Folder::none();
        // What the cgroup had a moment ago it must still have.
        let at = |controller: &str, has: bool| {
            let root = self.controllers.get(controller).filter(|_| has)?;
            Some(folder(root, name))
        };
        if let Some(path) = at("cpu", spec.cpu.is_some()) {
            if !files.open(path) {
                return Err(missing(files.path().to_owned()));
            }
            read_cpu(&mut files, spec.cpu, &mut usage.cpu)?;
        }
        if let Some(path) = at("cpuacct", spec.cpu.is_some()) {
            files.open(path);
            usage.cpu.total = files.required_number("cpuacct.usage")?;
            read_cpu_modes(&mut files, &mut usage.cpu)?;
        }
        if let Some(path) = at("memory", spec.memory.is_some()) {
            files.open(path);
            (usage.memory, _) = self.read_memory(&mut files, Detail::All)?;
            read_memory_events(&mut files, &mut usage)?;
        }
        if let Some(path) = at("pids", spec.threads_max.is_some()) {
            files.open(path);
            read_threads(&mut files, spec, &mut usage)?;
        }
        if let Some(path) = at("blkio", spec.has_disk_io) {
            files.open(path);
            usage.disk_io = self.schedulers.read(&mut files, name == "/")?;
        }
        if let Some(path) = at("hugetlb", spec.has_hugetlb) {
            usage.hugetlb = read_hugetlb(path)?;
        }
        Ok(usage)
    }

    fn processes(&self, name: &str) -> Result<Vec<u32>> {
        let Some(root) = self.controllers.get("cpu") else {
            return Ok(Vec::new());
        };
        read_processes(&mut Folder::new(folder(root, name)))
    }

    fn read(&self, name: &str, detail: Detail) -> Result<CgroupFiles> {
        let wanted = Wanted {
            detail,
            processes: true,
            before: None,
        };
        self.read_in(&mut Round::default(), name, wanted)
    }

    fn read_in(&self, round: &mut Round, name: &str, wanted: Wanted<'_>) -> Result<CgroupFiles> {
        let detail = wanted.detail;
        let all = detail == Detail::All;
        // All folders are open before a file is read: if the cgroup is removed meanwhile, a file is missing.
        let folders = Folders::open(self, round, name, detail);
        let mut files = Folder::none();
        let mut read = CgroupFiles {
            spec: self.spec_of(name, &folders)?,
            ..Default::default()
        };
        let (spec, usage) = (&mut read.spec, &mut read.usage);
        if folders.cpu.is_none()
            && let Some(root) = self.controllers.get("cpu")
        {
            return Err(missing(folder(root, name)));
        }
        let cpuacct = match (folders.cpuacct, self.controllers.get("cpuacct")) {
            (Some(cpuacct), _) => Some(cpuacct).filter(|_| folders.cpu.is_some()),
            (None, Some(root)) if folders.cpu.is_some() => return Err(missing(folder(root, name))),
            _ => None,
        };
        // The CPU time first: if a process runs while the rest is read, the next reading shows that it ran.
        if let Some(cpuacct) = &cpuacct {
            files.enter(cpuacct.clone());
            usage.cpu.total = files.required_number("cpuacct.usage")?;
        }
        if !all {
            // Nothing of these is shown, so nothing is read.
            spec.threads_max = self.controllers.get("pids").filter(|_| name != "/").map(|_| 0);
            spec.has_disk_io = self.controllers.contains_key("blkio");
        }
        if let Some(pids) = folders.pids {
            files.enter(pids);
            spec.threads_max = Some(files.number("pids.max")?.unwrap_or(0));
            read_threads(&mut files, spec, usage)?;
        }
        let before = wanted.before.filter(|_| cpuacct.is_some());
        let at_rest = before.and_then(|before| at_rest(before, spec, usage));
        read.at_rest = at_rest.is_some();
        match (cpuacct, at_rest) {
            (Some(_), Some(before)) => {
                (usage.cpu.user, usage.cpu.system) = (before.cpu.user, before.cpu.system);
            }
            (Some(cpuacct), None) if all => {
                files.enter(cpuacct);
                read_cpu_modes(&mut files, &mut usage.cpu)?;
            }
            _ => {}
        }
        if let Some(cpu) = folders.cpu {
            files.enter(cpu);
            spec.cpu = Some(match all {
                true => read_cpu_spec(&mut files)?,
                false => CpuSpec::default(),
            });
            if all {
                read_cpu(&mut files, spec.cpu, &mut usage.cpu)?;
            }
            if all || wanted.processes {
                read.processes = read_processes(&mut files)?;
            }
        }
        if let Some(memory) = folders.memory {
            files.enter(memory);
            let limits;
            (usage.memory, limits) = self.read_memory(&mut files, detail)?;
            spec.memory = Some(self.read_memory_spec(&mut files, limits, detail)?);
            match at_rest.filter(|before| before.memory.usage == usage.memory.usage) {
                Some(before) => {
                    usage.memory.max_usage = before.memory.max_usage;
                    usage.memory.failcnt = before.memory.failcnt;
                    usage.oom_events = before.oom_events;
                }
                None if all => read_memory_events(&mut files, usage)?,
                None => {}
            }
        }
        if let Some(blkio) = folders.blkio {
            files.enter(blkio);
            usage.disk_io = self.schedulers.read(&mut files, name == "/")?;
        }
        if let Some(root) = self
            .controllers
            .get("hugetlb")
            .filter(|_| spec.has_hugetlb && all)
        {
            usage.hugetlb = read_hugetlb(folder(root, name))?;
        }
        Ok(read)
    }

    fn cpu_time(&self, name: &str) -> Result<Option<u64>> {
        match (self.controllers.get("cpu"), self.controllers.get("cpuacct")) {
            (Some(_), Some(root)) => {
                let path = folder(root, name).join("cpuacct.usage");
                first_line(&path, parse).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn has_psi(&self) -> bool {
        false
    }
}

/// The smallest limit of a cgroup and of those above it; 0 if unknown.
#[derive(Clone, Copy, Default)]
struct InheritedLimits {
    memory: u64,
    /// Of memory and swap together.
    with_swap: u64,
}

/// The folders of a cgroup that exist and are needed.
struct Folders {
    cpu: Option<Opened>,
    cpuacct: Option<Opened>,
    memory: Option<Opened>,
    pids: Option<Opened>,
    blkio: Option<Opened>,
}

impl Folders {
    fn open(cgroups: &CgroupsV1, round: &mut Round, name: &str, detail: Detail) -> Self {
        let mut open = |controller: &str| round.open(cgroups.controllers.get(controller)?, name).ok();
        let all = detail == Detail::All;
        let cpu = open("cpu");
        // Most hosts have both in one hierarchy.
        let is_one = cgroups.controllers.get("cpu") == cgroups.controllers.get("cpuacct");
        Self {
            cpuacct: if is_one { cpu.clone() } else { open("cpuacct") },
            cpu,
            memory: open("memory"),
            // The controller has no files in the root.
            pids: if all && name != "/" { open("pids") } else { None },
            blkio: if all { open("blkio") } else { None },
        }
    }
}

impl CgroupsV1 {
    /// What the folders themselves show.
    fn spec_of(&self, name: &str, folders: &Folders) -> Result<Spec> {
        let inode = |opened: &Option<Opened>| opened.as_ref().and_then(Opened::inode);
        let Some(inode) = inode(&folders.cpu).or_else(|| inode(&folders.memory)) else {
            return Err(Error::NoCgroup {
                name: name.to_owned(),
            });
        };
        let at = |controller: &str| Some(folder(self.controllers.get(controller)?, name));
        let paths = self.controllers.values().map(|root| folder(root, name));
        Ok(Spec {
            has_disk_io: folders.blkio.is_some(),
            has_hugetlb: self.hugetlb && at("hugetlb").is_some_and(|path| path.exists()),
            creation_time: self.creation.get(name, inode, paths, "cgroup.clone_children"),
            ..Default::default()
        })
    }

    fn read_memory(&self, files: &mut Folder, detail: Detail) -> Result<(MemoryUsage, InheritedLimits)> {
        // Without hierarchy, the numbers of the cgroup alone count.
        let hierarchy = self.has_hierarchy() || files.required_number("memory.use_hierarchy")? == 1;
        let mut memory = MemoryUsage::default();
        let (mut rss, mut inactive) = (None, None);
        let mut limits = InheritedLimits::default();
        let read = files.numbers("memory.stat", |key, value| match (key, hierarchy) {
            ("total_cache", true) | ("cache", false) => memory.cache = value,
            ("total_rss", true) | ("rss", false) => rss = Some(value),
            ("total_swap", true) | ("swap", false) => memory.swap = value,
            ("total_mapped_file", true) | ("mapped_file", false) => memory.mapped_file = value,
            ("total_active_file", _) => memory.total_active_file = value,
            ("total_inactive_file", _) => inactive = Some(value),
            ("pgfault", _) => memory.pgfault = value,
            ("pgmajfault", _) => memory.pgmajfault = value,
            ("hierarchical_memory_limit", _) => limits.memory = value,
            ("hierarchical_memsw_limit", _) => limits.with_swap = value,
            _ => {}
        })?;
        // The file is missing, or only its beginning is there.
        let (Some(()), Some(rss), Some(inactive)) = (read, rss, inactive) else {
            return Err(match read {
                None => missing(files.path().join("memory.stat")),
                Some(()) => incomplete(files, "memory.stat"),
            });
        };
        memory.rss = rss;
        memory.total_inactive_file = inactive;
        memory.usage = files.required_number("memory.usage_in_bytes")?;
        if detail == Detail::All {
            memory.kernel = files.number("memory.kmem.usage_in_bytes")?.unwrap_or(0);
        }
        memory.working_set = memory.usage.saturating_sub(inactive);
        Ok((memory, limits))
    }

    /// A limit that the cgroup does not even inherit is none: its file need not be read.
    fn read_memory_spec(
        &self,
        files: &mut Folder,
        inherited: InheritedLimits,
        detail: Detail,
    ) -> Result<MemorySpec> {
        Ok(MemorySpec {
            limit: match inherited.memory {
                0..=UNLIMITED => files.number("memory.limit_in_bytes")?.unwrap_or(0),
                unlimited => unlimited,
            },
            swap_limit: match inherited.with_swap {
                unlimited if unlimited > UNLIMITED && self.limits_swap() => unlimited,
                _ => files.number("memory.memsw.limit_in_bytes")?.unwrap_or(0),
            },
            reservation: match detail {
                Detail::All => files.number("memory.soft_limit_in_bytes")?.unwrap_or(0),
                Detail::Summary => 0,
            },
        })
    }

    /// A kernel may write its limit in `memory.stat`, but have no file of it.
    fn limits_swap(&self) -> bool {
        let root = || self.controllers.get("memory");
        let exists = || root().is_some_and(|root| root.join("memory.memsw.limit_in_bytes").exists());
        *self.swap_limits.get_or_init(exists)
    }

    fn has_hierarchy(&self) -> bool {
        let read = || {
            let root = self.controllers.get("memory")?;
            first_line(&root.join("memory.use_hierarchy"), parse).ok()
        };
        *self.hierarchy.get_or_init(|| read() == Some(1))
    }
}

fn read_cpu_spec(files: &mut Folder) -> Result<CpuSpec> {
    Ok(CpuSpec {
        shares: files.number("cpu.shares")?.unwrap_or(0),
        period: files.number("cpu.cfs_period_us")?.unwrap_or(0),
        // Without a limit: -1.
        quota: files.number("cpu.cfs_quota_us")?.unwrap_or(0),
    })
}

fn read_processes(files: &mut Folder) -> Result<Vec<u32>> {
    let Some(text) = files.records("cgroup.procs")? else {
        return Err(missing(files.path().join("cgroup.procs")));
    };
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

fn read_threads(files: &mut Folder, spec: &Spec, usage: &mut CgroupUsage) -> Result<()> {
    usage.threads = files.required_number("pids.current")?;
    usage.threads_max = spec.threads_max.filter(|max| *max != u64::MAX).unwrap_or(0);
    Ok(())
}

/// What the use of memory led to.
fn read_memory_events(files: &mut Folder, usage: &mut CgroupUsage) -> Result<()> {
    usage.memory.max_usage = files.required_number("memory.max_usage_in_bytes")?;
    usage.memory.failcnt = files.required_number("memory.failcnt")?;
    files.numbers("memory.oom_control", |key, value| {
        if key == "oom_kill" {
            usage.oom_events = value;
        }
    })?;
    Ok(())
}

/// Without a quota nothing is throttled, and what was throttled before is not shown.
fn read_cpu(files: &mut Folder, spec: Option<CpuSpec>, cpu: &mut CpuUsage) -> Result<()> {
    if spec.is_none_or(|spec| spec.quota == 0) {
        return Ok(());
    }
    let read = files.numbers("cpu.stat", |key, value| match key {
        "nr_periods" => cpu.cfs.periods = value,
        "nr_throttled" => cpu.cfs.throttled_periods = value,
        "throttled_time" => cpu.cfs.throttled_time = value,
        _ => {}
    })?;
    match read {
        // A kernel without bandwidth control has no such file.
        None if !files.path().exists() => Err(missing(files.path().to_owned())),
        _ => Ok(()),
    }
}

/// CPU time in user and kernel mode.
fn read_cpu_modes(files: &mut Folder, cpu: &mut CpuUsage) -> Result<()> {
    let (mut user, mut system) = (None, None);
    let read = files.numbers("cpuacct.stat", |key, value| match key {
        "user" => user = Some(value),
        "system" => system = Some(value),
        _ => {}
    })?;
    let (Some(()), Some(user), Some(system)) = (read, user, system) else {
        return Err(match read {
            None => missing(files.path().join("cpuacct.stat")),
            Some(()) => incomplete(files, "cpuacct.stat"),
        });
    };
    cpu.user = user.saturating_mul(TICK);
    cpu.system = system.saturating_mul(TICK);
    Ok(())
}

fn read_hugetlb(path: PathBuf) -> Result<Vec<HugetlbUsage>> {
    let mut sizes = Vec::new();
    for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
        let file = entry.file_name();
        let size = file
            .to_str()
            .and_then(|file| file.strip_prefix("hugetlb.")?.strip_suffix(".usage_in_bytes"));
        sizes.extend(size.filter(|size| !size.contains('.')).map(str::to_owned));
    }
    sizes.sort();
    let mut files = Folder::new(path);
    let mut all = Vec::new();
    for page_size in sizes {
        let usage = HugetlbUsage {
            usage: files.required_number(&format!("hugetlb.{page_size}.usage_in_bytes"))?,
            max_usage: files.required_number(&format!("hugetlb.{page_size}.max_usage_in_bytes"))?,
            failcnt: files.required_number(&format!("hugetlb.{page_size}.failcnt"))?,
            page_size,
        };
        all.push(usage);
    }
    Ok(all)
}

fn incomplete(files: &Folder, file: &str) -> Error {
    Error::format(
        files.path().join(file),
        "a number that the kernel always writes is missing",
    )
}
