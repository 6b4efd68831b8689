//! `--lock-file`: one agent at a time.

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

/// How often it is tried to have the lock, and looked whether another wants it.
const LOOK_PERIOD: Duration = Duration::from_millis(200);

/// A lock that one agent of a host has: held until this is dropped, or the process ends (`--lock-file`,
/// `--exit-on-lock-contention`).
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
    /// Waits until nobody else has the file, which is made if need be, locked (`flock.Acquire`). With `watch`, who wants it
    /// later is [noticed](Self::contended).
    ///
    /// # Errors
    ///
    /// [`Error::File`] if it cannot be made, locked or watched.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it does not have the lock.
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

    /// Works to the end of the work, with the lock. `contended` is called when [another wants it](Self::contended): it is to have
    /// the work end.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the work is dropped and then the lock.
    pub async fn hold<T>(self, work: impl Future<Output = T>, contended: impl FnOnce()) -> T {
        let mut work = pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = self.contended() => contended(),
        }
        work.await
    }

    /// Returns when somebody opened or deleted the file, another agent that wants to run: this one should end
    /// (`watchForLockfileContention`). Never, if it is not watched.
    ///
    /// # Cancel safety
    ///
    /// Dropped while it waits, nothing is lost.
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
        timeout(minute, first.contended()).await.expect("it was opened");
        drop(first);
        let second = LockFile::acquire(&path, false).await.unwrap();
        assert!(
            timeout(minute, second.contended()).await.is_err(),
            "it is not watched"
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
        // Who is not wanted is left to end by itself.
        let third = LockFile::acquire(&path, true).await.unwrap();
        assert_eq!(third.hold(async { 3 }, || panic!("nobody wants it")).await, 3);
    }
}
