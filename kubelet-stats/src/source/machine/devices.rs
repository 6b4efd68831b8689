//! Disks, network interfaces and memory modules, from `/sys`.

use std::collections::BTreeMap;
use std::path::Path;

use super::super::proc::is_ignored;
use super::{entries, number, text};
use crate::reading::{Disk, NetworkDevice};

/// Block devices (`GetBlockDeviceInfo`).
pub(super) fn disks(folder: &Path) -> Vec<Disk> {
    let is_disk = |name: &str| {
        !["loop", "ram", "sr"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
    };
    let disk = |(name, path): (String, std::path::PathBuf)| {
        if !is_disk(&name) || text(&path.join("hidden")).is_some_and(|hidden| hidden.trim() == "1") {
            return None;
        }
        let numbers = text(&path.join("dev"))?;
        let (major, minor) = numbers.trim().split_once(':')?;
        let blocks: u64 = number(&path.join("size"))?;
        let scheduler = text(&path.join("queue/scheduler")).and_then(|text| {
            // `none [mq-deadline] kyber`
            Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
        });
        Some(Disk {
            name,
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
            size: blocks.checked_mul(512)?,
            scheduler: scheduler.unwrap_or_else(|| "none".to_owned()),
        })
    };
    entries(folder).into_iter().filter_map(disk).collect()
}

/// Interfaces, without loopback and those of containers (`GetNetworkDevices`).
pub(super) fn network_devices(folder: &Path) -> Vec<NetworkDevice> {
    let device = |(name, path): (String, std::path::PathBuf)| {
        if is_ignored(&name) {
            return None;
        }
        Some(NetworkDevice {
            mac_address: text(&path.join("address"))?.trim().to_owned(),
            mtu: number(&path.join("mtu"))?,
            // Some devices have none.
            speed: number(&path.join("speed")).unwrap_or(0),
            name,
        })
    };
    entries(folder).into_iter().filter_map(device).collect()
}

/// Memory modules: type, bytes, number (`GetMachineMemoryByType`).
pub(super) fn memory_by_type(folder: &Path) -> Vec<(String, u64, u64)> {
    let mut types: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (_, controller) in entries(folder)
        .into_iter()
        .filter(|(name, _)| name.starts_with("mc"))
    {
        for (_, module) in entries(&controller)
            .into_iter()
            .filter(|(name, _)| name.starts_with("dimm"))
        {
            let kind = text(&module.join("dimm_mem_type"));
            let (Some(kind), Some(mib)) = (kind, number::<u64>(&module.join("size"))) else {
                continue;
            };
            let sum = types.entry(kind.trim().to_owned()).or_default();
            sum.0 += mib * 1024 * 1024;
            sum.1 += 1;
        }
    }
    types
        .into_iter()
        .map(|(kind, (bytes, modules))| (kind, bytes, modules))
        .collect()
}
