//! A runtime that records its lists and hints.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt};
use kubelet_core::runtime::{PodStatus, RuntimePod};
use kubelet_core::{PodUid, Result, RuntimeReader};
use tokio::time::Instant;

/// Records each full list by a PLEG, and each hint to it.
pub(crate) struct Observed {
    runtime: Arc<dyn RuntimeReader>,
    lists: Mutex<Vec<Instant>>,
    hints: Arc<Mutex<Vec<(Instant, PodUid)>>>,
}

impl Observed {
    pub(crate) fn new(runtime: Arc<dyn RuntimeReader>) -> Arc<Self> {
        Arc::new(Self { runtime, lists: Mutex::default(), hints: Arc::default() })
    }

    /// When each list began.
    pub(crate) fn lists(&self) -> Vec<Instant> {
        self.lists.lock().unwrap().clone()
    }

    /// When the PLEG was first given a hint at this pod since then.
    pub(crate) fn hinted(&self, pod: &PodUid, since: Instant) -> Option<Instant> {
        let hints = self.hints.lock().unwrap();
        hints.iter().find(|(at, hinted)| hinted == pod && *at >= since).map(|(at, _)| *at)
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

    async fn pod_status(&self, pod: &RuntimePod) -> Result<Arc<PodStatus>> {
        self.runtime.pod_status(pod).await
    }

    async fn pod_hints(&self) -> Result<Option<BoxStream<'static, Result<PodUid>>>> {
        let Some(hints) = self.runtime.pod_hints().await? else { return Ok(None) };
        let noted = self.hints.clone();
        let hints = hints.inspect(move |hint| {
            if let Ok(pod) = hint {
                noted.lock().unwrap().push((Instant::now(), pod.clone()));
            }
        });
        Ok(Some(hints.boxed()))
    }
}
