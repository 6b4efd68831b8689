//! The machine, from `/proc`, `/sys` and `/etc`.

mod devices;
mod topology;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use kubelet_core::Clock;

use super::MachineSource;
use crate::reading::{HugePages, Machine, SystemVersion};
use crate::{Error, Result};

/// The machine, from `/proc`, `/sys` and `/etc`.
pub struct HostMachine {
    root: PathBuf,
    clock: Clock,
}

impl HostMachine {
    /// The machine whose files are below `root`, usually `/`.
    pub fn new(root: impl Into<PathBuf>, clock: Clock) -> Self {
        Self {
            root: root.into(),
            clock,
        }
    }

    fn text(&self, file: &str) -> Option<String> {
        text(&self.root.join(file))
    }

    fn required(&self, file: &str) -> Result<String> {
        let path = self.root.join(file);
        std::fs::read_to_string(&path).map_err(|error| Error::read(path, error))
    }

    /// The first of these files that exists.
    fn first(&self, files: &[&str]) -> String {
        let found = files.iter().find_map(|file| self.text(file));
        found
            .unwrap_or_default()
            .trim_matches(['\n', ' ', '\0'])
            .to_owned()
    }
}

impl MachineSource for HostMachine {
    fn machine(&self) -> Result<Machine> {
        let cpuinfo = self.required("proc/cpuinfo")?;
        let meminfo = self.required("proc/meminfo")?;
        let capacity = |key: &str| {
            let line = meminfo
                .lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            let kib = line.and_then(|value| value.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
            let message = format!("{key} is missing, or no number of kB");
            kib.map(|kib| kib * 1024)
                .ok_or_else(|| Error::format(self.root.join("proc/meminfo"), message))
        };
        let cpus = self.root.join("sys/devices/system/cpu");
        let unique = |key: &str, file: &str| match unique_values(&cpuinfo, key) {
            0 => topology::unique_property(&cpus, file),
            found => found,
        };
        let (topology, cores) = topology::nodes(&self.root.join("sys/devices/system"));
        let is_mainframe = cfg!(target_arch = "s390x");
        Ok(Machine {
            timestamp: self.clock.now(),
            cpu_vendor_id: values(&cpuinfo, "vendor_id")
                .next()
                .unwrap_or_default()
                .to_owned(),
            cores: match cores {
                0 => values(&cpuinfo, "processor").count() as u64,
                cores => cores,
            },
            physical_cores: unique("core id", "core_id"),
            sockets: unique("physical id", "physical_package_id"),
            books: if is_mainframe {
                unique("book id", "book_id")
            } else {
                0
            },
            drawers: if is_mainframe {
                unique("drawer id", "drawer_id")
            } else {
                0
            },
            cpu_frequency_khz: self.frequency(&cpuinfo),
            memory_capacity: capacity("MemTotal")?,
            swap_capacity: capacity("SwapTotal")?,
            memory_by_type: devices::memory_by_type(&self.root.join("sys/devices/system/edac/mc")),
            huge_pages: huge_pages(&self.root.join("sys/kernel/mm/hugepages")),
            machine_id: self.first(&["etc/machine-id", "var/lib/dbus/machine-id"]),
            system_uuid: self.first(&[
                "sys/class/dmi/id/product_uuid",
                "proc/device-tree/system-id",
                "proc/device-tree/vm,uuid",
                "etc/machine-id",
            ]),
            boot_id: self.first(&["proc/sys/kernel/random/boot_id"]),
            topology,
            disks: devices::disks(&self.root.join("sys/block")),
            network_devices: devices::network_devices(&self.root.join("sys/class/net")),
        })
    }

    fn version(&self) -> SystemVersion {
        let kernel = self.first(&["proc/sys/kernel/osrelease"]);
        let release = self
            .text("etc/os-release")
            .or_else(|| self.text("usr/lib/os-release"));
        let name = release.as_deref().and_then(|text| {
            let value = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
            Some(value.trim_matches(['"', '\'']).to_owned())
        });
        SystemVersion {
            kernel,
            os: name.unwrap_or_else(|| "Unknown".to_owned()),
        }
    }
}

impl HostMachine {
    /// In kHz; 0 if unknown (`GetClockSpeed`).
    fn frequency(&self, cpuinfo: &str) -> u64 {
        let max = self.text("sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
        if let Some(khz) = max.and_then(|text| text.trim().parse().ok()) {
            return khz;
        }
        let mhz = ["cpu MHz", "CPU MHz", "clock"]
            .into_iter()
            .find_map(|key| values(cpuinfo, key).next())
            .and_then(|value| value.trim_end_matches("MHz").parse::<f64>().ok());
        mhz.map_or(0, |mhz| (mhz * 1000.0) as u64)
    }
}

/// The values of a key in `/proc/cpuinfo`.
fn values<'a>(cpuinfo: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    cpuinfo.lines().filter_map(move |line| {
        let (found, value) = line.split_once(':')?;
        (found.trim_end() == key).then(|| value.trim())
    })
}

fn unique_values(cpuinfo: &str, key: &str) -> u64 {
    values(cpuinfo, key).collect::<BTreeSet<_>>().len() as u64
}

/// The text of a file; `None` if it cannot be read.
fn text(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// The number in a file.
fn number<T: std::str::FromStr>(path: &Path) -> Option<T> {
    text(path)?.trim().parse().ok()
}

/// Folders such as `hugepages-2048kB` (`GetHugePagesInfo`).
fn huge_pages(folder: &Path) -> Vec<HugePages> {
    let mut pages: Vec<HugePages> = entries(folder)
        .into_iter()
        .filter_map(|(name, path)| {
            let page_size = name
                .strip_prefix("hugepages-")?
                .strip_suffix("kB")?
                .parse()
                .ok()?;
            let pages = number(&path.join("nr_hugepages"))?;
            Some(HugePages { page_size, pages })
        })
        .collect();
    pages.sort_by_key(|pages| pages.page_size);
    pages
}

/// The names and paths of a folder's entries, by name. Empty if it cannot be read.
fn entries(folder: &Path) -> Vec<(String, PathBuf)> {
    let mut entries: Vec<(String, PathBuf)> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .collect();
    entries.sort();
    entries
}
