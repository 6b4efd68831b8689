//! Lists of a runtime in memory, built only after a change instead of every second.

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use kubelet_core::runtime::{PodStatus, RuntimePod};
use kubelet_core::{Error, PodUid, Result, RuntimeReader};
use kubelet_kuberuntime::CriRuntime;
use parking_lot::Mutex;

use crate::memory_cri::{Call, MemoryCri};

/// The runtime as a PLEG reads it. While nothing changes it returns the previous list. It still makes a call to the
/// runtime, which can fail like any other.
pub(super) struct PreparedLists {
    runtime: Arc<CriRuntime>,
    memory: Arc<MemoryCri>,
    /// The last list and its revision.
    last: Mutex<Option<(u64, Vec<Arc<RuntimePod>>)>>,
}

impl PreparedLists {
    pub(super) fn new(runtime: Arc<CriRuntime>, memory: Arc<MemoryCri>) -> Self {
        Self {
            runtime,
            memory,
            last: Mutex::default(),
        }
    }

    fn unchanged(&self) -> Option<Vec<Arc<RuntimePod>>> {
        let last = self.last.lock();
        let (version, pods) = last.as_ref()?;
        (*version == self.memory.version()).then(|| pods.clone())
    }
}

#[async_trait]
impl RuntimeReader for PreparedLists {
    async fn pods(&self, all: bool) -> Result<Vec<Arc<RuntimePod>>> {
        if !all {
            return self.runtime.pods(false).await;
        }
        if self.unchanged().is_some() {
            let asked = self.memory.ask(Call::ListPodSandbox).await;
            asked.map_err(|error| Error::runtime("ListPodSandbox", error))?;
            // The call may have taken time.
            if let Some(pods) = self.unchanged() {
                return Ok(pods);
            }
        }
        let version = self.memory.version();
        let pods = self.runtime.pods(true).await?;
        *self.last.lock() = Some((version, pods.clone()));
        Ok(pods)
    }

    async fn pod(&self, uid: &PodUid) -> Result<Option<Arc<RuntimePod>>> {
        self.runtime.pod(uid).await
    }

    async fn pod_status(&self, pod: &RuntimePod) -> Result<Arc<PodStatus>> {
        self.runtime.pod_status(pod).await
    }

    async fn pod_hints(&self) -> Result<Option<BoxStream<'static, Result<PodUid>>>> {
        self.runtime.pod_hints().await
    }
}
