//! Plugins in the process of the agent, without sockets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt as _;
use kubelet_resources::dra::{Connection, Dialer, DraService};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::MemoryDra;

/// Connects the agent to drivers in its process, also in virtual time. Clones share the drivers.
///
/// A driver serves at a path, which need not exist. When it is stopped there, its connections break, but calls that have begun go on.
#[derive(Clone, Default)]
pub struct MemoryDraPlugins {
    serving: Arc<Mutex<BTreeMap<PathBuf, Serving>>>,
}

struct Serving {
    driver: MemoryDra,
    stopped: CancellationToken,
}

impl MemoryDraPlugins {
    /// No drivers.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on, the driver serves at this path.
    pub fn serve(&self, endpoint: impl Into<PathBuf>, driver: &MemoryDra) {
        let serving = Serving {
            driver: driver.clone(),
            stopped: CancellationToken::new(),
        };
        let before = self.serving.lock().insert(endpoint.into(), serving);
        if let Some(before) = before {
            before.stopped.cancel();
        }
    }

    /// From now on, nobody serves at this path.
    pub fn stop(&self, endpoint: impl AsRef<Path>) {
        let before = self.serving.lock().remove(endpoint.as_ref());
        if let Some(before) = before {
            before.stopped.cancel();
        }
    }
}

#[async_trait]
impl Dialer for MemoryDraPlugins {
    async fn dial(&self, endpoint: &Path, _: DraService) -> Result<Connection, Status> {
        let serving = self.serving.lock();
        let Some(serving) = serving.get(endpoint) else {
            return Err(Status::unavailable(format!(
                "connection error: desc = \"transport: Error while dialing: dial unix {}: connect: no such file or directory\"",
                endpoint.display()
            )));
        };
        Ok(Connection {
            plugin: Arc::new(serving.driver.clone()),
            closed: serving.stopped.clone().cancelled_owned().boxed(),
        })
    }
}
