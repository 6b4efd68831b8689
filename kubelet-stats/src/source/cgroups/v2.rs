//! Cgroups of version 2.

use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;
use kubelet_core::stats::{PsiData, PsiStats};

use super::at_rest::at_rest;
use super::creation::CreationTimes;
use super::round::Round;
use super::{folder, list_below};
use crate::reading::{CpuSpec, CpuUsage, DeviceIo, DiskIo, HugetlbUsage, MemorySpec, MemoryUsage, Spec};
use crate::source::pseudo_file::{Folder, first_line, missing, parse};
use crate::source::{CgroupFiles, CgroupUsage, Cgroups, Detail, Listed, Wanted};
use crate::{Error, Result};

/// `EOPNOTSUPP`: stalls are turned off (`psi=0`), or the cgroup is threaded.
const NOT_SUPPORTED: i32 = 95;

/// Cgroups of version 2: one hierarchy. As in cAdvisor, `failcnt` and `kernel` of memory are 0.
pub struct CgroupsV2 {
    root: PathBuf,
    proc: PathBuf,
    creation: CreationTimes,
    hugetlb: bool,
}

impl CgroupsV2 {
    /// The cgroups at the mountpoint `root`. The swap of the root cgroup is read in `proc`. `boot`: no cgroup counts as
    /// older.
    pub fn new(root: impl Into<PathBuf>, proc: &Path, boot: Option<Timestamp>) -> Self {
        Self {
            root: root.into(),
            proc: proc.to_owned(),
            creation: CreationTimes::new(boot),
            hugetlb: false,
        }
    }

    /// Also reads huge pages. The kubelet does not.
    #[must_use]
    pub fn with_hugetlb(mut self) -> Self {
        self.hugetlb = true;
        self
    }

    /// The root has no `memory.current` (`rootStatsFromMeminfo`).
    fn read_root_memory(&self, memory: &mut MemoryUsage) -> Result<()> {
        memory.usage = memory.rss.saturating_add(memory.cache);
        let mut files = Folder::new(self.proc.clone());
        let Some(text) = files.records("meminfo")? else {
            return Err(missing(self.proc.join("meminfo")));
        };
        let kib = |key: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            line.and_then(|value| parse(value.trim().trim_end_matches(" kB")))
                .unwrap_or(0)
        };
        memory.swap = kib("SwapTotal")
            .saturating_sub(kib("SwapFree"))
            .saturating_mul(1024);
        Ok(())
    }

    fn read_spec(&self, files: &mut Folder, name: &str, detail: Detail) -> Result<Spec> {
        let all = detail == Detail::All;
        let Some(inode) = files.inode() else {
            return Err(Error::NoCgroup {
                name: name.to_owned(),
            });
        };
        let path = std::iter::once(files.path().to_owned());
        let creation_time = self.creation.get(name, inode, path, "cgroup.events");
        let memory = match files.number("memory.max")? {
            None => None,
            Some(limit) => Some(MemorySpec {
                limit,
                reservation: match all {
                    true => files.number("memory.min")?.unwrap_or(0),
                    false => 0,
                },
                swap_limit: files.number("memory.swap.max")?.unwrap_or(0),
            }),
        };
        Ok(Spec {
            creation_time,
            cpu: Some(match all {
                true => read_cpu_spec(files)?,
                false => CpuSpec::default(),
            }),
            memory,
            threads_max: Some(match all {
                true => files.number("pids.max")?.unwrap_or(0),
                false => 0,
            }),
            has_hugetlb: self.hugetlb,
            has_disk_io: true,
            ..Default::default()
        })
    }

    /// Also returns whether no process has run since the reading before.
    fn read_usage(
        &self,
        files: &mut Folder,
        name: &str,
        spec: &Spec,
        wanted: Wanted<'_>,
    ) -> Result<(CgroupUsage, bool)> {
        let is_root = name == "/";
        let all = wanted.detail == Detail::All;
        // The CPU time first: if a process runs while the rest is read, the next reading shows that it ran.
        let mut usage = CgroupUsage {
            cpu: read_cpu(files, is_root)?,
            ..Default::default()
        };
        if all {
            (usage.threads, usage.threads_max) = keep_rest_of_root(is_root, read_threads(files))?;
        }
        let before = wanted.before.filter(|_| !is_root);
        let at_rest = before.and_then(|before| at_rest(before, spec, &usage));
        if let Some(mut memory) = read_memory(files)? {
            match files.number("memory.current")? {
                Some(current) => {
                    memory.usage = current;
                    memory.swap = files.number("memory.swap.current")?.unwrap_or(0);
                    match at_rest.filter(|before| before.memory.usage == current) {
                        Some(before) => {
                            memory.max_usage = before.memory.max_usage;
                            usage.oom_events = before.oom_events;
                        }
                        None if all => {
                            memory.max_usage = files.number("memory.peak")?.unwrap_or(0);
                            usage.oom_events = read_oom_kills(files)?;
                        }
                        None => {}
                    }
                }
                None if is_root => self.read_root_memory(&mut memory)?,
                None => return Err(missing(files.path().join("memory.current"))),
            }
            memory.working_set = memory.usage.saturating_sub(memory.total_inactive_file);
            usage.memory = memory;
        } else if spec.memory.is_some() && !is_root {
            return Err(Error::NoCgroup {
                name: name.to_owned(),
            });
        }
        if all {
            usage.disk_io = keep_rest_of_root(is_root, read_io(files))?;
        }
        usage.cpu.psi = keep_rest_of_root(is_root, read_psi(files, "cpu.pressure"))?;
        usage.memory.psi = keep_rest_of_root(is_root, read_psi(files, "memory.pressure"))?;
        usage.disk_io.psi = keep_rest_of_root(is_root, read_psi(files, "io.pressure"))?;
        if self.hugetlb && all {
            usage.hugetlb = keep_rest_of_root(is_root, read_hugetlb(files))?;
        }
        Ok((usage, at_rest.is_some()))
    }
}

impl Cgroups for CgroupsV2 {
    fn list(&self, root: &str) -> Result<Listed> {
        let mut listed = Listed::default();
        match list_below(&self.root, root, &mut listed) {
            Err(error) if !error.is_gone() => return Err(error),
            _ => {}
        }
        listed.names.sort_unstable();
        self.creation.retain(root, &listed.names);
        Ok(listed)
    }

    fn spec(&self, name: &str) -> Result<Spec> {
        let mut files = Folder::new(folder(&self.root, name));
        self.read_spec(&mut files, name, Detail::All)
    }

    fn usage(&self, name: &str, spec: &Spec) -> Result<CgroupUsage> {
        let mut files = Folder::new(folder(&self.root, name));
        let (usage, _) = self.read_usage(&mut files, name, spec, Wanted::default())?;
        Ok(usage)
    }

    fn processes(&self, name: &str) -> Result<Vec<u32>> {
        read_processes(&mut Folder::new(folder(&self.root, name)))
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
        let mut files = Folder::none();
        if let Ok(opened) = round.open(&self.root, name) {
            files.enter(opened);
        }
        let spec = self.read_spec(&mut files, name, wanted.detail)?;
        let (usage, at_rest) = self.read_usage(&mut files, name, &spec, wanted)?;
        Ok(CgroupFiles {
            usage,
            processes: match wanted.detail == Detail::All || wanted.processes {
                true => read_processes(&mut files)?,
                false => Vec::new(),
            },
            spec,
            at_rest,
        })
    }

    fn cpu_time(&self, name: &str) -> Result<Option<u64>> {
        let microseconds = |line: &str| parse(line.strip_prefix("usage_usec ")?);
        match first_line(&folder(&self.root, name).join("cpu.stat"), microseconds) {
            Ok(microseconds) => Ok(Some(microseconds.saturating_mul(1_000))),
            // Kernels before 5.x have no such file in the root.
            Err(error) if name == "/" && error.is_gone() => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn has_psi(&self) -> bool {
        self.root.join("cpu.pressure").exists()
    }
}

/// The number of threads, and its limit.
fn read_threads(files: &mut Folder) -> Result<(u64, u64)> {
    match files.number("pids.current")? {
        Some(current) => {
            let max = files.required_number("pids.max")?;
            Ok((current, if max == u64::MAX { 0 } else { max }))
        }
        // The root, or a cgroup without the controller.
        None => Ok((read_processes(files)?.len() as u64, 0)),
    }
}

fn read_processes(files: &mut Folder) -> Result<Vec<u32>> {
    match files.records("cgroup.procs") {
        Ok(Some(text)) => Ok(text.lines().filter_map(|line| line.parse().ok()).collect()),
        Ok(None) => Err(missing(files.path().join("cgroup.procs"))),
        Err(error) if is_unsupported(&error) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn read_cpu_spec(files: &mut Folder) -> Result<CpuSpec> {
    let weight = files.number("cpu.weight")?.unwrap_or(0);
    let (quota, period) = match files.text("cpu.max")? {
        None => (0, 0),
        Some(text) => {
            let parts = text.trim().split_once(' ').and_then(|(quota, period)| {
                let quota = if quota == "max" { 0 } else { parse(quota)? };
                Some((quota, parse(period)?))
            });
            let message = format!("{text:?} is no quota and period");
            parts.ok_or_else(|| Error::format(files.path().join("cpu.max"), message))?
        }
    };
    Ok(CpuSpec {
        shares: shares(weight),
        quota,
        period,
    })
}

/// Of the root cgroup, a file that cannot be read hides no other number: it counts as 0 (`GetStats`). CPU time and memory are
/// never 0 by mistake: eviction decides by them.
fn keep_rest_of_root<T: Default>(is_root: bool, read: Result<T>) -> Result<T> {
    match read {
        Err(error) if is_root => {
            tracing::warn!(%error, "read a file of the root cgroup");
            Ok(T::default())
        }
        read => read,
    }
}

/// A weight of 1 to 10000 as shares of 2 to 262144 (`convertCPUWeightToCPULimit`).
fn shares(weight: u64) -> u64 {
    match weight {
        1..=10_000 => 2 + (weight - 1) * 262_142 / 9_999,
        _ => 0,
    }
}

fn read_cpu(files: &mut Folder, is_root: bool) -> Result<CpuUsage> {
    let mut cpu = CpuUsage::default();
    let mut total = None;
    let read = files.numbers("cpu.stat", |key, value| {
        let nanoseconds = value.saturating_mul(1_000);
        match key {
            "usage_usec" => total = Some(nanoseconds),
            "user_usec" => cpu.user = nanoseconds,
            "system_usec" => cpu.system = nanoseconds,
            "nr_periods" => cpu.cfs.periods = value,
            "nr_throttled" => cpu.cfs.throttled_periods = value,
            "throttled_usec" => cpu.cfs.throttled_time = nanoseconds,
            "nr_bursts" => cpu.cfs.burst_periods = value,
            "burst_usec" => cpu.cfs.burst_time = nanoseconds,
            _ => {}
        }
    })?;
    match (read, total) {
        (Some(()), Some(total)) => cpu.total = total,
        (Some(()), None) => return Err(incomplete(files, "cpu.stat")),
        // Kernels before 5.x have none in the root.
        (None, _) if is_root => {}
        (None, _) => return Err(missing(files.path().join("cpu.stat"))),
    }
    Ok(cpu)
}

/// `None` if the controller is not enabled.
fn read_memory(files: &mut Folder) -> Result<Option<MemoryUsage>> {
    let mut memory = MemoryUsage::default();
    let (mut rss, mut inactive) = (None, None);
    let read = files.numbers("memory.stat", |key, value| match key {
        "file" => memory.cache = value,
        "anon" => rss = Some(value),
        "file_mapped" => memory.mapped_file = value,
        "active_file" => memory.total_active_file = value,
        "inactive_file" => inactive = Some(value),
        "pgfault" => memory.pgfault = value,
        "pgmajfault" => memory.pgmajfault = value,
        _ => {}
    })?;
    if read.is_none() {
        return Ok(None);
    }
    let (Some(rss), Some(inactive)) = (rss, inactive) else {
        return Err(incomplete(files, "memory.stat"));
    };
    memory.rss = rss;
    memory.total_inactive_file = inactive;
    Ok(Some(memory))
}

/// Where the kernel kills all processes of the cgroup together, that is one event; otherwise each process is one.
fn read_oom_kills(files: &mut Folder) -> Result<u64> {
    let (mut processes, mut groups) = (0, None);
    files.numbers("memory.events.local", |key, value| match key {
        "oom_kill" => processes = value,
        "oom_group_kill" => groups = Some(value),
        _ => {}
    })?;
    match groups {
        Some(groups) if files.number("memory.oom.group")? == Some(1) => Ok(groups),
        _ => Ok(processes),
    }
}

/// Lines such as `8:0 rbytes=90112 wbytes=299008 rios=8950 wios=1252 dbytes=0 dios=0`.
fn read_io(files: &mut Folder) -> Result<DiskIo> {
    let mut io = DiskIo::default();
    let Some(text) = files.text("io.stat")? else {
        return Ok(io);
    };
    let mut bad = None;
    for line in text.lines() {
        let mut fields = line.split_ascii_whitespace();
        let device = fields.next().and_then(|device| device.split_once(':'));
        let Some((Ok(major), Ok(minor))) = device.map(|(major, minor)| (major.parse(), minor.parse())) else {
            // A device without a number is shown as `(unknown)`.
            continue;
        };
        let new = DeviceIo {
            major,
            minor,
            ..Default::default()
        };
        let (mut bytes, mut operations) = (new.clone(), new);
        for field in fields {
            let Some((key, value)) = field.split_once('=') else {
                continue;
            };
            let (target, operation) = match key {
                "rbytes" => (&mut bytes, "Read"),
                "wbytes" => (&mut bytes, "Write"),
                "rios" => (&mut operations, "Read"),
                "wios" => (&mut operations, "Write"),
                _ => continue,
            };
            match parse(value) {
                Some(value) => target.set(operation, value),
                None => bad = Some(line.to_owned()),
            }
        }
        if !bytes.operations.is_empty() {
            io.io_service_bytes.push(bytes);
        }
        if !operations.operations.is_empty() {
            io.io_serviced.push(operations);
        }
    }
    if let Some(line) = bad {
        return Err(Error::format(
            files.path().join("io.stat"),
            format!("unexpected line {line:?}"),
        ));
    }
    let by_number = |a: &DeviceIo, b: &DeviceIo| (a.major, a.minor).cmp(&(b.major, b.minor));
    io.io_service_bytes.sort_by(by_number);
    io.io_serviced.sort_by(by_number);
    Ok(io)
}

/// Zero if the kernel does not report stalls.
fn read_psi(files: &mut Folder, file: &str) -> Result<PsiStats> {
    let text = match files.text(file) {
        Ok(Some(text)) => text,
        Ok(None) => return Ok(PsiStats::default()),
        Err(error) if is_unsupported(&error) => return Ok(PsiStats::default()),
        Err(error) => return Err(error),
    };
    let mut psi = PsiStats::default();
    for line in text.lines() {
        let data = match line.split_once(' ') {
            Some(("some", rest)) => Some((&mut psi.some, rest)),
            Some(("full", rest)) => Some((&mut psi.full, rest)),
            _ => None,
        };
        if let Some((target, rest)) = data {
            match psi_data(rest) {
                Some(data) => *target = data,
                None => {
                    let message = format!("unexpected line {line:?}");
                    return Err(Error::format(files.path().join(file), message));
                }
            }
        }
    }
    Ok(psi)
}

/// `avg10=0.00 avg60=0.21 avg300=0.08 total=300059`
fn psi_data(text: &str) -> Option<PsiData> {
    let mut data = PsiData::default();
    for field in text.split_ascii_whitespace() {
        let (key, value) = field.split_once('=')?;
        match key {
            "avg10" => data.avg10 = value.parse().ok()?,
            "avg60" => data.avg60 = value.parse().ok()?,
            "avg300" => data.avg300 = value.parse().ok()?,
            "total" => data.total = value.parse().ok()?,
            _ => {}
        }
    }
    Some(data)
}

fn read_hugetlb(files: &mut Folder) -> Result<Vec<HugetlbUsage>> {
    let mut sizes = Vec::new();
    for entry in std::fs::read_dir(files.path()).into_iter().flatten().flatten() {
        let file = entry.file_name();
        let size = file
            .to_str()
            .and_then(|file| file.strip_prefix("hugetlb.")?.strip_suffix(".current"));
        sizes.extend(size.filter(|size| !size.contains('.')).map(str::to_owned));
    }
    sizes.sort();
    let mut all = Vec::new();
    for page_size in sizes {
        let usage = match files.number(&format!("hugetlb.{page_size}.rsvd.current"))? {
            Some(reserved) => reserved,
            None => files.required_number(&format!("hugetlb.{page_size}.current"))?,
        };
        let mut failcnt = 0;
        files.numbers(&format!("hugetlb.{page_size}.events"), |key, value| {
            if key == "max" {
                failcnt = value;
            }
        })?;
        all.push(HugetlbUsage {
            page_size,
            usage,
            max_usage: 0,
            failcnt,
        });
    }
    Ok(all)
}

fn is_unsupported(error: &Error) -> bool {
    matches!(error, Error::Read { source, .. } if source.raw_os_error() == Some(NOT_SUPPORTED))
}

fn incomplete(files: &Folder, file: &str) -> Error {
    Error::format(
        files.path().join(file),
        "a number that the kernel always writes is missing",
    )
}
