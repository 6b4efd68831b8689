//! Keeps the state file up to date.

use std::io;
use std::sync::Arc;

use kubelet_core::Disk;
use tokio::sync::Mutex as AsyncMutex;

use super::checkpoint::{DRA_MANAGER_STATE, read_claims, write_claims};
use super::claim::ClaimState;
use super::claims::Claims;
use crate::checkpoint::StateStore;
use crate::{Error, Result};

/// The file with the claims.
#[derive(Clone)]
pub(super) struct StateFile {
    store: Arc<dyn StateStore>,
    disk: Disk,
    /// The contents on disk. One write at a time, and a write always has the latest claims.
    written: Arc<AsyncMutex<Option<Vec<u8>>>>,
}

impl StateFile {
    pub(super) fn new(store: Arc<dyn StateStore>, disk: Disk) -> Self {
        Self {
            store,
            disk,
            written: Arc::default(),
        }
    }

    /// Reads the claims of the agent before. Creates the file if there is none.
    ///
    /// # Errors
    ///
    /// With the kubelet's texts, if the file cannot be used.
    pub(super) async fn read(&self) -> Result<Vec<ClaimState>> {
        let at_start = |error: Error| Error::Refused(format!("create ResourceClaim cache: {error}"));
        let store = Arc::clone(&self.store);
        let contents = self.disk.run(move || store.read(DRA_MANAGER_STATE)).await;
        match contents.map_err(|error| self.failed(error))? {
            Some(contents) => {
                let claims = read_claims(&contents).map_err(at_start)?;
                *self.written.lock().await = Some(contents);
                Ok(claims)
            }
            None => {
                let (store, contents) = (Arc::clone(&self.store), write_claims(None)?);
                let written = self.disk.run(move || store.write(DRA_MANAGER_STATE, &contents));
                written.await.map_err(|error| self.failed(error))?;
                Ok(Vec::new())
            }
        }
    }

    /// Writes the claims, if they changed. The error has the kubelet's text.
    ///
    /// # Cancel safety
    ///
    /// When the future is dropped, a write that began runs to its end before the next one begins.
    pub(super) async fn write(&self, claims: &Claims) -> Result<()> {
        let mut written = Arc::clone(&self.written).lock_owned().await;
        let contents = write_claims(Some(claims.lock().to_keep()))?;
        if written.as_ref() == Some(&contents) {
            return Ok(());
        }
        let store = Arc::clone(&self.store);
        // The lock goes with the work: it is held until the write has ended, even if nobody waits for it.
        let work = move || {
            let result = store.write(DRA_MANAGER_STATE, &contents);
            *written = result.is_ok().then_some(contents);
            result
        };
        self.disk
            .run(work)
            .await
            .map_err(|error| Error::Claims(format!("could not save checkpoint {DRA_MANAGER_STATE}: {error}")))
    }

    fn failed(&self, source: io::Error) -> Error {
        Error::File {
            path: self.store.path(DRA_MANAGER_STATE),
            source,
        }
    }
}
