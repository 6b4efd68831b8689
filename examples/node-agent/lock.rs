//! `--lock-file`: one agent at a time.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::Duration;

use kubelet_config::flags::KubeletFlags;
use rustix::fs::{FlockOperation, flock, inotify};
use rustix::io::Errno;

use crate::Error;

/// How often it is tried to have the lock, and looked whether another wants it.
const LOOK_PERIOD: Duration = Duration::from_millis(200);

/// The lock, if one is asked for: held until this is dropped.
pub(crate) struct Lock {
    _file: Option<File>,
    events: Option<OwnedFd>,
}

impl Lock {
    /// Waits until the lock file is ours (`flock.Acquire`).
    pub(crate) async fn acquire(flags: &KubeletFlags) -> Result<Self, Error> {
        let path = &flags.lock_file_path;
        if path.is_empty() {
            return match flags.exit_on_lock_contention {
                true => Err("cannot exit on lock file contention: no lock file specified".into()),
                false => Ok(Self { _file: None, events: None }),
            };
        }
        tracing::info!(path, "Acquiring file lock");
        let failed = |error: std::io::Error| format!("unable to acquire file lock on {path:?}: {error}");
        let file = File::options().create(true).append(true).open(path).map_err(failed)?;
        while let Err(error) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
            if error != Errno::WOULDBLOCK {
                return Err(failed(error.into()).into());
            }
            tokio::time::sleep(LOOK_PERIOD).await;
        }
        let events = match flags.exit_on_lock_contention {
            true => Some(watch(path)?),
            false => None,
        };
        Ok(Self { _file: Some(file), events })
    }

    /// With `--exit-on-lock-contention`: waits until somebody opens or deletes the lock file
    /// (`watchForLockfileContention`).
    pub(crate) async fn wanted_by_another(&self) {
        let Some(events) = &self.events else { return std::future::pending().await };
        while let Err(Errno::AGAIN) = rustix::io::read(events, &mut [0; 1024]) {
            tokio::time::sleep(LOOK_PERIOD).await;
        }
    }
}

fn watch(path: &str) -> Result<OwnedFd, Error> {
    use inotify::{CreateFlags, WatchFlags};

    let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    inotify::add_watch(&events, path, WatchFlags::OPEN | WatchFlags::DELETE_SELF)?;
    Ok(events)
}
