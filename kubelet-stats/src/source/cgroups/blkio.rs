//! Disk I/O of cgroups of version 1.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::reading::{DeviceIo, DiskIo};
use crate::source::pseudo_file::{Folder, parse};
use crate::{Error, Result};

/// What the root cgroup shows counts for the cgroups that are read within this time after it.
const SAME_ROUND: Duration = Duration::from_secs(1);

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

/// The schedulers that count no I/O: they are not in use.
///
/// The kernel has an entry of each device in the root cgroup, and counts for all cgroups or for none. So a scheduler without a
/// device in the root cgroup has none in another one.
#[derive(Default)]
pub(super) struct Schedulers {
    /// So many groups of [`BLKIO`], from the first on, had no device in the root cgroup, and when it was read.
    unused: Mutex<Option<(Instant, usize)>>,
}

impl Schedulers {
    /// Reads a cgroup.
    pub(super) fn read(&self, files: &mut Folder, is_root: bool) -> Result<DiskIo> {
        if is_root {
            let now = Instant::now();
            let (io, unused) = read_from(files, 0)?;
            *self.unused.lock() = Some((now, unused));
            return Ok(io);
        }
        let known = self
            .unused
            .lock()
            .filter(|(read, _)| read.elapsed() <= SAME_ROUND);
        let (io, _) = read_from(files, known.map_or(0, |(_, unused)| unused))?;
        Ok(io)
    }
}

/// Reads the groups from this one on. Also returns how many groups before the first with a device are empty for sure.
fn read_from(files: &mut Folder, first: usize) -> Result<(DiskIo, usize)> {
    let mut io = DiskIo::default();
    let (mut unused, mut has_files, mut is_sure) = (0, false, true);
    for group in BLKIO.iter().skip(first) {
        for (index, (file, counter)) in group.iter().enumerate() {
            let devices = match read_devices(files, file) {
                Err(Error::Format { .. }) if index == 0 => {
                    is_sure = false;
                    None
                }
                devices => devices?,
            };
            has_files |= devices.is_some();
            let devices = devices.unwrap_or_default();
            match (devices.is_empty(), index) {
                (true, 0) => break,
                (true, _) => return Ok((io, unused)),
                (false, _) => *counter(&mut io) = devices,
            }
            if index + 1 == group.len() {
                return Ok((io, unused));
            }
        }
        unused += usize::from(is_sure);
    }
    // Without a single file, nothing is known.
    Ok((io, if has_files { unused } else { 0 }))
}

/// Lines such as `8:0 Read 124` or `8:0 6792`, and a total. `None` if there is no such file.
fn read_devices(files: &mut Folder, file: &str) -> Result<Option<Vec<DeviceIo>>> {
    let Some(text) = files.text(file)? else {
        return Ok(None);
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
        None => Ok(Some(devices.into_values().collect())),
        Some(line) => Err(Error::format(
            files.path().join(file),
            format!("unexpected line {line:?}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const NONE: &str = "Total 0\n";
    const SOME: &str = "8:0 Read 5\n8:0 Total 5\nTotal 5\n";

    /// A root and a cgroup with these counters, by name.
    fn tree(root: &[(&str, &str)], below: &[(&str, &str)]) -> tempfile::TempDir {
        let tree = tempfile::tempdir().unwrap();
        fs::create_dir(tree.path().join("below")).unwrap();
        for (folder, files) in [("", root), ("below", below)] {
            for (counter, text) in files {
                for kind in ["io_serviced", "io_service_bytes"] {
                    let file = format!("blkio.{counter}.{kind}_recursive");
                    fs::write(tree.path().join(folder).join(file), text).unwrap();
                }
            }
        }
        tree
    }

    fn devices(schedulers: &Schedulers, tree: &tempfile::TempDir, name: &str) -> usize {
        let mut files = Folder::new(tree.path().join(name));
        let io = schedulers.read(&mut files, name.is_empty()).unwrap();
        io.io_serviced.len()
    }

    #[test]
    fn a_scheduler_that_has_no_device_in_the_root_cgroup_is_not_read() {
        // No kernel shows this. It shows what is read.
        let tree = tree(
            &[("bfq", NONE), ("throttle", SOME)],
            &[("bfq", SOME), ("throttle", NONE)],
        );
        let schedulers = Schedulers::default();
        assert_eq!(devices(&schedulers, &tree, "below"), 1, "nothing is known");
        assert_eq!(devices(&schedulers, &tree, ""), 1);
        assert_eq!(devices(&schedulers, &tree, "below"), 0);
    }

    #[test]
    fn a_root_cgroup_that_shows_nothing_hides_nothing() {
        for root in [&[][..], &[("bfq", "x y z u v\n"), ("throttle", "x y z u v\n")]] {
            let tree = tree(root, &[("throttle", SOME)]);
            let schedulers = Schedulers::default();
            assert_eq!(devices(&schedulers, &tree, ""), 0);
            assert_eq!(devices(&schedulers, &tree, "below"), 1);
        }
    }
}
