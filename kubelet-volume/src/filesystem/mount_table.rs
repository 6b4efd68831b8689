//! The mount table of the kernel (`/proc/self/mountinfo`). Reading it never waits for a file system.

use std::io;
use std::path::{Path, PathBuf};

use crate::MountPoint;

/// The mounts that this process sees.
pub(crate) const TABLE: &str = "/proc/self/mountinfo";
/// The version of the kernel.
const RELEASE: &str = "/proc/sys/kernel/osrelease";
/// The first kernel whose table is complete although something is unmounted while it is read (`kernelHasMountinfoBug`).
const COMPLETE_SINCE: (u32, u32) = (5, 8);
/// How often the table of an older kernel is read until it is the same twice (`maxListTries`).
const TRIES: usize = 10;

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) id: u64,
    /// The device of the file system, `major:minor`.
    pub(crate) device: String,
    /// The folder of the file system that is mounted.
    pub(crate) root: PathBuf,
    pub(crate) point: MountPoint,
}

/// All mounts, the newest last.
pub(crate) fn read() -> io::Result<Vec<Mount>> {
    Ok(text()?.lines().filter_map(parse).collect())
}

/// The table. A mount whose path is no text must not hide the others.
pub(crate) fn text() -> io::Result<String> {
    let is_complete = std::fs::read_to_string(RELEASE).is_ok_and(|release| is_complete(&release));
    let table = match is_complete {
        true => std::fs::read(TABLE)?,
        false => read_twice(|| std::fs::read(TABLE))?,
    };
    Ok(String::from_utf8_lossy(&table).into_owned())
}

fn is_complete(release: &str) -> bool {
    let mut numbers = release.split('.').map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= COMPLETE_SINCE,
        _ => false,
    }
}

/// Reads until the content is the same twice (`ConsistentRead`).
fn read_twice(mut read: impl FnMut() -> io::Result<Vec<u8>>) -> io::Result<Vec<u8>> {
    let mut before = read()?;
    for _ in 0..TRIES {
        let now = read()?;
        if now == before {
            return Ok(now);
        }
        before = now;
    }
    Err(io::Error::other(format!(
        "it has changed during each of {TRIES} attempts to read it"
    )))
}

/// Whether something is mounted on the path, which has no links.
pub(crate) fn is_mounted(path: &Path) -> io::Result<bool> {
    let table = text()?;
    let mut paths = table.lines().filter_map(|line| line.split(' ').nth(4));
    Ok(paths.any(|found| match found.contains('\\') {
        true => Path::new(&unescaped(found)) == path,
        false => Path::new(found) == path,
    }))
}

/// Whether mounts at or below the path reach other mount namespaces (`isShared`). `path` has no links.
pub(crate) fn is_shared(table: &str, path: &Path) -> bool {
    let holder = table.lines().rev().filter_map(|line| {
        let mut fields = line.split(' ');
        let mounted = PathBuf::from(unescaped(fields.nth(4)?));
        // After the options and before the hyphen are the groups that the mount belongs to.
        let mut groups = fields.skip(1).take_while(|field| *field != "-");
        let is_shared = groups.any(|field| field.starts_with("shared:"));
        path.starts_with(&mounted)
            .then(|| (mounted.components().count(), is_shared))
    });
    // Of several mounts on one folder the newest counts.
    let holder = holder.reduce(|best, other| if other.0 > best.0 { other } else { best });
    holder.is_some_and(|(_, is_shared)| is_shared)
}

/// `ParseMountInfo`
fn parse(line: &str) -> Option<Mount> {
    let (of_mount, of_file_system) = line.split_once(" - ")?;
    let mut of_mount = of_mount.split(' ');
    let id = of_mount.next()?.parse().ok()?;
    let device = of_mount.nth(1)?.to_owned();
    let root = PathBuf::from(unescaped(of_mount.next()?));
    let path = PathBuf::from(unescaped(of_mount.next()?));
    let own = of_mount.next()?;
    let mut of_file_system = of_file_system.split(' ');
    let fs_type = of_file_system.next()?.to_owned();
    let source = unescaped(of_file_system.next()?);
    let of_super_block = of_file_system.next().unwrap_or_default();
    let mut options: Vec<String> = own.split(',').map(str::to_owned).collect();
    for option in of_super_block.split(',') {
        // The mount's own `ro` or `rw` counts.
        if !matches!(option, "" | "ro" | "rw") && !options.iter().any(|known| known == option) {
            options.push(option.to_owned());
        }
    }
    let point = MountPoint {
        source,
        path,
        fs_type,
        options,
    };
    Some(Mount {
        id,
        device,
        root,
        point,
    })
}

/// White space and backslashes are written as octal numbers.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, others)) = rest.split_first() {
        let code = (first == b'\\').then(|| others.get(..3)).flatten();
        let code = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 8).ok());
        match code {
            Some(byte) => {
                bytes.push(byte);
                rest = &others[3..];
            }
            None => {
                bytes.push(first);
                rest = others;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Where else the file or folder is mounted (`SearchMountPoints`). `path` has no links.
pub(crate) fn references(mounts: &[Mount], path: &Path) -> Vec<PathBuf> {
    let holder = mounts
        .iter()
        .rev()
        .find(|mount| path.starts_with(&mount.point.path));
    let Some(holder) = holder else { return Vec::new() };
    let below = path.strip_prefix(&holder.point.path).unwrap_or(path);
    let root = match below.as_os_str().is_empty() {
        true => holder.root.clone(),
        false => holder.root.join(below),
    };
    let is_same =
        |mount: &&Mount| mount.root == root && mount.device == holder.device && mount.id != holder.id;
    let same = mounts.iter().filter(is_same);
    same.map(|mount| mount.point.path.clone()).collect()
}

/// The path as the table shows it. Only its parent is looked at, because the file system on the path itself may hang.
pub(crate) fn as_in_table(path: &Path) -> PathBuf {
    let resolved = path.parent().and_then(|parent| parent.canonicalize().ok());
    match (resolved, path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_and_references_found() {
        let table = "\
            22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n\
            40 22 0:35 / /k/pods/1/volumes/x\\040y rw,relatime shared:9 master:2 - tmpfs tmpfs rw,size=1024k\n\
            41 22 254:0 /srv/local /k/pods/2/volumes/local ro,relatime shared:10 - ext4 /dev/vda rw,discard\n\
            42 22 254:0 /srv/local /k/pods/3/volumes/local rw,relatime shared:11 - ext4 /dev/vda rw,discard\n\
            broken\n";
        let mounts: Vec<Mount> = table.lines().filter_map(parse).collect();
        assert_eq!(mounts.len(), 4);
        assert_eq!(mounts[1].point.path, Path::new("/k/pods/1/volumes/x y"));
        assert_eq!(mounts[1].point.options, ["rw", "relatime", "size=1024k"]);
        assert_eq!(mounts[2].point.options, ["ro", "relatime", "discard"]);
        let references = |path: &str| references(&mounts, Path::new(path));
        assert_eq!(
            references("/srv/local"),
            [
                Path::new("/k/pods/2/volumes/local"),
                Path::new("/k/pods/3/volumes/local")
            ]
        );
        assert_eq!(
            references("/k/pods/3/volumes/local"),
            [Path::new("/k/pods/2/volumes/local")]
        );
        assert!(references("/srv").is_empty());
        assert!(references("/k/pods/1/volumes/x y").is_empty());
    }

    #[test]
    fn the_deepest_newest_mount_decides_whether_a_folder_is_shared() {
        let table = "\
            22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
            40 22 0:35 / /k rw,relatime master:1 - tmpfs tmpfs rw\n\
            41 40 0:35 / /k/pods rw,relatime - tmpfs tmpfs rw\n\
            42 40 0:35 / /k/pods rw,relatime shared:7 master:1 - tmpfs tmpfs rw\n";
        let shared = |path: &str| is_shared(table, Path::new(path));
        assert!(shared("/"));
        assert!(shared("/kk"));
        assert!(!shared("/k"));
        assert!(!shared("/k/plugins"));
        assert!(shared("/k/pods/1"));
        assert!(!is_shared("", Path::new("/")));
    }

    #[test]
    fn the_table_of_an_old_kernel_is_read_until_it_is_the_same_twice() {
        for (release, complete) in [
            ("6.1.0-18-amd64\n", true),
            ("5.8.0", true),
            ("5.10.0", true),
            ("5.4.0-generic", false),
            ("4.18.0-553.el8", false),
            ("x", false),
        ] {
            assert_eq!(is_complete(release), complete, "{release}");
        }
        let mut versions = vec!["ab", "ab", "a", "abc"];
        let read = read_twice(|| Ok(versions.pop().unwrap().into()));
        assert_eq!(read.unwrap(), b"ab");
        let mut number = 0;
        let never = read_twice(|| {
            number += 1;
            Ok(vec![number])
        });
        assert!(never.is_err());
    }

    #[test]
    fn the_table_of_this_host_is_read() {
        assert!(
            read()
                .unwrap()
                .iter()
                .any(|mount| mount.point.path == Path::new("/"))
        );
    }
}
