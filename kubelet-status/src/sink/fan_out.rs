//! Several sinks as one.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use kubelet_core::{PodExt, PodUid, Result, SinkPod, StatusSink};
use parking_lot::Mutex;

/// Sends each status to several sinks. Only the first one is read, so a sink that stores pods, such as an API server,
/// must come first.
///
/// If a sink fails, the status is sent again to the sinks that did not accept it.
pub struct FanOut {
    sinks: Vec<Arc<dyn StatusSink>>,
    /// Statuses that some sink did not accept, with the sinks that did.
    unfinished: Mutex<HashMap<PodUid, Unfinished>>,
}

struct Unfinished {
    status: ApiPodStatus,
    took_it: Vec<bool>,
}

impl FanOut {
    /// Combines `sinks` into one.
    pub fn new(sinks: Vec<Arc<dyn StatusSink>>) -> Self {
        Self {
            sinks,
            unfinished: Mutex::default(),
        }
    }

    /// Which sinks have already accepted this status.
    fn begin(&self, uid: &PodUid, status: &ApiPodStatus) -> Vec<bool> {
        let mut unfinished = self.unfinished.lock();
        if let Some(known) = unfinished.get(uid).filter(|known| known.status == *status) {
            return known.took_it.clone();
        }
        let took_it = vec![false; self.sinks.len()];
        let begun = Unfinished {
            status: status.clone(),
            took_it: took_it.clone(),
        };
        unfinished.insert(uid.clone(), begun);
        took_it
    }

    fn taken_by(&self, uid: &PodUid, sink: usize) {
        if let Some(unfinished) = self.unfinished.lock().get_mut(uid) {
            unfinished.took_it[sink] = true;
        }
    }
}

#[async_trait]
impl StatusSink for FanOut {
    async fn get(&self, pod: &Arc<Pod>) -> Result<SinkPod> {
        match self.sinks.first() {
            Some(first) => first.get(pod).await,
            None => Ok(SinkPod::NotStored),
        }
    }

    fn shows_static_pods_by_mirrors(&self) -> bool {
        self.sinks
            .first()
            .is_some_and(|first| first.shows_static_pods_by_mirrors())
    }

    async fn patch_status(
        &self,
        pod: &Arc<Pod>,
        old: &ApiPodStatus,
        new: &ApiPodStatus,
    ) -> Result<Option<Arc<Pod>>> {
        let uid = &pod.uid();
        let took_it = self.begin(uid, new);
        let sends = self.sinks.iter().enumerate().map(async |(index, sink)| {
            if took_it[index] {
                return Ok(None);
            }
            let patched = sink.patch_status(pod, old, new).await?;
            self.taken_by(uid, index);
            Ok(patched)
        });
        let patched: Vec<Option<Arc<Pod>>> = join_all(sends).await.into_iter().collect::<Result<_>>()?;
        self.unfinished.lock().remove(uid);
        Ok(patched.into_iter().next().flatten())
    }

    async fn delete(&self, pod: &Arc<Pod>) -> Result<()> {
        self.unfinished.lock().remove(pod.uid_str());
        all_ok(join_all(self.sinks.iter().map(|sink| sink.delete(pod))).await)
    }

    async fn forget(&self, pod: &Arc<Pod>) -> Result<()> {
        self.unfinished.lock().remove(pod.uid_str());
        all_ok(join_all(self.sinks.iter().map(|sink| sink.forget(pod))).await)
    }
}

fn all_ok(results: Vec<Result<()>>) -> Result<()> {
    results.into_iter().collect()
}

impl fmt::Debug for FanOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FanOut")
            .field("sinks", &self.sinks.len())
            .finish_non_exhaustive()
    }
}
