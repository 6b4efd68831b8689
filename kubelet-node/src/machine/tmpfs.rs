//! Whether files on tmpfs can be kept out of swap.

use std::fs;
use std::io;
use std::path::Path;

/// The first version of Linux with the tmpfs option `noswap` (`TmpfsNoswapSupportKernelVersion`).
const FIRST_WITH_NOSWAP: (u32, u32) = (6, 4);

/// Whether tmpfs supports `noswap` (`IsTmpfsNoswapOptionSupported`). If the kernel version does not answer
/// this, the option is tried in a folder of `root_dir`.
pub(super) fn knows_noswap(kernel_version: &str, host: &Path, root_dir: &Path) -> bool {
    if is_in_user_namespace(&fs::read_to_string(host.join("proc/self/uid_map")).unwrap_or_default()) {
        return false;
    }
    match version(kernel_version) {
        None => false,
        Some(version) if version >= FIRST_WITH_NOSWAP => true,
        Some(_) => try_noswap(root_dir).unwrap_or_else(|error| {
            tracing::info!(%error, "cannot test the tmpfs option noswap; treating it as unsupported");
            false
        }),
    }
}

/// Whether all user IDs are mapped one to one, that is, this is not a user namespace.
fn is_in_user_namespace(uid_map: &str) -> bool {
    let mut fields = uid_map.split_whitespace();
    let all = [Some("0"), Some("0"), Some("4294967295")];
    !uid_map.is_empty() && all.iter().any(|expected| fields.next() != *expected)
}

/// The version from a release: `6.18` of `6.18.44-cloud-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(target_os = "linux")]
fn try_noswap(root_dir: &Path) -> io::Result<bool> {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

    let folder = root_dir.join(format!("tmpfs-noswap-test-{}", std::process::id()));
    fs::create_dir(&folder)?;
    let mounted = mount("tmpfs", &folder, "tmpfs", MountFlags::empty(), c"noswap");
    let unmounted = mounted.and_then(|()| unmount(&folder, UnmountFlags::empty()));
    fs::remove_dir(&folder)?;
    unmounted?;
    Ok(true)
}

#[cfg(not(target_os = "linux"))]
fn try_noswap(_: &Path) -> io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_version_tells() {
        let (host, nowhere) = (tempfile::tempdir().unwrap(), Path::new("/nowhere"));
        let known = |release| knows_noswap(release, host.path(), nowhere);
        assert!(known("6.4") && known("6.18.44") && known("7.0-rc1"));
        // The folder does not exist, so the option cannot be tried either.
        assert!(!known("6.3.99") && !known("5.14.0-503.el9.x86_64") && !known("Unknown"));
        fs::create_dir_all(host.path().join("proc/self")).unwrap();
        fs::write(
            host.path().join("proc/self/uid_map"),
            "         0     100000      65536\n",
        )
        .unwrap();
        assert!(!known("6.18.44"), "not supported in a user namespace");
        fs::write(
            host.path().join("proc/self/uid_map"),
            "         0          0 4294967295\n",
        )
        .unwrap();
        assert!(known("6.18.44"));
    }
}
