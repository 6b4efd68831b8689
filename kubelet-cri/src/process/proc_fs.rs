//! Reads processes from `/proc`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rustix::process::Pid;

/// The needed fields of `/proc/<pid>/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) pid: i32,
    /// One letter; `Z` for a process that ended and was not reaped.
    state: u8,
    pub(super) group: i32,
    pub(super) session: i32,
    /// CPU time in clock ticks: its own, and that of its reaped children.
    pub(super) cpu_time: u64,
    /// In clock ticks since boot. Pid and start time together identify a process.
    pub(super) start_time: u64,
}

impl Stat {
    /// `None` if there is no such process.
    pub(super) fn of(pid: Pid) -> io::Result<Option<Self>> {
        match std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())) {
            Ok(line) => {
                let invalid = || io::Error::new(io::ErrorKind::InvalidData, format!("/proc stat: {line:?}"));
                Self::parse(&line).map(Some).ok_or_else(invalid)
            }
            // ESRCH: the process ended between open and read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The name is in parentheses and may contain spaces and parentheses. The fields begin after the last parenthesis.
    fn parse(line: &str) -> Option<Self> {
        let (before, after) = line.rsplit_once(')')?;
        let fields: Vec<&str> = after.split_ascii_whitespace().collect();
        Some(Self {
            pid: before.split_once(' ')?.0.parse().ok()?,
            state: *fields.first()?.as_bytes().first()?,
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            cpu_time: fields
                .get(11..15)?
                .iter()
                .try_fold(0_u64, |sum, ticks| Some(sum.saturating_add(ticks.parse().ok()?)))?,
            start_time: fields.get(19)?.parse().ok()?,
        })
    }

    /// Whether it has not ended yet.
    pub(super) fn is_alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// All processes that can be seen.
pub(super) fn all() -> io::Result<impl Iterator<Item = Stat>> {
    Ok(pids()?.filter_map(|pid| Stat::of(pid).ok().flatten()))
}

/// How many private pages of memory a process has (`/proc/<pid>/statm`), without mapped files, and how many with them. None
/// if it has ended.
pub(super) fn pages(pid: i32) -> (u64, u64) {
    let line = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let mut fields = line
        .split_ascii_whitespace()
        .map(|field| field.parse::<u64>().unwrap_or(0));
    let (resident, shared) = (fields.nth(1).unwrap_or(0), fields.next().unwrap_or(0));
    (resident.saturating_sub(shared), resident)
}

/// Leaders of process groups whose standard output or standard error is one of these files.
pub(super) fn writers_of(files: &[&Path]) -> io::Result<Vec<Stat>> {
    let writes = |pid: &Pid| {
        [1, 2].iter().any(|fd| {
            let target = std::fs::read_link(format!("/proc/{}/fd/{fd}", pid.as_raw_pid()));
            target.is_ok_and(|target| files.contains(&target.as_path()))
        })
    };
    let leaders = pids()?
        .filter(writes)
        .filter_map(|pid| Stat::of(pid).ok().flatten());
    Ok(leaders
        .filter(|stat| stat.is_alive() && stat.group == stat.pid)
        .collect())
}

fn pids() -> io::Result<impl Iterator<Item = Pid>> {
    let entries = std::fs::read_dir("/proc")?;
    Ok(entries.filter_map(|entry| Pid::from_raw(entry.ok()?.file_name().to_str()?.parse().ok()?)))
}

/// The environment that a process was started with.
pub(super) fn environment(pid: Pid) -> io::Result<Vec<(OsString, OsString)>> {
    let bytes = std::fs::read(format!("/proc/{}/environ", pid.as_raw_pid()))?;
    let variables = bytes.split(|byte| *byte == 0).filter_map(|variable| {
        let at = variable.iter().position(|byte| *byte == b'=')?;
        let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Some((text(&variable[..at]), text(&variable[at + 1..])))
    });
    Ok(variables.collect())
}

/// Identifies the boot and the pid namespace. Pids of another one have no meaning here.
pub(super) fn world() -> io::Result<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let namespace = std::fs::read_link("/proc/self/ns/pid")?;
    Ok(format!("{} {}", boot.trim(), namespace.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_contain_anything() {
        let line = "42 (a) b (c) S 1 40 39 0 -1 4194304 1 0 0 0 1 20 300 4000 20 0 1 0 777 1000 10 0 0";
        let stat = Stat::parse(line).unwrap();
        assert_eq!(
            (stat.pid, stat.group, stat.session, stat.start_time),
            (42, 40, 39, 777)
        );
        assert_eq!(stat.cpu_time, 4321);
        assert!(stat.is_alive());
        assert_eq!(Stat::parse("42 (a"), None);
        assert_eq!(Stat::parse("42 (a) S 1"), None);
    }

    #[test]
    fn this_process_is_seen() {
        let me = Stat::of(rustix::process::getpid()).unwrap().unwrap();
        assert!(
            all()
                .unwrap()
                .any(|stat| stat.pid == me.pid && stat.start_time == me.start_time)
        );
        let (own, resident) = pages(me.pid);
        assert!(own > 0 && own <= resident);
        assert!(world().unwrap().contains("pid:["));
    }
}
