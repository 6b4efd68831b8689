//! Starts of containers whose sync was dropped. A runtime that gets a cancelled call of `StartContainer` kills what it has
//! started, and reports the container as one that could not start. So the call is kept, and the kill of the pod completes
//! it. (The kubelet does not cancel the runtime's part of a sync.)

use std::collections::BTreeMap;

use futures::future::{BoxFuture, join_all};
use kubelet_core::PodUid;
use parking_lot::Mutex;

type Call = BoxFuture<'static, Result<(), kubelet_cri::Error>>;

/// The unfinished calls of each pod, in order: what is dropped with an agent is dropped in the same order each time.
#[derive(Default)]
pub(crate) struct UnfinishedStarts(Mutex<BTreeMap<PodUid, Vec<Unfinished>>>);

struct Unfinished {
    container_id: String,
    call: Call,
}

impl UnfinishedStarts {
    /// Makes the call. If this future is dropped, the call is kept for [`complete`](Self::complete).
    pub(crate) async fn call(
        &self,
        pod: PodUid,
        container_id: String,
        call: Call,
    ) -> Result<(), kubelet_cri::Error> {
        let call = Unfinished { container_id, call };
        let mut kept = Kept::new(self, pod, call);
        kept.completed().await.1
    }

    /// Completes the calls of a pod, and returns the ids of the containers that have started. If this future is dropped,
    /// the next one continues.
    pub(crate) async fn complete(&self, pod: &PodUid) -> Vec<String> {
        let calls = self.0.lock().remove(pod).unwrap_or_default();
        let mut kept: Vec<_> = calls
            .into_iter()
            .map(|call| Kept::new(self, pod.clone(), call))
            .collect();
        let completed = join_all(kept.iter_mut().map(Kept::completed)).await;
        let started = completed
            .into_iter()
            .filter_map(|(id, result)| result.is_ok().then_some(id));
        started.collect()
    }

    pub(crate) fn forget(&self, pod: &PodUid) {
        let calls = self.0.lock().remove(pod);
        // Outside of the lock.
        drop(calls);
    }
}

/// Returns its call to the others when it is dropped unfinished.
struct Kept<'a> {
    starts: &'a UnfinishedStarts,
    pod: PodUid,
    call: Option<Unfinished>,
}

impl<'a> Kept<'a> {
    fn new(starts: &'a UnfinishedStarts, pod: PodUid, call: Unfinished) -> Self {
        Self {
            starts,
            pod,
            call: Some(call),
        }
    }

    async fn completed(&mut self) -> (String, Result<(), kubelet_cri::Error>) {
        let Some(unfinished) = &mut self.call else {
            return (String::new(), Ok(()));
        };
        let result = unfinished.call.as_mut().await;
        let container_id = self.call.take().map(|call| call.container_id);
        (container_id.unwrap_or_default(), result)
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            let mut pods = self.starts.0.lock();
            pods.entry(self.pod.clone()).or_default().push(call);
        }
    }
}
