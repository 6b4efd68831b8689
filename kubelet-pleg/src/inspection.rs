//! The reading of one pod's status, side by side with that of others.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{AbortHandle, Aborted, BoxFuture, FutureExt, abortable, ready};
use futures::stream::FuturesUnordered;
use kubelet_core::runtime::{PodStatus, RuntimePod};
use kubelet_core::{Error, Result, RuntimeReader};
use tokio::sync::Semaphore;
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, timeout};

/// An inspection that has ended.
pub(crate) struct Inspected {
    /// The pod as it was listed.
    pub(crate) pod: Arc<RuntimePod>,
    /// When that list was begun: the status is at least as new.
    pub(crate) listed_at: Instant,
    pub(crate) status: Result<PodStatus>,
}

/// What became of an inspection at its start.
pub(crate) enum Start {
    /// The runtime had the status at hand.
    Ended(Inspected),
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

/// The inspections under way: at most so many at once, but for those that take long. These leave their place
/// to others, so that even many hung pods hold up nobody; there is never more than one for each pod.
pub(crate) struct Inspections {
    runtime: Arc<dyn RuntimeReader>,
    places: Arc<Semaphore>,
    /// How long an inspection holds its place.
    patience: Duration,
    deadline: Duration,
    pub(crate) running: FuturesUnordered<Reading>,
}

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
        }
    }

    pub(crate) fn start(&self, pod: Arc<RuntimePod>, listed_at: Instant) -> Start {
        let (runtime, places) = (self.runtime.clone(), self.places.clone());
        let (patience, deadline) = (self.patience, self.deadline);
        let read = pod.clone();
        let (inspection, abort) = abortable(async move {
            let status = inspect(&*runtime, &places, &pod, patience, deadline).await;
            Inspected {
                pod,
                listed_at,
                status,
            }
        });
        let mut call = inspection.boxed();
        match unconstrained(&mut call).now_or_never() {
            Some(Ok(inspected)) if inspected.status.is_ok() => return Start::Ended(inspected),
            // The next try must not come before this relist is over.
            Some(failed) => call = ready(failed).boxed(),
            None => {}
        }
        self.running.push(Reading {
            pod: read,
            since: Instant::now(),
            call,
        });
        Start::UnderWay(abort)
    }
}

async fn inspect(
    runtime: &dyn RuntimeReader,
    places: &Semaphore,
    pod: &RuntimePod,
    patience: Duration,
    deadline: Duration,
) -> Result<PodStatus> {
    let place = places.acquire().await;
    let mut call = pin!(timeout(deadline, runtime.pod_status(pod)));
    let answer = match timeout(patience, &mut call).await {
        Ok(answer) => answer,
        Err(_) => {
            drop(place);
            tracing::debug!(pod = %pod.key, uid = %pod.uid, "the status of the pod takes long to read");
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
