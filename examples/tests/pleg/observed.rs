//! A runtime that is observed: how often it was listed, and when.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::stream::BoxStream;
use kubelet_core::runtime::{PodStatus, RuntimePod};
use kubelet_core::{PodUid, Result, RuntimeReader};
use tokio::time::Instant;

/// Notes each list of the whole runtime that a PLEG makes.
pub(crate) struct Observed {
    runtime: Arc<dyn RuntimeReader>,
    lists: Mutex<Vec<Instant>>,
}

impl Observed {
    pub(crate) fn new(runtime: Arc<dyn RuntimeReader>) -> Arc<Self> {
        Arc::new(Self { runtime, lists: Mutex::default() })
    }

    /// When each list began.
    pub(crate) fn lists(&self) -> Vec<Instant> {
        self.lists.lock().unwrap().clone()
    }
}

#[async_trait]
impl RuntimeReader for Observed {
    async fn pods(&self, all: bool) -> Result<Vec<Arc<RuntimePod>>> {
        self.lists.lock().unwrap().push(Instant::now());
        self.runtime.pods(all).await
    }

    async fn pod(&self, uid: &PodUid) -> Result<Option<Arc<RuntimePod>>> {
        self.runtime.pod(uid).await
    }

    async fn pod_status(&self, pod: &RuntimePod) -> Result<PodStatus> {
        self.runtime.pod_status(pod).await
    }

    async fn pod_hints(&self) -> Result<Option<BoxStream<'static, Result<PodUid>>>> {
        self.runtime.pod_hints().await
    }
}
