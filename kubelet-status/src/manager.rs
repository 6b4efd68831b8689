//! The engine that keeps every pod's API status and sends changes to the sink.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use kubelet_core::{Clock, PodStatusManager, PodStatusReporter, PodUid, RateLimit, StatusSink};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::NodeFacts;
use crate::handle::{Shared, StatusManagerHandle};
use crate::records::Outcome;
use crate::send::Sender;

/// How often all statuses are checked (`syncPeriod`).
const SYNC_PERIOD: Duration = Duration::from_secs(10);

/// The configuration of a [`StatusManager`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StatusManagerConfig {
    /// Facts about the node for statuses; [`StatusManagerHandle::set_node_facts`] changes them later.
    pub node: NodeFacts,
    /// The clock for times in statuses; by default the operating system's.
    pub clock: Clock,
    /// How many pods are sent in parallel, 16 by default. The requests for one pod never overlap.
    pub max_in_flight: usize,
    /// The maximum number of requests per second to a sink that stores pods (an API server), 50 by default; 0 is no
    /// limit (`kubeAPIQPS`). Sinks that store no pods have no limit.
    pub qps: u32,
    /// How many requests can be made at once before `qps` applies, 100 by default (`kubeAPIBurst`).
    pub burst: u32,
    /// The time limit of one call to the sink, 30 s by default. A slow call delays no other pod as long as fewer than
    /// `max_in_flight` calls are slow.
    pub sink_timeout: Duration,
    /// The time limit for sending pending statuses at shutdown, 5 s by default.
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

/// Keeps each pod's API status and sends changes to a [`StatusSink`].
///
/// The manager's status is authoritative, and the sink is updated to match it. A changed status is sent at once. A
/// failed request is retried after 0.5 s to 10 s, with increasing waits. While anything changes or is pending, all
/// statuses are checked every 10 s. All changes of a pod between two requests are one patch; a status without changes
/// is not sent. There is one status per pod in memory, however slow the sink is. The requests for one pod never
/// overlap.
///
/// For a sink that stores pods, a change takes one request: the stored pod is known from the last response, or from the
/// source that reads pods from there ([`observe_pod`](PodStatusReporter::observe_pod)). The manager reads the pod first
/// only when it is unknown: for a static pod, and after a failed request.
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

    /// A manager that sends to `sink`. Statuses use the current time as the start of the agent.
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
                limit: RateLimit::new(config.qps, config.burst.max(1)),
                timeout: config.sink_timeout,
                clock: config.clock,
                stores_nothing: AtomicBool::new(false),
            },
            config,
            handle: StatusManagerHandle(Arc::new(shared)),
        }
    }

    /// The handle for other parts. It also works before the manager runs and after it ended; nothing is sent then.
    pub fn handle(&self) -> StatusManagerHandle {
        self.handle.clone()
    }

    /// Sends changes until `shutdown`. It then tries once more to send what is pending, for at most
    /// [`shutdown_timeout`](StatusManagerConfig::shutdown_timeout).
    ///
    /// Spawns no tasks: the sink's futures are polled here.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the running requests. The handles keep the statuses.
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
                    // Everything reported so far is included in this check.
                    let _ = shared.touched.notified().now_or_never();
                    // If nothing is pending, nothing will be until a call arrives.
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
            tracing::warn!("Some statuses were not sent before shutdown");
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

/// Checks all statuses again, at the times at which it would have without the idle time.
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

kubelet_core::impl_debug!(StatusManager: config);

#[async_trait]
impl PodStatusManager for StatusManager {
    fn reporter(&self) -> Arc<dyn PodStatusReporter> {
        Arc::new(self.handle())
    }

    async fn run(self: Box<Self>, shutdown: CancellationToken) {
        StatusManager::run(*self, shutdown).await;
    }
}
