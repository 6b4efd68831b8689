//! Static pods from a folder of manifests, or from one.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use kubelet_core::annotations::FILE_SOURCE;
use kubelet_core::{PodSource, SourceUpdate};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout_at};

mod folder;
mod read;
mod watch;

use folder::Folder;
use watch::Noticed;

/// How often all files are read again, with or without a change (`fileCheckFrequency` of `KubeletConfiguration`).
const FILE_CHECK_FREQUENCY: Duration = Duration::from_secs(20);
/// How soon a watch that could not be had is tried again (`retryPeriod` of the kubelet's file source).
const WATCH_RETRY_PERIOD: Duration = Duration::from_secs(1);
/// After a change, how long it must be quiet before the files are read: who saves a file changes it several
/// times in a row.
const QUIET: Duration = Duration::from_millis(30);
/// How long a folder that never gets quiet is waited for.
const UNQUIET: Duration = Duration::from_millis(250);

/// Reads static pods from a folder of manifests, or from one manifest file. Corresponds to the kubelet's
/// `sourceFile`.
///
/// Each file holds one pod as YAML or JSON, see [`manifest`](crate::manifest). Files whose names begin with a dot
/// and folders in the folder are ignored. inotify reports a change at once; the periodic read finds it at the
/// latest. The source reads after the changes have stopped: a file that is renamed over another is one change, and
/// a file that is rewritten with the same content is no change. A file that is removed and made again is a removal and
/// then an addition, even with the same content and however fast: its pod ends and starts again.
///
/// A file that cannot be read or decoded is reported as [`SourceUpdate::Problem`] with its path, once for each
/// change. Other files are not affected. While the file exists, its last good pod stays. If two files hold a pod of
/// the same name or UID, the first in the order of paths counts; a broken file comes last. A file that is not a
/// regular file (a pipe, a socket, a device), or has 10 MiB or more, is a problem too and is never read.
///
/// A pod gets the UID that the kubelet v1.36 gives it, which is a hash of the pod, the node's name and the path. So its containers
/// go on if an agent takes the place of a kubelet of this version with the same manifest in the same folder, or the other
/// way round. See [`manifest::decode`](crate::manifest::decode).
///
/// If the path does not exist, there are no pods. If it cannot be read, the source is unavailable and its pods
/// stay.
///
/// # What changes of files do
///
/// The folder holds `web.yaml` with the pod A. A' is the same pod from another file, which has another UID; B is another pod of that name. The
/// first column was recorded from kubelet v1.36, several times each; "or" stands between what it did at different times. Where the pod A is
/// removed and added, its containers end and start again, with a restart count of 1. `tests/config/file_events.rs` has all sequences.
///
/// | change | kubelet | this source |
/// |---|---|---|
/// | `rm`, then `cp` of the same text, at once or later, also 30 times in a row; `install`; `tar x`; `cp --remove-destination`; `mv` from another file system | REMOVE A, ADD A | the same |
/// | `rm`, then another text | REMOVE A, ADD B | the same |
/// | renamed away and back, also to a dot file | REMOVE A, ADD A | the same |
/// | renamed to another name | REMOVE A, ADD A' | the same |
/// | another file renamed over it (from a dot file, or from outside), same text | nothing | the same |
/// | the same with another text | REMOVE A, ADD B | the same |
/// | written in place (`>`, `cp`, `tee`, truncated and later written), same text; `touch`; `chmod` | nothing | the same |
/// | `sed -i`, `ln -f`, `ln -sfn`, or `web.yaml.tmp` renamed over it, same text | nothing, or REMOVE A, ADD A', REMOVE A', ADD A | nothing, unless the temporary file stays for more than 30 ms |
/// | `vim` with `backupcopy=no` (`web.yaml` renamed to `web.yaml~`, made, `web.yaml~` removed), same text | REMOVE A, ADD A, or it also removes the pod until the next periodic read | REMOVE A, ADD A |
/// | `vim` with `backupcopy=yes` (copied to `web.yaml~`, written, `web.yaml~` removed), same text | nothing, or it removes the pod until the next periodic read | nothing |
/// | a copy `web.yaml~` beside it, later removed | REMOVE A, ADD A', REMOVE A', and ADD A with the next periodic read | nothing |
/// | a broken text in place, then the same text | nothing (a periodic read in between removes the pod) | nothing |
/// | `rm`, then a broken text | REMOVE A | the same if the source reads in between; else A stays until the file is good again (REMOVE A, ADD A) or gone |
/// | dot files | nothing | the same |
/// | `..data` of a mounted config map swapped, same text | nothing | the same |
/// | `..data` swapped, another text | REMOVE A, ADD B with the next periodic read | at once |
/// | the folder removed and made again with the same file | REMOVE A, and ADD A with the next periodic read; no event counts afterwards | REMOVE A, ADD A |
/// | the folder renamed away and back, or replaced by another with the same file | nothing | the same |
/// | a single file as the path: removed and made again, or another renamed over it | REMOVE A, and ADD A with the next periodic read | as in a folder |
///
/// If inotify loses events because too many come at once, all files are read again, and what was removed and made again in between is not
/// seen, as in the kubelet.
///
/// ```no_run
/// use kubelet_config::{FileSource, PodConfig};
///
/// let config = PodConfig::builder()
///     .source(FileSource::new("/etc/kubernetes/manifests", "node-1"))
///     .build()?;
/// # Ok::<(), kubelet_config::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FileSource {
    path: PathBuf,
    node_name: String,
    check_frequency: Duration,
}

impl FileSource {
    /// The manifests in the folder or file `path`, for the node `node_name`.
    pub fn new(path: impl AsRef<Path>, node_name: impl Into<String>) -> Self {
        Self {
            // Not only for looks: the path of a file is part of its pod's UID.
            path: path.as_ref().components().collect(),
            node_name: node_name.into(),
            check_frequency: FILE_CHECK_FREQUENCY,
        }
    }

    /// How often all files are read again, with or without a change (`fileCheckFrequency`). Default: 20 seconds.
    /// The minimum is one millisecond.
    #[must_use]
    pub fn check_frequency(mut self, period: Duration) -> Self {
        self.check_frequency = period.max(Duration::from_millis(1));
        self
    }
}

impl PodSource for FileSource {
    /// `file`
    fn name(&self) -> &str {
        FILE_SOURCE
    }

    /// Reads the files on tokio's blocking threads, one read at a time. Dropping the stream ends the watch; a read
    /// in progress completes.
    fn updates(self: Box<Self>) -> BoxStream<'static, SourceUpdate> {
        let noticed = Arc::new(Noticed::default());
        let folder = Folder::new(self.path, self.node_name, noticed.clone());
        let mut ticks = interval(self.check_frequency);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let reading = Reading {
            folder: Some(folder),
            noticed,
            ticks,
            queued: VecDeque::new(),
        };
        stream::unfold(reading, |mut reading| async move {
            let update = reading.next().await?;
            Some((update, reading))
        })
        .boxed()
    }
}

/// A source at work.
struct Reading {
    /// `None` after a read that did not come back.
    folder: Option<Folder>,
    noticed: Arc<Noticed>,
    ticks: tokio::time::Interval,
    queued: VecDeque<SourceUpdate>,
}

impl Reading {
    async fn next(&mut self) -> Option<SourceUpdate> {
        loop {
            if let Some(update) = self.queued.pop_front() {
                return Some(update);
            }
            let watched = self.folder.as_ref()?.is_watched();
            tokio::select! {
                _ = self.ticks.tick() => {}
                () = self.noticed.changed() => self.quiet().await,
                () = sleep(WATCH_RETRY_PERIOD), if !watched => {}
            }
            let mut folder = self.folder.take()?;
            let read = tokio::task::spawn_blocking(move || {
                let queued = folder.read();
                (folder, queued)
            });
            match read.await {
                Ok((folder, queued)) => {
                    self.folder = Some(folder);
                    self.queued.extend(queued);
                }
                // The runtime shuts down.
                Err(_) => return None,
            }
        }
    }

    async fn quiet(&self) {
        let latest = Instant::now() + UNQUIET;
        loop {
            let quiet = (Instant::now() + QUIET).min(latest);
            if timeout_at(quiet, self.noticed.changed()).await.is_err() {
                return;
            }
        }
    }
}
