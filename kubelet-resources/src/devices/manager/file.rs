//! The state file, and the folder of the plugins' sockets.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kubelet_core::Disk;
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::Mutex as AsyncMutex;

use super::Inner;
use crate::checkpoint::StateStore;
use crate::devices::v1beta1::ContainerAllocateResponse;
use crate::devices::{DEVICE_MANAGER_STATE, DevicesOfPods, read_device_state, write_device_state};
use crate::{Error, Result};

/// Keeps `kubelet_internal_checkpoint` up to date.
pub(super) struct StateFile {
    store: Arc<dyn StateStore>,
    pub(super) disk: Disk,
    was_there: AtomicBool,
    /// The contents on disk. One write at a time, and a write always has the latest state.
    written: Arc<AsyncMutex<Option<Vec<u8>>>>,
}

impl StateFile {
    pub(super) fn new(store: Arc<dyn StateStore>, disk: Disk) -> Self {
        Self {
            store,
            disk,
            was_there: AtomicBool::new(false),
            written: Arc::default(),
        }
    }

    pub(super) fn was_there(&self) -> bool {
        self.was_there.load(Ordering::Relaxed)
    }

    /// What was allocated, and the resources that were registered. `None`: there is no file.
    pub(super) async fn read(&self) -> Result<Option<(DevicesOfPods, Vec<String>)>> {
        let store = Arc::clone(&self.store);
        let contents = self.disk.run(move || store.read(DEVICE_MANAGER_STATE)).await;
        let Some(contents) = contents.map_err(|error| self.failed(error))? else {
            return Ok(None);
        };
        self.was_there.store(true, Ordering::Relaxed);
        let (mut pods, registered) = read_device_state(&contents)?;
        for (pod_uid, containers) in &mut pods {
            for (container, resources) in containers {
                resources.retain(|resource, devices| {
                    let decoded = ContainerAllocateResponse::decode(devices.response.as_slice());
                    if let Err(error) = &decoded {
                        tracing::error!(pod_uid, container, resource, %error, "cannot decode the answer of a plugin in the checkpoint");
                    }
                    decoded.is_ok()
                });
            }
        }
        Ok(Some((pods, registered)))
    }

    /// Writes the state if it changed.
    ///
    /// # Errors
    ///
    /// With the kubelet's text. The next call tries again.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, a write that began runs to its end before the next one begins.
    pub(super) async fn write(&self, inner: &Mutex<Inner>) -> Result<()> {
        let mut written = Arc::clone(&self.written).lock_owned().await;
        let contents = write_device_state(&inner.lock().state)?;
        if written.as_ref() == Some(&contents) {
            return Ok(());
        }
        let store = Arc::clone(&self.store);
        // The lock goes with the work: it is held until the write has ended, even if nobody waits for it.
        let work = move || {
            store.write(DEVICE_MANAGER_STATE, &contents)?;
            *written = Some(contents);
            Ok(())
        };
        self.disk.run(work).await.map_err(|error| {
            let text = format!("failed to write checkpoint file {DEVICE_MANAGER_STATE:?}: {error}");
            Error::Allocation(text)
        })
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::File {
            path: self.store.path(DEVICE_MANAGER_STATE),
            source,
        }
    }
}

/// Makes the folder, which only root and its group may enter.
pub(super) fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o750).create(folder)
}

/// Removes all sockets from the folder. The error is the last one.
pub(super) fn remove_sockets(folder: &Path) -> io::Result<()> {
    let mut removed = Ok(());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // A link to a socket is one, too. What is gone meanwhile is none.
        if fs::metadata(&path).is_ok_and(|found| found.file_type().is_socket())
            && let Err(error) = fs::remove_file(&path)
        {
            tracing::error!(path = %path.display(), %error, "failed to remove file");
            removed = Err(error);
        }
    }
    removed
}
