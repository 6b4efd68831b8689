//! Reads facts about a Linux machine (cAdvisor's `machine.Info`).

use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;

use super::{HugePages, MachineInfo, tmpfs};
use crate::{Error, Result};

/// Reads the machine whose files are below `host`.
pub(super) fn machine_info(host: &Path, root_dir: &Path) -> Result<MachineInfo> {
    let host = Host(host);
    let meminfo = host.read("proc/meminfo")?;
    let of_memory = |field: &str| kilobytes(&meminfo, field);
    let memory = of_memory("MemTotal:").ok_or_else(|| host.malformed("proc/meminfo", "no MemTotal"))?;
    let machine = MachineInfo {
        swap: of_memory("SwapTotal:").unwrap_or(0),
        huge_pages: host.huge_pages(),
        machine_id: host.first(&["etc/machine-id", "var/lib/dbus/machine-id"]),
        system_uuid: host.first(&[
            "sys/class/dmi/id/product_uuid",
            "proc/device-tree/system-id",
            "proc/device-tree/vm,uuid",
            "etc/machine-id",
        ]),
        boot_id: host.first(&["proc/sys/kernel/random/boot_id"]),
        ..MachineInfo::new(host.cpus()?, memory)
    };
    Ok(facts_of_host(machine, host.0, root_dir))
}

/// Adds what is not in cAdvisor's machine.
pub(super) fn facts_of_host(machine: MachineInfo, host: &Path, root_dir: &Path) -> MachineInfo {
    let host = Host(host);
    let kernel_version = host.known_or("proc/sys/kernel/osrelease", "Unknown");
    MachineInfo {
        tmpfs_may_be_swapped: machine.swap > 0 && !tmpfs::knows_noswap(&kernel_version, host.0, root_dir),
        max_pids: host.max_pids(),
        online_cpus: host.first(&["sys/devices/system/cpu/online"]),
        ephemeral_storage: storage(root_dir),
        root_dir: Some(root_dir.to_owned()),
        cgroup_version: host.cgroup_version(),
        boot_time: host.boot_time(),
        kernel_version,
        os_image: host.os_image(),
        ..machine
    }
}

/// The root folder of a host.
struct Host<'a>(&'a Path);

impl Host<'_> {
    fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    fn read(&self, file: &str) -> Result<String> {
        fs::read_to_string(self.path(file)).map_err(|source| Error::File {
            what: "read",
            file: self.path(file),
            source,
        })
    }

    fn malformed(&self, file: &str, why: &str) -> Error {
        Error::File {
            what: "read",
            file: self.path(file),
            source: io::Error::new(io::ErrorKind::InvalidData, why),
        }
    }

    /// The content of the first file that exists.
    fn first(&self, files: &[&str]) -> String {
        let found = files.iter().find_map(|file| fs::read(self.path(file)).ok());
        let text = String::from_utf8_lossy(&found.unwrap_or_default()).into_owned();
        text.trim_end_matches('\0').trim().to_owned()
    }

    fn known_or(&self, file: &str, otherwise: &str) -> String {
        match self.first(&[file]) {
            text if text.is_empty() => otherwise.to_owned(),
            text => text,
        }
    }

    fn cpus(&self) -> Result<u32> {
        const ONLINE: &str = "sys/devices/system/cpu/online";
        if let Ok(online) = self.read(ONLINE) {
            return count(&online).ok_or_else(|| self.malformed(ONLINE, "not a list of CPUs"));
        }
        let info = self.read("proc/cpuinfo")?;
        let cpus = info.lines().filter(|line| line.starts_with("processor")).count();
        Ok(u32::try_from(cpus).unwrap_or(u32::MAX).max(1))
    }

    fn huge_pages(&self) -> Vec<HugePages> {
        let folder = self.path("sys/kernel/mm/hugepages");
        let mut pages: Vec<HugePages> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .filter_map(|entry| huge_pages(&entry.ok()?.path()))
            .collect();
        pages.sort_by_key(|pages| pages.page_size);
        pages
    }

    /// (`IsCgroup2UnifiedMode`)
    fn cgroup_version(&self) -> Option<u8> {
        /// `CGROUP2_SUPER_MAGIC`
        const CGROUP2: u64 = 0x6367_7270;

        let mounted = rustix::fs::statfs(self.path("sys/fs/cgroup")).ok()?;
        Some(if mounted.f_type as u64 == CGROUP2 { 2 } else { 1 })
    }

    /// The lower of the two limits on tasks (`pidlimit.Stats`).
    fn max_pids(&self) -> Option<u64> {
        let files = ["proc/sys/kernel/pid_max", "proc/sys/kernel/threads-max"];
        files
            .iter()
            .filter_map(|file| self.first(&[file]).parse().ok())
            .min()
    }

    fn boot_time(&self) -> Option<Timestamp> {
        let stat = self.read("proc/stat").ok()?;
        let seconds = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
        Timestamp::from_second(seconds.trim().parse().ok()?).ok()
    }

    fn os_image(&self) -> String {
        let files = ["etc/os-release", "usr/lib/os-release"];
        let Some(release) = files.iter().find_map(|file| self.read(file).ok()) else {
            return "Unknown".to_owned();
        };
        let name = release.lines().find_map(|line| line.split_once("PRETTY_NAME="));
        name.map_or("Linux", |(_, name)| name.trim().trim_matches('"'))
            .to_owned()
    }
}

/// `hugepages-2048kB/nr_hugepages`
fn huge_pages(folder: &Path) -> Option<HugePages> {
    let size = folder
        .file_name()?
        .to_str()?
        .strip_prefix("hugepages-")?
        .strip_suffix("kB")?;
    let pages = fs::read_to_string(folder.join("nr_hugepages")).ok()?;
    Some(HugePages {
        page_size: size.parse::<u64>().ok()?.checked_mul(1024)?,
        pages: pages.trim().parse().ok()?,
    })
}

/// A value of `/proc/meminfo`, in bytes.
fn kilobytes(meminfo: &str, field: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(field))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

/// How many numbers a list such as `0-3,8` has.
fn count(list: &str) -> Option<u32> {
    cpu_ranges(list)?.into_iter().try_fold(0_u32, |count, range| {
        count.checked_add((range.end() - range.start()).checked_add(1)?)
    })
}

/// The ranges of a list such as `0-3,8`.
pub(super) fn cpu_ranges(list: &str) -> Option<Vec<RangeInclusive<u32>>> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = first.parse().ok()?..=last.parse().ok()?;
        (!range.is_empty()).then_some(range)
    };
    list.trim().split(',').map(range).collect()
}

/// Bytes of the file system of a folder that may not exist yet.
pub(super) fn storage(folder: &Path) -> Option<u64> {
    let folder = std::path::absolute(folder).ok()?;
    let there = folder.ancestors().find(|folder| folder.exists())?;
    let stat = rustix::fs::statvfs(there).ok()?;
    stat.f_blocks.checked_mul(stat.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let host = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = host.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        host
    }

    #[test]
    fn a_machine_is_read() {
        let host = host(&[
            (
                "proc/meminfo",
                "MemTotal:       24684100 kB\nMemFree: 1 kB\nSwapTotal:   1024 kB\n",
            ),
            ("sys/devices/system/cpu/online", "0-1,4\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "3\n"),
            ("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n"),
            ("etc/machine-id", "3d12\n"),
            ("proc/sys/kernel/random/boot_id", "3607\n"),
            ("proc/sys/kernel/osrelease", "6.18.44\n"),
            ("proc/sys/kernel/pid_max", "4194304\n"),
            ("proc/sys/kernel/threads-max", "192000\n"),
            ("proc/stat", "cpu 1 2\nbtime 1700000000\n"),
            (
                "etc/os-release",
                "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
            ),
        ]);
        let info = machine_info(host.path(), host.path()).unwrap();
        assert!(info.ephemeral_storage.is_some_and(|bytes| bytes > 0));
        let expected = MachineInfo {
            swap: 1024 * 1024,
            online_cpus: "0-1,4".into(),
            max_pids: Some(192_000),
            huge_pages: vec![
                HugePages {
                    page_size: 2 << 20,
                    pages: 3,
                },
                HugePages {
                    page_size: 1 << 30,
                    pages: 0,
                },
            ],
            ephemeral_storage: info.ephemeral_storage,
            root_dir: Some(host.path().to_owned()),
            machine_id: "3d12".into(),
            // The firmware reports none.
            system_uuid: "3d12".into(),
            boot_id: "3607".into(),
            boot_time: Some("2023-11-14T22:13:20Z".parse().unwrap()),
            kernel_version: "6.18.44".into(),
            os_image: "Debian GNU/Linux 12 (bookworm)".into(),
            ..MachineInfo::new(3, 24_684_100 * 1024)
        };
        assert_eq!(info, expected);
        assert!(info.check_swap(true).is_err() && info.check_swap(false).is_ok());
        assert!(MachineInfo::new(1, 1).check_swap(true).is_ok());
    }

    #[test]
    fn what_is_missing_is_empty_but_memory_and_cpus_must_be_known() {
        let bare = host(&[
            ("proc/meminfo", "MemTotal: 1 kB\n"),
            ("proc/cpuinfo", "processor : 0\nprocessor : 1\n"),
        ]);
        // The folder that pods write to does not exist yet.
        let info = machine_info(bare.path(), &bare.path().join("absent/too")).unwrap();
        assert!(info.ephemeral_storage.is_some_and(|bytes| bytes > 0));
        assert_eq!((info.cpus, info.memory), (2, 1024));
        assert_eq!(
            (info.kernel_version.as_str(), info.os_image.as_str()),
            ("Unknown", "Unknown")
        );
        for (files, what) in [
            (vec![("proc/meminfo", "MemFree: 1 kB\n")], "no MemTotal"),
            (vec![("proc/meminfo", "MemTotal: 1 kB\n")], "cpuinfo"),
            (
                vec![
                    ("proc/meminfo", "MemTotal: 1 kB\n"),
                    ("sys/devices/system/cpu/online", "1-0\n"),
                ],
                "not a list of CPUs",
            ),
        ] {
            let host = host(&files);
            let error = machine_info(host.path(), host.path()).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn reserved_cpus_must_be_online() {
        let mut machine = MachineInfo::new(4, 1);
        for reserved in ["", "0", "1-3", "3,0-1"] {
            machine.check_reserved_cpus(reserved).unwrap();
        }
        machine.online_cpus = "0-3,8".into();
        machine.check_reserved_cpus("3,8").unwrap();
        for reserved in ["4", "0-8", "8-9", "0-4294967295"] {
            let error = machine.check_reserved_cpus(reserved).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("reserved-cpus: {reserved} is not a subset of online-cpus: 0-3,8")
            );
        }
    }

    #[test]
    fn this_machine_is_read() {
        let info = MachineInfo::read(Path::new("/")).unwrap();
        assert!(
            info.cpus > 0 && info.memory > 0 && !info.boot_id.is_empty(),
            "{info:?}"
        );
    }
}
