//! Lists single pods, several at once.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::FuturesUnordered;
use kubelet_core::runtime::RuntimePod;
use kubelet_core::{Error, PodUid, Result, RuntimeReader};
use rustc_hash::FxHashSet;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::shared::Shared;

/// One pod listed alone.
pub(crate) struct PodListed {
    pub(crate) uid: PodUid,
    pub(crate) started: Instant,
    pub(crate) pod: Result<Option<Arc<RuntimePod>>>,
}

/// A pod that is being listed alone.
pub(crate) struct PodList {
    pub(crate) uid: PodUid,
    pub(crate) started: Instant,
    call: BoxFuture<'static, Result<Option<Arc<RuntimePod>>>>,
}

impl Future for PodList {
    type Output = PodListed;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<PodListed> {
        let this = &mut *self;
        this.call.poll_unpin(context).map(|pod| PodListed {
            uid: this.uid.clone(),
            started: this.started,
            pod,
        })
    }
}

/// The lists under way. At most so many run at once, not counting those that take long: these give their place to others,
/// and request a list of all pods instead. There is never more than one for each pod.
pub(crate) struct PodLists {
    runtime: Arc<dyn RuntimeReader>,
    shared: Arc<Shared>,
    places: Arc<Semaphore>,
    /// How long a list holds its place.
    patience: Duration,
    deadline: Duration,
    under_way: FxHashSet<PodUid>,
    pub(crate) running: FuturesUnordered<PodList>,
}

impl PodLists {
    pub(crate) fn new(
        runtime: Arc<dyn RuntimeReader>,
        shared: Arc<Shared>,
        max_concurrent: usize,
        patience: Duration,
        deadline: Duration,
    ) -> Self {
        Self {
            runtime,
            shared,
            places: Arc::new(Semaphore::new(max_concurrent.clamp(1, Semaphore::MAX_PERMITS))),
            patience,
            deadline,
            under_way: FxHashSet::default(),
            running: FuturesUnordered::new(),
        }
    }

    /// Lists the pods that were requested and that list number `served` did not show, as far as there are places.
    pub(crate) fn start(&mut self, served: u64) {
        let limit = self.places.available_permits();
        let asked = self
            .shared
            .take_relists(served, limit, |uid| self.under_way.contains(uid));
        for uid in asked {
            self.under_way.insert(uid.clone());
            let (runtime, shared) = (self.runtime.clone(), self.shared.clone());
            let place = self.places.clone().try_acquire_owned();
            let (patience, deadline, pod) = (self.patience, self.deadline, uid.clone());
            let call = async move {
                let mut call = pin!(timeout(deadline, runtime.pod(&pod)));
                let answer = match timeout(patience, &mut call).await {
                    Ok(answer) => answer,
                    Err(_) => {
                        drop(place);
                        tracing::debug!(uid = %pod, "listing a single pod takes long");
                        shared.ask_list();
                        call.await
                    }
                };
                answer.unwrap_or(Err(Error::Timeout {
                    what: "GetPod",
                    pod: Some(pod.clone()),
                    after: deadline,
                }))
            };
            self.running.push(PodList {
                uid,
                started: Instant::now(),
                call: call.boxed(),
            });
        }
    }

    /// The list of this pod has ended; it may be listed again.
    pub(crate) fn ended(&mut self, uid: &PodUid) {
        self.under_way.remove(uid);
    }

    /// Cancels what is under way, and requests that list number `list` shows these pods.
    pub(crate) fn give_way(&mut self, list: u64) {
        self.running.clear();
        for uid in self.under_way.drain() {
            self.shared.ask_relist_again(uid, list);
        }
    }
}
