//! Gives the files of a volume to the pod's group (`VolumeOwnership`).

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{Disk, Event, EventRecorder, EventType, PodExt};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, chmod, chownat, fstat, openat};
use rustix::io::Errno;
use tokio::time::sleep;

use super::path_error::reason;
use super::walk::{CancelOnDrop, Content, Progress, walk};
use crate::{Error, FsGroupChangePolicy, Result};

/// The group's permissions for files, and those added for folders.
const READ_WRITE: u32 = 0o660;
const READ_ONLY: u32 = 0o440;
const EXECUTE: u32 = 0o110;
const SET_GID: u32 = 0o2000;

/// When the first event about a long walk is emitted, and how often after it.
const FIRST_REPORT: Duration = Duration::from_secs(30);
const REPORT_PERIOD: Duration = Duration::from_secs(60);

/// The change of the group of all files of a volume.
pub(crate) struct VolumeOwnership {
    /// The volume.
    pub(crate) dir: PathBuf,
    /// The group.
    pub(crate) group: u32,
    /// The group may not write.
    pub(crate) read_only: bool,
    /// When nothing is done.
    pub(crate) policy: FsGroupChangePolicy,
}

impl VolumeOwnership {
    /// Changes group and permissions of all files, the root folder last. It emits events when it takes long.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, the walk ends at the next file.
    pub(crate) async fn change(self, disk: Disk, pod: &Pod, recorder: &dyn EventRecorder) -> Result<()> {
        let (dir, group, read_only, policy) = (self.dir.clone(), self.group, self.read_only, self.policy);
        let progress = Arc::new(Progress::default());
        let _cancel = CancelOnDrop(&progress);
        let walking = Arc::clone(&progress);
        let change = disk.run(move || {
            let may_skip = policy == FsGroupChangePolicy::OnRootMismatch;
            if may_skip && !is_mismatch(&dir, group, read_only) {
                return Ok(());
            }
            change_all(&dir, group, read_only, &walking)
        });
        let changed = report_while(change, &shown(&self.dir, pod), &progress, pod, recorder).await;
        changed.map_err(|error| Error::failed(reason(&error)))
    }
}

/// Emits an event when the change takes long, and then one each minute.
async fn report_while<T>(
    change: impl Future<Output = T>,
    dir: &str,
    progress: &Progress,
    pod: &Pod,
    recorder: &dyn EventRecorder,
) -> T {
    let mut change = std::pin::pin!(change);
    let mut next = FIRST_REPORT;
    loop {
        tokio::select! {
            biased;
            changed = &mut change => return changed,
            () = sleep(next) => {}
        }
        let message = match next {
            FIRST_REPORT => format!(
                "Setting volume ownership for {dir} is taking longer than expected, consider using OnRootMismatch - \
                 https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods"
            ),
            _ => format!(
                "Setting volume ownership for {dir}, processed {} files.",
                progress.files()
            ),
        };
        next = REPORT_PERIOD;
        let reason = "VolumePermissionChangeInProgress";
        recorder.record(Event::about(pod, EventType::Warning, reason, message));
    }
}

/// The path from the pod's UID on (`getDirnameToReport`).
fn shown(dir: &Path, pod: &Pod) -> String {
    let dir = dir.display().to_string();
    match dir.find(pod.uid_str()) {
        Some(at) => dir[at..].to_owned(),
        None => dir,
    }
}

/// Gives everything below the folder, and then the folder, to the group. A file that cannot be changed is logged.
pub(crate) fn change_all(dir: &Path, group: u32, read_only: bool, progress: &Progress) -> io::Result<()> {
    walk(dir, progress, |found| {
        change(found.dir, found.name, group, read_only)?;
        Ok(Content::Visit)
    })?;
    change(CWD, dir, group, read_only)
}

/// `changeFilePermission`. The file is opened without following a link and only then judged, so that no other file can
/// take its place.
fn change<P: rustix::path::Arg + Copy>(
    dir: BorrowedFd<'_>,
    name: P,
    group: u32,
    read_only: bool,
) -> io::Result<()> {
    let path = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match openat(dir, name, path, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        file => file?,
    };
    let mode = fstat(&file)?.st_mode;
    let kind = FileType::from_raw_mode(mode);
    let given = chownat(
        file.as_fd(),
        "",
        None,
        Some(Gid::from_raw(group)),
        AtFlags::EMPTY_PATH,
    );
    // A link has no permissions of its own.
    let allowed = match kind {
        FileType::Symlink => Ok(()),
        _ => {
            let base = if read_only { READ_ONLY } else { READ_WRITE };
            let of_folder = SET_GID | EXECUTE;
            let mask = base | if kind == FileType::Directory { of_folder } else { 0 };
            let mode = Mode::from_raw_mode((mode & 0o7777) | mask);
            chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), mode)
        }
    };
    for failed in [given, allowed].into_iter().filter_map(rustix::io::Result::err) {
        let name = name.to_string_lossy();
        tracing::error!(%name, group, error = %failed, "Cannot give a file of a volume to the pod's group");
    }
    Ok(())
}

/// Whether the root folder lacks the group or one of its permissions (`requiresPermissionChange`).
fn is_mismatch(dir: &Path, group: u32, read_only: bool) -> bool {
    let needed = EXECUTE | SET_GID | if read_only { READ_ONLY } else { READ_WRITE };
    fs::metadata(dir).map_or(true, |found| {
        !found.is_dir() || found.gid() != group || found.permissions().mode() & needed != needed
    })
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{lchown, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn files_folders_and_links_get_what_belongs_to_them() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let precious = outside.path().join("precious");
        for (read_only, file, folder, link) in [(false, 0o660, 0o2770, 0o600), (true, 0o640, 0o2750, 0o600)] {
            let dir = root.path().join(format!("{read_only}"));
            fs::create_dir_all(dir.join("inner")).unwrap();
            fs::write(&precious, "").unwrap();
            fs::write(dir.join("inner/file"), "").unwrap();
            symlink(&precious, dir.join("link")).unwrap();
            for (path, mode) in [
                (&dir, 0o700),
                (&dir.join("inner"), 0o700),
                (&dir.join("inner/file"), 0o600),
                (&precious, 0o600),
            ] {
                fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            }
            // Any user may give files to its own group.
            let group = fs::metadata(&dir).unwrap().gid();
            let progress = Progress::default();
            change_all(&dir, group, read_only, &progress).unwrap();
            assert_eq!(progress.files(), 3);
            assert_eq!(mode(&dir.join("inner/file")), file);
            assert_eq!((mode(&dir), mode(&dir.join("inner"))), (folder, folder));
            assert_eq!(mode(&precious), link);
            assert!(!is_mismatch(&dir, group, read_only));
        }
    }

    #[derive(Default)]
    struct Messages(parking_lot::Mutex<Vec<String>>);

    impl EventRecorder for Messages {
        fn record(&self, event: Event<'_>) {
            self.0.lock().push(event.message);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_takes_long_is_reported() {
        let pod = serde_json::json!({"metadata": {"uid": "u-1"}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let dir = shown(Path::new("/k/pods/u-1/volumes/p/v"), &pod);
        assert_eq!(dir, "u-1/volumes/p/v");
        for (seconds, expected) in [(29, 0), (31, 1), (89, 1), (91, 2), (151, 3)] {
            let (messages, progress) = (Messages::default(), Progress::default());
            progress.step().unwrap();
            let change = sleep(Duration::from_secs(seconds));
            report_while(change, &dir, &progress, &pod, &messages).await;
            let messages = messages.0.into_inner();
            assert_eq!(messages.len(), expected, "{seconds}");
            if let Some(first) = messages.first() {
                let begin = "Setting volume ownership for u-1/volumes/p/v is taking longer than expected, consider using \
                             OnRootMismatch - https://kubernetes.io/docs/";
                assert!(first.starts_with(begin), "{first}");
            }
            for later in messages.iter().skip(1) {
                let expected = "Setting volume ownership for u-1/volumes/p/v, processed 1 files.";
                assert_eq!(later, expected);
            }
        }
    }

    #[test]
    fn the_root_folder_decides_whether_files_are_changed() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path();
        let group = fs::metadata(dir).unwrap().gid();
        for (mode, read_only, expected) in [
            (0o2770, false, false),
            (0o2777, false, false),
            (0o2750, false, true),
            (0o2750, true, false),
            (0o770, false, true),
        ] {
            fs::set_permissions(dir, Permissions::from_mode(mode)).unwrap();
            assert_eq!(
                is_mismatch(dir, group, read_only),
                expected,
                "{mode:o} {read_only}"
            );
            assert!(is_mismatch(dir, group + 1, read_only));
        }
        assert!(is_mismatch(&dir.join("absent"), group, false));
        if rustix::process::geteuid().is_root() {
            lchown(dir, None, Some(4711)).unwrap();
            assert!(is_mismatch(dir, group, false));
        }
    }
}
