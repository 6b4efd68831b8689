//! Cgroups of version 1.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;

use super::creation::CreationTimes;
use super::{folder, list_below, mounts};
use crate::reading::{CpuSpec, CpuUsage, DeviceIo, DiskIo, HugetlbUsage, MemorySpec, MemoryUsage, Spec};
use crate::source::pseudo_file::{Folder, missing, parse};
use crate::source::{CgroupUsage, Cgroups, Listed};
use crate::{Error, Result};

/// The kernel counts in this unit (`clockTicks`), in nanoseconds.
const TICK: u64 = 10_000_000;

/// Cgroups of version 1: a hierarchy for each controller.
pub struct CgroupsV1 {
    controllers: BTreeMap<&'static str, PathBuf>,
    creation: CreationTimes,
    hugetlb: bool,
}

impl CgroupsV1 {
    /// The cgroups at these mountpoints: `cpu`, `cpuacct`, `memory`, `pids`, `blkio`, `hugetlb`, as far as there
    /// are. `boot`: no cgroup counts as older.
    pub fn new(controllers: BTreeMap<&'static str, PathBuf>, boot: Option<Timestamp>) -> Self {
        Self {
            controllers,
            creation: CreationTimes::new(boot),
            hugetlb: false,
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
        for controller in ["cpu", "memory"] {
            let Some(mountpoint) = self.controllers.get(controller) else {
                continue;
            };
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
        let mut files = Folder::none();
        let mut inode = None;
        let mut spec = Spec::default();
        let at = |controller: &str| Some(folder(self.controllers.get(controller)?, name));
        if at("cpu").is_some_and(|path| files.open(path)) {
            inode = files.inode();
            spec.cpu = Some(CpuSpec {
                shares: files.number("cpu.shares")?.unwrap_or(0),
                period: files.number("cpu.cfs_period_us")?.unwrap_or(0),
                // Without a limit: -1.
                quota: files.number("cpu.cfs_quota_us")?.unwrap_or(0),
            });
        }
        if at("memory").is_some_and(|path| files.open(path)) {
            inode = inode.or_else(|| files.inode());
            spec.memory = Some(MemorySpec {
                limit: files.number("memory.limit_in_bytes")?.unwrap_or(0),
                swap_limit: files.number("memory.memsw.limit_in_bytes")?.unwrap_or(0),
                reservation: files.number("memory.soft_limit_in_bytes")?.unwrap_or(0),
            });
        }
        // The controller has no files in the root.
        if name != "/" && at("pids").is_some_and(|path| files.open(path)) {
            spec.threads_max = Some(files.number("pids.max")?.unwrap_or(0));
        }
        let Some(inode) = inode else {
            return Err(Error::NoCgroup {
                name: name.to_owned(),
            });
        };
        spec.has_disk_io = at("blkio").is_some_and(|path| path.exists());
        spec.has_hugetlb = self.hugetlb && at("hugetlb").is_some_and(|path| path.exists());
        let folders = self.controllers.values().map(|root| folder(root, name));
        spec.creation_time = self.creation.get(name, inode, folders, "cgroup.clone_children");
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
            read_cpu(&mut files, path, &mut usage.cpu)?;
        }
        if let Some(path) = at("cpuacct", spec.cpu.is_some()) {
            read_cpuacct(&mut files, path, &mut usage.cpu)?;
        }
        if let Some(path) = at("memory", spec.memory.is_some()) {
            files.open(path);
            usage.memory = read_memory(&mut files)?;
            files.numbers("memory.oom_control", |key, value| {
                if key == "oom_kill" {
                    usage.oom_events = value;
                }
            })?;
        }
        if let Some(path) = at("pids", spec.threads_max.is_some()) {
            files.open(path);
            usage.threads = files.required_number("pids.current")?;
            usage.threads_max = spec.threads_max.filter(|max| *max != u64::MAX).unwrap_or(0);
        }
        if let Some(path) = at("blkio", spec.has_disk_io) {
            files.open(path);
            usage.disk_io = read_blkio(&mut files)?;
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
        let mut files = Folder::new(folder(root, name));
        let Some(text) = files.text("cgroup.procs")? else {
            return Err(missing(files.path().join("cgroup.procs")));
        };
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    fn has_psi(&self) -> bool {
        false
    }
}

fn read_cpu(files: &mut Folder, path: PathBuf, cpu: &mut CpuUsage) -> Result<()> {
    files.open(path);
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

fn read_cpuacct(files: &mut Folder, path: PathBuf, cpu: &mut CpuUsage) -> Result<()> {
    files.open(path);
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
    cpu.total = files.required_number("cpuacct.usage")?;
    Ok(())
}

fn read_memory(files: &mut Folder) -> Result<MemoryUsage> {
    // Without hierarchy, the numbers of the cgroup alone count.
    let hierarchy = files.required_number("memory.use_hierarchy")? == 1;
    let mut memory = MemoryUsage::default();
    let (mut rss, mut inactive) = (None, None);
    let read = files.numbers("memory.stat", |key, value| match (key, hierarchy) {
        ("total_cache", true) | ("cache", false) => memory.cache = value,
        ("total_rss", true) | ("rss", false) => rss = Some(value),
        ("total_swap", true) | ("swap", false) => memory.swap = value,
        ("total_mapped_file", true) | ("mapped_file", false) => memory.mapped_file = value,
        ("total_active_file", _) => memory.total_active_file = value,
        ("total_inactive_file", _) => inactive = Some(value),
        ("pgfault", _) => memory.pgfault = value,
        ("pgmajfault", _) => memory.pgmajfault = value,
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
    memory.max_usage = files.required_number("memory.max_usage_in_bytes")?;
    memory.failcnt = files.required_number("memory.failcnt")?;
    memory.kernel = files.number("memory.kmem.usage_in_bytes")?.unwrap_or(0);
    memory.working_set = memory.usage.saturating_sub(inactive);
    Ok(memory)
}

/// A file of disk I/O, and the counter that it is for.
type BlkioFile = (&'static str, fn(&mut DiskIo) -> &mut Vec<DeviceIo>);

/// Files of the I/O schedulers, by preference: the first group whose first file has a device counts (`BlkioGroup.GetStats`).
const BLKIO: [&[BlkioFile]; 5] = [
    &[
        ("blkio.bfq.sectors_recursive", |io| &mut io.sectors),
        ("blkio.bfq.io_service_time_recursive", |io| {
            &mut io.io_service_time
        }),
        ("blkio.bfq.io_wait_time_recursive", |io| &mut io.io_wait_time),
        ("blkio.bfq.io_merged_recursive", |io| &mut io.io_merged),
        ("blkio.bfq.io_queued_recursive", |io| &mut io.io_queued),
        ("blkio.bfq.time_recursive", |io| &mut io.io_time),
        ("blkio.bfq.io_serviced_recursive", |io| &mut io.io_serviced),
        ("blkio.bfq.io_service_bytes_recursive", |io| {
            &mut io.io_service_bytes
        }),
    ],
    &[
        ("blkio.bfq.io_serviced_recursive", |io| &mut io.io_serviced),
        ("blkio.bfq.io_service_bytes_recursive", |io| {
            &mut io.io_service_bytes
        }),
    ],
    &[
        ("blkio.sectors_recursive", |io| &mut io.sectors),
        ("blkio.io_service_time_recursive", |io| &mut io.io_service_time),
        ("blkio.io_wait_time_recursive", |io| &mut io.io_wait_time),
        ("blkio.io_merged_recursive", |io| &mut io.io_merged),
        ("blkio.io_queued_recursive", |io| &mut io.io_queued),
        ("blkio.time_recursive", |io| &mut io.io_time),
        ("blkio.io_serviced_recursive", |io| &mut io.io_serviced),
        ("blkio.io_service_bytes_recursive", |io| &mut io.io_service_bytes),
    ],
    &[
        ("blkio.throttle.io_serviced_recursive", |io| &mut io.io_serviced),
        ("blkio.throttle.io_service_bytes_recursive", |io| {
            &mut io.io_service_bytes
        }),
    ],
    &[
        ("blkio.throttle.io_serviced", |io| &mut io.io_serviced),
        ("blkio.throttle.io_service_bytes", |io| &mut io.io_service_bytes),
    ],
];

fn read_blkio(files: &mut Folder) -> Result<DiskIo> {
    let mut io = DiskIo::default();
    for group in BLKIO {
        for (index, (file, counter)) in group.iter().enumerate() {
            let devices = match read_devices(files, file) {
                Err(Error::Format { .. }) if index == 0 => Vec::new(),
                devices => devices?,
            };
            match (devices.is_empty(), index) {
                (true, 0) => break,
                (true, _) => return Ok(io),
                (false, _) => *counter(&mut io) = devices,
            }
            if index + 1 == group.len() {
                return Ok(io);
            }
        }
    }
    Ok(io)
}

/// Lines such as `8:0 Read 124` or `8:0 6792`, and a total.
fn read_devices(files: &mut Folder, file: &str) -> Result<Vec<DeviceIo>> {
    let Some(text) = files.text(file)? else {
        return Ok(Vec::new());
    };
    let mut devices: BTreeMap<(u64, u64), DeviceIo> = BTreeMap::new();
    let mut bad = None;
    for line in text.lines() {
        let fields: Vec<&str> = line.split([' ', ':']).filter(|field| !field.is_empty()).collect();
        let (major, minor, operation, value) = match fields.as_slice() {
            ["Total", _] => continue,
            [major, minor, value] => (major, minor, "Count", value),
            [major, minor, operation, value] => (major, minor, *operation, value),
            _ => {
                bad = Some(line.to_owned());
                break;
            }
        };
        let (Ok(major), Ok(minor), Some(value)) = (major.parse(), minor.parse(), parse(value)) else {
            bad = Some(line.to_owned());
            break;
        };
        let device = devices.entry((major, minor)).or_insert_with(|| DeviceIo {
            major,
            minor,
            ..Default::default()
        });
        device.set(operation, value);
    }
    match bad {
        None => Ok(devices.into_values().collect()),
        Some(line) => Err(Error::format(
            files.path().join(file),
            format!("unexpected line {line:?}"),
        )),
    }
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
