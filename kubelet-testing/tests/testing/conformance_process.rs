//! The process runtime of `kubelet-cri` fulfils the clauses.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubelet_cri::process::ProcessRuntime;
use kubelet_testing::conformance::{Fixture, FixtureError, Opened, Subject};

struct Processes {
    dir: PathBuf,
    runtime: Option<Arc<ProcessRuntime>>,
}

impl Processes {
    /// The folder is in use until the last runtime has finished its starts.
    async fn open_at(dir: &Path) -> std::io::Result<Option<Arc<ProcessRuntime>>> {
        loop {
            match ProcessRuntime::builder(dir.join("processes")).open().await {
                Err(error) if error.kind() == ErrorKind::WouldBlock => tokio::task::yield_now().await,
                opened => return Ok(Some(Arc::new(opened?))),
            }
        }
    }
}

#[async_trait]
impl Fixture for Processes {
    async fn open(dir: &Path) -> Opened<Self> {
        let runtime = Self::open_at(dir).await?;
        Ok(Some(Self {
            dir: dir.to_owned(),
            runtime,
        }))
    }

    fn subject(&self) -> Subject {
        Subject::verbs(self.runtime.clone().expect("it is open"))
    }

    async fn reopen(&mut self) -> Result<(), FixtureError> {
        self.runtime = None;
        self.runtime = Self::open_at(&self.dir).await?;
        Ok(())
    }

    async fn close(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown(Duration::ZERO).await;
        }
    }
}

mod verbs {
    use super::*;

    kubelet_testing::conformance!(verbs: Processes, offers: [signals, restart, logs, exec, stats, images, events, pods]);
}

/// Through `CriAdapter`.
mod cri {
    use super::*;

    kubelet_testing::conformance!(cri: Processes, offers: [signals, restart, logs, exec, stats, events]);
}
