//! `--lock-file`: only one agent runs at a time.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock, inotify};
use rustix::io::Errno;
use tokio::time::sleep;

use crate::{Error, Result};

/// How often the lock is tried, and how often the file is checked for contention.
const LOOK_PERIOD: Duration = Duration::from_millis(200);

/// A file lock that only one agent on a host can hold. It is released on drop or when the process ends
/// (`--lock-file`, `--exit-on-lock-contention`).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> kubelet_node::Result<()> {
/// use kubelet_node::LockFile;
///
/// let path = std::env::temp_dir().join("agent.lock");
/// let lock = LockFile::acquire(&path, true).await?;
/// let agent = async { /* … */ };
/// lock.hold(agent, || println!("another agent wants to run")).await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct LockFile {
    _file: File,
    events: Option<OwnedFd>,
}

impl LockFile {
    /// Waits until the lock is free and takes it (`flock.Acquire`). Creates the file if it does not exist. With
    /// `watch`, [`contended`](Self::contended) reports other agents that want the lock.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if the file cannot be created, locked or watched.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock is not taken.
    pub async fn acquire(path: &Path, watch: bool) -> Result<Self> {
        let failed = |what| {
            move |source: std::io::Error| Error::File {
                what,
                file: path.to_owned(),
                source,
            }
        };
        tracing::info!(path = %path.display(), "Acquiring file lock");
        let mut options = File::options();
        options.create(true).read(true).append(true).mode(0o600);
        let file = options.open(path).map_err(failed("open"))?;
        while let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if error != Errno::WOULDBLOCK {
                return Err(failed("lock")(error.into()));
            }
            sleep(LOOK_PERIOD).await;
        }
        let watched = || watching(path).map_err(|error| failed("watch")(error.into()));
        Ok(Self {
            _file: file,
            events: watch.then(watched).transpose()?,
        })
    }

    /// Runs `work` to its end while holding the lock. Calls `contended` when [another agent wants the
    /// lock](Self::contended); that call should make the work end.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, `work` is dropped first, then the lock.
    pub async fn hold<T>(self, work: impl Future<Output = T>, contended: impl FnOnce()) -> T {
        let mut work = pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = self.contended() => contended(),
        }
        work.await
    }

    /// Returns when another process opens or deletes the file, that is, when another agent wants to run. This
    /// agent should then end (`watchForLockfileContention`). Without `watch` it never returns.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped while it waits.
    pub async fn contended(&self) {
        let Some(events) = &self.events else {
            return std::future::pending().await;
        };
        while let Err(Errno::AGAIN) = rustix::io::read(events, &mut [0; 1024]) {
            sleep(LOOK_PERIOD).await;
        }
    }
}

fn watching(path: &Path) -> rustix::io::Result<OwnedFd> {
    use inotify::{CreateFlags, WatchFlags};

    let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    inotify::add_watch(&events, path, WatchFlags::OPEN | WatchFlags::DELETE_SELF)?;
    Ok(events)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::sync::Notify;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_has_it_and_notices_who_wants_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let minute = Duration::from_secs(60);
        let first = LockFile::acquire(&path, true).await.unwrap();
        assert!(timeout(minute, first.contended()).await.is_err());

        assert!(timeout(minute, LockFile::acquire(&path, false)).await.is_err());
        timeout(minute, first.contended())
            .await
            .expect("the file was opened");
        drop(first);
        let second = LockFile::acquire(&path, false).await.unwrap();
        assert!(
            timeout(minute, second.contended()).await.is_err(),
            "the file is not watched"
        );

        let error = LockFile::acquire(&dir.path().join("absent/lock"), false)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("absent/lock"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_holds_it_ends_its_work_before_it_is_another_s() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let (wanted, (done, ended)) = (Notify::new(), (Cell::new(false), Cell::new(false)));
        let work = async {
            wanted.notified().await;
            sleep(Duration::from_secs(5)).await;
            done.set(true);
            "done"
        };
        let first = LockFile::acquire(&path, true).await.unwrap();
        let first = async {
            assert_eq!(first.hold(work, || wanted.notify_one()).await, "done");
            ended.set(true);
        };
        let second = async {
            LockFile::acquire(&path, false).await.unwrap();
            assert!(done.get());
        };
        tokio::join!(first, second);
        assert!(ended.get());
        // Without contention the work ends by itself.
        let third = LockFile::acquire(&path, true).await.unwrap();
        assert_eq!(
            third
                .hold(async { 3 }, || panic!("no other agent wants the lock"))
                .await,
            3
        );
    }
}
