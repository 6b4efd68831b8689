//! Processes, from `/proc`.

use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, RawDir, open, readlinkat_raw};
use rustix::io::Errno;

use super::Processes;
use super::pseudo_file::{Folder, missing};
use crate::reading::{Interface, NetworkUsage, Ulimit};
use crate::{Error, Result};

/// Interfaces of containers and loopback (`ignoredDevicePrefixes`).
const IGNORED: [&str; 4] = ["lo", "veth", "docker", "nerdctl"];

/// The interface is loopback, or belongs to a container.
pub(super) fn is_ignored(interface: &str) -> bool {
    let name = interface.to_ascii_lowercase();
    IGNORED.iter().any(|prefix| name.starts_with(prefix))
}

/// The processes of a host, from `/proc`.
pub struct ProcFs {
    root: PathBuf,
}

impl ProcFs {
    /// The processes at the mountpoint `root`, usually `/proc`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn process(&self, pid: u32) -> PathBuf {
        self.root.join(pid.to_string())
    }

    fn number(&self, file: &str) -> Option<i64> {
        let text = std::fs::read_to_string(self.root.join(file)).ok()?;
        text.trim().parse().ok()
    }
}

impl Processes for ProcFs {
    fn network(&self, pid: u32) -> Result<NetworkUsage> {
        let mut files = Folder::new(self.process(pid).join("net"));
        let path = files.path().join("dev");
        let Some(text) = files.records("dev")? else {
            return Err(missing(path));
        };
        let mut interfaces = Vec::new();
        for line in text.lines().skip(2) {
            let parsed = interface(line);
            let interface = parsed
                .ok_or_else(|| Error::format(&path, format!("invalid interface stats line: {line}")))?;
            if !is_ignored(&interface.name) {
                interfaces.push(interface);
            }
        }
        Ok(NetworkUsage {
            interfaces,
            ..Default::default()
        })
    }

    fn network_namespace(&self, pid: u32) -> Option<u64> {
        let link = std::fs::read_link(self.process(pid).join("ns/net")).ok()?;
        // `net:[4026531840]`
        let number = link.to_str()?.strip_prefix("net:[")?.strip_suffix(']')?;
        number.parse().ok()
    }

    fn open_files(&self, pid: u32) -> Result<(u64, u64)> {
        let path = self.process(pid).join("fd");
        let failed = |error: Errno| Error::read(&path, error.into());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open(&path, flags, Mode::empty()).map_err(failed)?;
        let (mut files, mut sockets) = (0, 0);
        let (mut entries, mut link) = ([MaybeUninit::uninit(); 4096], [MaybeUninit::uninit(); 16]);
        let mut entries = RawDir::new(&folder, &mut entries);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            if name.to_bytes().starts_with(b".") {
                continue;
            }
            files += 1;
            // Only the beginning of the target is needed.
            let target = readlinkat_raw(&folder, name, &mut link);
            if target.is_ok_and(|(target, _)| target.starts_with(b"socket")) {
                sockets += 1;
            }
        }
        Ok((files, sockets))
    }

    fn ulimits(&self, pid: u32) -> Result<Vec<Ulimit>> {
        let mut files = Folder::new(self.process(pid));
        let path = files.path().join("limits");
        let Some(text) = files.text("limits")? else {
            return Err(missing(path));
        };
        let line = text.lines().find_map(|line| line.strip_prefix("Max open files"));
        Ok(line.and_then(open_files_limit).into_iter().collect())
    }

    fn process_limits(&self) -> (Option<i64>, Option<i64>) {
        let max = match (
            self.number("sys/kernel/pid_max"),
            self.number("sys/kernel/threads-max"),
        ) {
            (Some(pids), Some(threads)) => Some(pids.min(threads)),
            (pids, threads) => pids.or(threads),
        };
        // `1.36 3.49 4.53 2/3518 3715089`: the number after the slash.
        let running = std::fs::read_to_string(self.root.join("loadavg"))
            .ok()
            .and_then(|text| {
                let threads = text.split_ascii_whitespace().nth(3)?.split_once('/')?.1;
                threads.parse().ok()
            });
        (max, running)
    }

    fn uptime(&self) -> Option<Duration> {
        let text = std::fs::read_to_string(self.root.join("uptime")).ok()?;
        let seconds = text.split(['.', ' ']).next()?.parse().ok()?;
        Some(Duration::from_secs(seconds))
    }
}

/// `eth0: 1086 13 0 0 0 0 0 0 682 9 0 0 0 0 0 0`; the name may touch the number.
fn interface(line: &str) -> Option<Interface> {
    let (name, numbers) = line.rsplit_once(':')?;
    let numbers: Vec<u64> = numbers
        .split_ascii_whitespace()
        .map(|number| number.parse().ok())
        .collect::<Option<_>>()?;
    let [rx_bytes, rx_packets, rx_errors, rx_dropped, _, _, _, _, sent @ ..] = numbers.as_slice() else {
        return None;
    };
    let [tx_bytes, tx_packets, tx_errors, tx_dropped, _, _, _, _] = sent else {
        return None;
    };
    Some(Interface {
        name: name.trim().to_owned(),
        rx_bytes: *rx_bytes,
        rx_packets: *rx_packets,
        rx_errors: *rx_errors,
        rx_dropped: *rx_dropped,
        tx_bytes: *tx_bytes,
        tx_packets: *tx_packets,
        tx_errors: *tx_errors,
        tx_dropped: *tx_dropped,
    })
}

/// Soft limit, hard limit, unit.
fn open_files_limit(text: &str) -> Option<Ulimit> {
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    let [soft, hard, _] = fields.as_slice() else {
        return None;
    };
    let limit = |text: &str| match text {
        "unlimited" => Some(-1),
        number => number.parse().ok(),
    };
    Some(Ulimit {
        name: "max_open_files",
        soft: limit(soft)?,
        hard: limit(hard)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_net_dev() {
        let eth0 = interface("  eth0:    1086      13    1    2    0     0          0         0      682       9    3    4    0     0       0          0").unwrap();
        assert_eq!(
            (eth0.name.as_str(), eth0.rx_bytes, eth0.tx_bytes),
            ("eth0", 1086, 682)
        );
        assert_eq!(
            (eth0.rx_errors, eth0.rx_dropped, eth0.tx_errors, eth0.tx_dropped),
            (1, 2, 3, 4)
        );
        assert_eq!(
            interface("eth0:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16")
                .unwrap()
                .tx_packets,
            10
        );
        assert_eq!(interface("eth0: 1 2 3"), None);
        assert_eq!(interface("eth0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"), None);
        assert_eq!(interface("eth0: x 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"), None);
    }

    #[test]
    fn limits() {
        let limit =
            open_files_limit("            20000                unlimited            files     ").unwrap();
        assert_eq!((limit.soft, limit.hard), (20000, -1));
        assert_eq!(open_files_limit("  x y files"), None);
    }
}
