//! The table of mounts, and the counters of disks.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::reading::IoCounters;

/// A mounted file system (`partition`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) device: String,
    pub(super) mountpoint: PathBuf,
    pub(super) kind: String,
    pub(super) major: u64,
    pub(super) minor: u64,
}

impl Mount {
    pub(super) fn is_nfs(&self) -> bool {
        self.kind.starts_with("nfs")
    }

    /// The table shows another number than the files have (`GetBtrfsMajorMinorIds`).
    pub(super) fn has_other_number(&self) -> bool {
        self.kind == "btrfs" && self.major == 0 && self.device.starts_with("/dev/")
    }
}

/// The file systems with a device of their own, one for each device, by device (`processMounts`). The root file system is
/// among them, whatever its type.
pub(super) fn mounts(mountinfo: &str) -> Vec<Mount> {
    let mut found: Vec<Mount> = Vec::new();
    for mut mount in mountinfo.lines().filter_map(parse) {
        let is_root = mount.mountpoint == Path::new("/");
        if !is_root && !is_supported(&mount.kind) {
            continue;
        }
        match mount.kind.as_str() {
            "tmpfs" => mount.device = mount.mountpoint.to_string_lossy().into_owned(),
            "overlay" if !is_root => {
                mount.device = format!("{}_{}-{}", mount.device, mount.major, mount.minor);
            }
            _ => {}
        }
        match found.iter_mut().find(|known| known.device == mount.device) {
            // A bind mount, except that the root counts.
            Some(known) if is_root => *known = mount,
            Some(_) => {}
            None => found.push(mount),
        }
    }
    found.sort_by(|a, b| a.device.cmp(&b.device));
    found
}

/// The types that cAdvisor has a plugin for.
fn is_supported(kind: &str) -> bool {
    const KINDS: [&str; 18] = [
        "xfs", "squashfs", "f2fs", "jfs", "reiserfs", "hfs", "hfsplus", "ntfs", "vfat", "fat", "msdos",
        "exfat", "udf", "iso9660", "overlay", "tmpfs", "btrfs", "zfs",
    ];
    kind.starts_with("ext") || kind.starts_with("nfs") || KINDS.contains(&kind)
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`
pub(super) fn parse(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let (major, minor) = left.get(2)?.split_once(':')?;
    let mut right = right.split(' ');
    Some(Mount {
        mountpoint: PathBuf::from(unescape(left.get(4)?)),
        kind: right.next()?.to_owned(),
        device: unescape(right.next()?),
        major: major.parse().ok()?,
        minor: minor.parse().ok()?,
    })
}

/// The kernel writes a space as `\040`.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

/// The counters of disks and partitions by device number (`getDiskStatsMap`).
pub(super) fn disk_stats(diskstats: &str) -> HashMap<(u64, u64), IoCounters> {
    let mut found = HashMap::new();
    for line in diskstats.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (Some(major), Some(minor), Some(name)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let (Ok(major), Ok(minor)) = (major.parse(), minor.parse()) else {
            continue;
        };
        if !is_partition(name) {
            continue;
        }
        let numbers: Option<Vec<u64>> = fields.map(|field| field.parse().ok()).collect();
        let numbers = numbers.unwrap_or_default();
        let [a, b, c, d, e, f, g, h, i, j, k, ..] = numbers.as_slice() else {
            continue;
        };
        let counters = IoCounters {
            reads_completed: *a,
            reads_merged: *b,
            sectors_read: *c,
            read_time: *d,
            writes_completed: *e,
            writes_merged: *f,
            sectors_written: *g,
            write_time: *h,
            io_in_progress: *i,
            io_time: *j,
            weighted_io_time: *k,
        };
        found.insert((major, minor), counters);
    }
    found
}

/// `sda`, `vda1`, `xvdb`, `dm-0` (`partitionRegex`).
fn is_partition(name: &str) -> bool {
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(number) = name.strip_prefix("dm-") {
        return !number.is_empty() && is_number(number);
    }
    let rest = ["sd", "vd", "xvd"]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix));
    rest.is_some_and(|rest| {
        let number = rest.trim_start_matches(|letter: char| letter.is_ascii_lowercase());
        number.len() < rest.len() && is_number(number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_mount_of_each_device() {
        let table = "\
20 1 254:0 / / rw - ext4 /dev/vda rw
21 20 254:0 /x /var/lib/x rw - ext4 /dev/vda rw
22 20 0:21 / /proc rw - proc proc rw
23 20 0:22 / /dev/shm rw - tmpfs tmpfs rw
24 20 0:23 / /run rw - tmpfs tmpfs rw
25 20 0:50 / /run/c/rootfs rw - overlay overlay rw
26 20 254:16 / /mnt/a\\040b rw - xfs /dev/vdb rw
";
        let found: Vec<(String, PathBuf)> = mounts(table)
            .into_iter()
            .map(|mount| (mount.device, mount.mountpoint))
            .collect();
        let at = |device: &str, path: &str| (device.to_owned(), PathBuf::from(path));
        assert_eq!(
            found,
            [
                at("/dev/shm", "/dev/shm"),
                at("/dev/vda", "/"),
                at("/dev/vdb", "/mnt/a b"),
                at("/run", "/run"),
                at("overlay_0-50", "/run/c/rootfs"),
            ]
        );
    }

    #[test]
    fn counters_of_partitions() {
        let text =
            " 254 0 vda 1 2 3 4 5 6 7 8 9 10 11 0 0\n 7 0 loop0 1 2 3 4 5 6 7 8 9 10 11\n 254 1 vda1 x\n";
        let found = disk_stats(text);
        assert_eq!(found.len(), 1);
        assert_eq!(found[&(254, 0)].weighted_io_time, 11);
        assert!(is_partition("xvda12") && is_partition("dm-3"));
        assert!(!is_partition("nvme0n1") && !is_partition("sd") && !is_partition("vda1b"));
    }
}
