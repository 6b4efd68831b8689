//! Reads the statuses of pods, several at once.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{AbortHandle, Aborted, BoxFuture, FutureExt, abortable, pending, ready};
use futures::stream::FuturesUnordered;
use kubelet_core::runtime::{PodStatus, RuntimePod};
use kubelet_core::{Error, Result, RuntimeReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, timeout};
use tokio_util::sync::ReusableBoxFuture;

/// An inspection that has ended.
pub(crate) struct Inspected {
    /// The pod as it was listed.
    pub(crate) pod: Arc<RuntimePod>,
    /// When that list was begun: the status is at least as new.
    pub(crate) listed_at: Instant,
    pub(crate) status: Result<Arc<PodStatus>>,
}

/// How an inspection started.
pub(crate) enum Start {
    /// The runtime answered at once.
    Ended(Arc<PodStatus>),
    UnderWay(AbortHandle),
}

/// The reading of a pod's status, until it has ended or is aborted.
pub(crate) struct Reading {
    pub(crate) pod: Arc<RuntimePod>,
    pub(crate) since: Instant,
    call: BoxFuture<'static, Result<Inspected, Aborted>>,
}

impl Future for Reading {
    type Output = Result<Inspected, Aborted>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.call.poll_unpin(context)
    }
}

/// The inspections under way. At most so many run at once, not counting those that take long: these give their place to
/// others, so that pods that hang do not delay the rest. There is never more than one for each pod.
pub(crate) struct Inspections {
    runtime: Arc<dyn RuntimeReader>,
    places: Arc<Semaphore>,
    /// How long an inspection holds its place.
    patience: Duration,
    deadline: Duration,
    pub(crate) running: FuturesUnordered<Reading>,
    /// Polls a status call for the first time. Most runtimes answer at once; then its memory serves the next call.
    at_hand: Call,
}

type Call = ReusableBoxFuture<'static, Result<Arc<PodStatus>>>;

impl Inspections {
    pub(crate) fn new(
        runtime: Arc<dyn RuntimeReader>,
        max_concurrent: usize,
        patience: Duration,
        deadline: Duration,
    ) -> Self {
        Self {
            runtime,
            places: Arc::new(Semaphore::new(max_concurrent.clamp(1, Semaphore::MAX_PERMITS))),
            patience,
            deadline,
            running: FuturesUnordered::new(),
            at_hand: ReusableBoxFuture::new(pending()),
        }
    }

    pub(crate) fn start(&mut self, pod: &Arc<RuntimePod>, listed_at: Instant) -> Start {
        let (runtime, read) = (self.runtime.clone(), pod.clone());
        let call = async move { runtime.pod_status(&read).await };
        let limits = (self.patience, self.deadline);
        if self.places.available_permits() == 0 {
            let (places, waiting) = (self.places.clone(), pod.clone());
            return self.wait(pod, listed_at, async move {
                let place = places.acquire_owned().await.ok();
                within(waiting, limits, place, call).await
            });
        }
        self.at_hand.set(call);
        match unconstrained(&mut self.at_hand).now_or_never() {
            Some(Ok(status)) => Start::Ended(status),
            // The next try must not come before this relist is over.
            Some(Err(error)) => self.wait(pod, listed_at, ready(Err(error))),
            None => {
                let call = std::mem::replace(&mut self.at_hand, ReusableBoxFuture::new(pending()));
                let place = self.places.clone().try_acquire_owned().ok();
                self.wait(pod, listed_at, within(pod.clone(), limits, place, call))
            }
        }
    }

    fn wait(
        &self,
        pod: &Arc<RuntimePod>,
        listed_at: Instant,
        status: impl Future<Output = Result<Arc<PodStatus>>> + Send + 'static,
    ) -> Start {
        let read = pod.clone();
        let (call, abort) = abortable(async move {
            let status = status.await;
            Inspected {
                pod: read,
                listed_at,
                status,
            }
        });
        self.running.push(Reading {
            pod: pod.clone(),
            since: Instant::now(),
            call: call.boxed(),
        });
        Start::UnderWay(abort)
    }
}

/// The answer, if it comes before the deadline; the place is given up earlier, when patience is at its end.
async fn within(
    pod: Arc<RuntimePod>,
    (patience, deadline): (Duration, Duration),
    place: Option<OwnedSemaphorePermit>,
    call: impl Future<Output = Result<Arc<PodStatus>>>,
) -> Result<Arc<PodStatus>> {
    let mut call = pin!(timeout(deadline, call));
    let answer = match timeout(patience, &mut call).await {
        Ok(answer) => answer,
        Err(_) => {
            drop(place);
            tracing::debug!(pod = %pod.key, uid = %pod.uid, "reading the status of the pod takes long");
            call.await
        }
    };
    answer.unwrap_or_else(|_| {
        Err(Error::Timeout {
            what: "GetPodStatus",
            pod: Some(pod.uid.clone()),
            after: deadline,
        })
    })
}
