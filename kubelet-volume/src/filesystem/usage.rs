//! How much of its file system a volume uses (`metrics_du.go`, `metrics_statfs.go`, `util/fs`).

use std::collections::HashSet;
use std::io;
use std::path::Path;

use kubelet_core::VolumeUsage;
use rustix::fs::{AtFlags, CWD, FileType, statat};

use super::walk::{Content, Progress, walk};

/// The usage of the file system that the path is on (`fs.Info`).
pub(crate) fn of_file_system(path: &Path) -> io::Result<VolumeUsage> {
    let found = rustix::fs::statfs(path)?;
    let size = u64::try_from(found.f_bsize).unwrap_or_default();
    let bytes = |blocks: u64| Some(blocks.saturating_mul(size));
    let mut usage = VolumeUsage::default();
    usage.available_bytes = bytes(found.f_bavail);
    usage.capacity_bytes = bytes(found.f_blocks);
    usage.used_bytes = bytes(found.f_blocks.saturating_sub(found.f_bfree));
    usage.inodes = Some(found.f_files);
    usage.inodes_free = Some(found.f_ffree);
    usage.inodes_used = Some(found.f_files.saturating_sub(found.f_ffree));
    Ok(usage)
}

/// The usage of the file system, but with the bytes and inodes of the files below the folder (`fs.DiskUsage`). Other
/// file systems that are mounted below it do not count. A file with several names counts once.
pub(crate) fn of_files(dir: &Path, progress: &Progress) -> io::Result<VolumeUsage> {
    const BLOCK: u64 = 512;
    let top = statat(CWD, dir, AtFlags::SYMLINK_NOFOLLOW)?;
    let blocks = |blocks: i64| u64::try_from(blocks).unwrap_or_default();
    let (mut used, mut inodes) = (blocks(top.st_blocks), 1u64);
    let mut seen = HashSet::new();
    walk(dir, progress, |found| {
        let stat = &found.stat;
        if stat.st_dev != top.st_dev {
            return Ok(Content::Skip);
        }
        let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if is_dir || stat.st_nlink < 2 || seen.insert(stat.st_ino) {
            used += blocks(stat.st_blocks);
            inodes += 1;
        }
        Ok(Content::Visit)
    })?;
    let mut usage = of_file_system(dir)?;
    usage.used_bytes = Some(used * BLOCK);
    usage.inodes_used = Some(inodes);
    Ok(usage)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_count_once_and_links_as_themselves() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let dir = root.path();
        let of = || of_files(dir, &Progress::default()).unwrap();
        let empty = of();
        assert_eq!(empty.inodes_used, Some(1));
        fs::write(outside.path().join("large"), vec![1; 1 << 20]).unwrap();
        symlink(outside.path(), dir.join("link")).unwrap();
        fs::create_dir(dir.join("inner")).unwrap();
        fs::write(dir.join("inner/file"), vec![1; 64 << 10]).unwrap();
        fs::hard_link(dir.join("inner/file"), dir.join("again")).unwrap();
        let usage = of();
        assert_eq!(usage.inodes_used, Some(4));
        let grown = usage.used_bytes.unwrap() - empty.used_bytes.unwrap();
        assert!((64 << 10..1 << 20).contains(&grown), "{grown}");
        assert!(usage.capacity_bytes >= usage.available_bytes);
    }
}
