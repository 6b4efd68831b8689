//! The engine that keeps every pod's API status and tells the sink what changed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use kubelet_core::{Clock, PodStatusManager, PodStatusReporter, PodUid, StatusSink};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::NodeFacts;
use crate::handle::{Shared, StatusManagerHandle};
use crate::records::Outcome;
use crate::send::Sender;
use crate::token_bucket::RateLimit;

/// How often all statuses are looked through (`syncPeriod`).
const SYNC_PERIOD: Duration = Duration::from_secs(10);

/// How a [`StatusManager`] works.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StatusManagerConfig {
    /// What statuses say of the node; [`StatusManagerHandle::set_node_facts`] changes it later.
    pub node: NodeFacts,
    /// What gives the times that statuses bear; the operating system's clock by default.
    pub clock: Clock,
    /// How many pods are sent at a time, 16 by default. One pod is never sent twice at a time.
    pub max_in_flight: usize,
    /// How many requests a second are made of a sink that stores pods, an API server, 50 by default; 0 is no limit
    /// (`kubeAPIQPS`). A sink that stores none is told at once.
    pub qps: u32,
    /// How many requests may be made at once before `qps` holds, 100 by default (`kubeAPIBurst`).
    pub burst: u32,
    /// How long the sink may take over one call before it counts as failed, 30 s by default. While it takes
    /// that long it holds up no other pod, as long as fewer than `max_in_flight` are held up so.
    pub sink_timeout: Duration,
    /// How long what is still to be sent may take at shutdown, 5 s by default.
    pub shutdown_timeout: Duration,
}

impl Default for StatusManagerConfig {
    fn default() -> Self {
        Self {
            node: NodeFacts::default(),
            clock: Clock::system(),
            max_in_flight: 16,
            qps: 50,
            burst: 100,
            sink_timeout: Duration::from_secs(30),
            shutdown_timeout: Duration::from_secs(5),
        }
    }
}

/// Keeps each pod's API status and sends what changed to a [`StatusSink`].
///
/// What the manager holds is the truth, and the sink is brought to it: a changed status is sent at once, all
/// are looked through every 10 s, as long as something changes or is left to be done, and what failed is sent again with growing waits (0.5 s to 10 s). Whatever
/// happens to a pod between two sends is one patch, in memory there is one status per pod however slow the
/// sink is, and where nothing differs nothing is sent. The sink's calls for one pod never overlap.
///
/// A sink that stores pods is told of a change in one call: what it has is known from its last answer, or from the
/// source that reads pods there ([`observe_pod`](PodStatusReporter::observe_pod)). It is asked what it has only when
/// that is not known: of a static pod, and after a call that failed.
///
/// Answers to the kubelet's `status.Manager`.
pub struct StatusManager {
    sender: Sender,
    config: StatusManagerConfig,
    handle: StatusManagerHandle,
}

impl StatusManager {
    /// A manager that sends to `sink`, with the default configuration.
    pub fn new(sink: impl StatusSink) -> Self {
        Self::with_config(sink, StatusManagerConfig::default())
    }

    /// A manager that sends to `sink`. For the statuses, the agent counts as started now.
    pub fn with_config(sink: impl StatusSink, config: StatusManagerConfig) -> Self {
        let shared = Shared {
            records: Mutex::default(),
            changed: Notify::new(),
            touched: Notify::new(),
            node: RwLock::new(config.node.clone()),
            clock: config.clock,
            started_at: config.clock.now(),
        };
        Self {
            sender: Sender {
                sink: Box::new(sink),
                limit: RateLimit::new(config.qps, config.burst),
                timeout: config.sink_timeout,
                clock: config.clock,
                stores_nothing: AtomicBool::new(false),
            },
            config,
            handle: StatusManagerHandle(Arc::new(shared)),
        }
    }

    /// The handle for everyone else. It works, too, before the manager runs and after: nothing is sent then.
    pub fn handle(&self) -> StatusManagerHandle {
        self.handle.clone()
    }

    /// Sends what changed until `shutdown`; then what was not sent is tried once more, for no longer than
    /// [`shutdown_timeout`](StatusManagerConfig::shutdown_timeout).
    ///
    /// Spawns nothing: the sink's futures are polled here.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops what is being sent. The statuses stay with the handles.
    pub async fn run(self, shutdown: CancellationToken) {
        let shared = &*self.handle.0;
        let mut in_flight = FuturesUnordered::new();
        let mut period = tokio::time::interval(SYNC_PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (started, mut rests) = (Instant::now(), false);
        loop {
            self.start_sends(&mut in_flight, self.config.max_in_flight.max(1));
            let retry_at = shared.records.lock().next_retry();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some((uid, outcome)) = in_flight.next(), if !in_flight.is_empty() => {
                    shared.records.lock().finish(&uid, outcome, Instant::now());
                    wake(&mut rests, &mut period, started);
                }
                () = shared.changed.notified() => {}
                () = shared.touched.notified(), if rests => wake(&mut rests, &mut period, started),
                () = sleep_until(retry_at) => {}
                _ = period.tick(), if !rests => {
                    // What was told until now is looked through now.
                    let _ = shared.touched.notified().now_or_never();
                    // Where nothing is left to be done nothing will be, until something is told.
                    rests = !shared.records.lock().queue_outstanding();
                }
            }
        }

        let drain = async {
            shared.records.lock().queue_all();
            loop {
                self.start_sends(&mut in_flight, self.config.max_in_flight.max(1));
                let Some((uid, outcome)) = in_flight.next().await else {
                    break;
                };
                shared.records.lock().finish(&uid, outcome, Instant::now());
            }
        };
        if tokio::time::timeout(self.config.shutdown_timeout, drain)
            .await
            .is_err()
        {
            tracing::warn!("some statuses could not be sent before shutdown");
        }
    }

    fn start_sends<'a>(
        &'a self,
        in_flight: &mut FuturesUnordered<BoxFuture<'a, (PodUid, Outcome)>>,
        max: usize,
    ) {
        while in_flight.len() < max {
            let Some(job) = self.handle.0.records.lock().next(Instant::now()) else {
                return;
            };
            in_flight.push(Box::pin(async move {
                let uid = job.uid.clone();
                (uid, self.sender.send(job).await)
            }));
        }
    }
}

/// All are looked through again, in the beat that there was before the rest.
fn wake(rests: &mut bool, period: &mut Interval, started: Instant) {
    if std::mem::take(rests) {
        let beats = started
            .elapsed()
            .as_nanos()
            .div_ceil(SYNC_PERIOD.as_nanos())
            .max(1);
        let beats = u32::try_from(beats).unwrap_or(u32::MAX);
        period.reset_at(started + SYNC_PERIOD * beats);
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

impl fmt::Debug for StatusManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatusManager")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl PodStatusManager for StatusManager {
    fn reporter(&self) -> Arc<dyn PodStatusReporter> {
        Arc::new(self.handle())
    }

    async fn run(self: Box<Self>, shutdown: CancellationToken) {
        StatusManager::run(*self, shutdown).await;
    }
}
