//! Which paths hang together: those on one mount.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::mounts::{Mount, parse};

/// All mounts, by mountpoint.
pub(super) struct Places(HashMap<PathBuf, Mount>);

impl Places {
    /// The mounts of a `mountinfo`. Of several at one mountpoint, the last one is seen.
    pub(super) fn of(mountinfo: &str) -> Self {
        let mounts = mountinfo.lines().filter_map(parse);
        Self(mounts.map(|mount| (mount.mountpoint.clone(), mount)).collect())
    }

    /// The mount that contains the path. It does not follow links: the file system would have to be asked.
    fn mount(&self, path: &Path) -> Option<&Mount> {
        path.ancestors().find_map(|above| self.0.get(above))
    }

    /// The path is on a device of this machine.
    pub(super) fn is_disk(&self, path: &Path) -> bool {
        let is_disk = |mount: &Mount| mount.device.starts_with("/dev/") || mount.mountpoint == Path::new("/");
        self.mount(path).is_none_or(is_disk)
    }

    /// If `stuck` does not answer, neither does `path`.
    ///
    /// A path on the root device that hangs is a link to somewhere else: it stands for itself and what is below it.
    pub(super) fn hang_together(&self, stuck: &Path, path: &Path) -> bool {
        if path.starts_with(stuck) {
            return true;
        }
        let number = |mount: &Mount| (mount.major, mount.minor);
        let device = self.mount(stuck).map(number);
        let root = self.0.get(Path::new("/")).map(number);
        device.is_some() && device != root && device == self.mount(path).map(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_on_one_device_hang_together() {
        let places = Places::of(
            "1 0 1:1 / / rw - ext4 /dev/vda rw\n2 1 0:45 / /mnt rw - nfs4 server:/x rw\n\
             3 1 0:45 /y /other rw - nfs4 server:/x/y rw\n4 1 1:2 / /data rw - xfs /dev/vdb rw\n",
        );
        let together = |a: &str, b: &str| places.hang_together(Path::new(a), Path::new(b));
        assert!(together("/mnt/a", "/mnt/b") && together("/mnt/a", "/other/b"));
        assert!(together("/data/a", "/data/b") && !together("/data/a", "/mnt/b"));
        assert!(!together("/a", "/b") && together("/a", "/a/b"));
        assert!(places.is_disk(Path::new("/data/x")) && !places.is_disk(Path::new("/mnt/x")));
    }
}
