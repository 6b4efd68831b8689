//! The engine that keeps every pod's API status and tells the sink what changed.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};
use k8s_openapi::jiff::Timestamp;
use kubelet_core::{
    Clock, ContainerId, PodExt, PodStatusInput, PodStatusManager, PodStatusReporter, PodUid, StatusSink,
};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::records::{Now, Outcome, Records};
use crate::send::send;
use crate::{NodeFacts, generate_api_pod_status};

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
    /// How long the sink may take over one pod before it counts as failed, 30 s by default. While it takes
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
            sink_timeout: Duration::from_secs(30),
            shutdown_timeout: Duration::from_secs(5),
        }
    }
}

/// Keeps each pod's API status and sends what changed to a [`StatusSink`].
///
/// What the manager holds is the truth, and the sink is brought to it: a changed status is sent at once, all
/// are looked through every 10 s, and what failed is sent again with growing waits (0.5 s to 10 s). Whatever
/// happens to a pod between two sends is one patch, in memory there is one status per pod however slow the
/// sink is, and where nothing differs nothing is sent. The sink's calls for one pod never overlap.
///
/// Answers to the kubelet's `status.Manager`.
pub struct StatusManager {
    sink: Box<dyn StatusSink>,
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
            node: RwLock::new(config.node.clone()),
            clock: config.clock,
            started_at: config.clock.now(),
        };
        Self {
            sink: Box::new(sink),
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
        loop {
            self.start_sends(&mut in_flight, self.config.max_in_flight.max(1));
            let retry_at = shared.records.lock().next_retry();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some((uid, outcome)) = in_flight.next(), if !in_flight.is_empty() => {
                    shared.records.lock().finish(&uid, outcome, Instant::now());
                }
                () = shared.changed.notified() => {}
                () = sleep_until(retry_at) => {}
                _ = period.tick() => shared.records.lock().queue_outstanding(),
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
            let timeout = self.config.sink_timeout;
            in_flight.push(Box::pin(async move {
                let uid = job.uid.clone();
                (uid, send(&*self.sink, job, timeout, &self.handle.0.clock).await)
            }));
        }
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

/// What the rest of an agent tells and asks the [`StatusManager`]. Cheap to clone; no call waits.
#[derive(Clone)]
pub struct StatusManagerHandle(Arc<Shared>);

struct Shared {
    records: Mutex<Records>,
    /// Some pod has something to be sent.
    changed: Notify,
    node: RwLock<NodeFacts>,
    clock: Clock,
    started_at: Timestamp,
}

impl StatusManagerHandle {
    /// The node's IPs or abilities changed: what is generated from now on says so.
    pub fn set_node_facts(&self, node: NodeFacts) {
        *self.0.node.write() = node;
    }

    /// Applies a change, and wakes the manager if there is something to send.
    fn change(&self, change: impl FnOnce(&mut Records, &Now) -> Result<bool, Error>) {
        let now = Now {
            wall: self.0.clock.api_now(),
            instant: Instant::now(),
        };
        let result = change(&mut self.0.records.lock(), &now);
        match result {
            Ok(true) => self.0.changed.notify_one(),
            Ok(false) => {}
            Err(error) => tracing::error!(%error, "status update aborted"),
        }
    }
}

impl PodStatusReporter for StatusManagerHandle {
    fn generate(&self, input: &PodStatusInput<'_>) -> ApiPodStatus {
        let reported = self.pod_status(&input.pod.uid());
        let no_status = ApiPodStatus::default();
        let previous = reported
            .as_deref()
            .or(input.pod.status.as_ref())
            .unwrap_or(&no_status);
        generate_api_pod_status(input, previous, &self.0.node.read(), self.0.started_at)
    }

    fn pod_status(&self, uid: &PodUid) -> Option<Arc<ApiPodStatus>> {
        self.0.records.lock().status(uid).cloned()
    }

    fn set_pod_status(&self, pod: &Arc<Pod>, status: ApiPodStatus) {
        self.change(|records, now| records.set_pod_status(pod, status, now));
    }

    fn terminate_pod(&self, pod: &Arc<Pod>) {
        self.change(|records, now| records.terminate_pod(pod, now));
    }

    fn set_container_readiness(&self, uid: &PodUid, container: &ContainerId, ready: bool) {
        self.change(|records, now| records.set_container_readiness(uid, container, ready, now));
    }

    fn set_container_startup(&self, uid: &PodUid, container: &ContainerId, started: bool) {
        self.change(|records, now| records.set_container_startup(uid, container, started, now));
    }

    fn observe_pod(&self, pod: &Arc<Pod>) {
        self.change(|records, _| Ok(records.observe_pod(pod)));
    }

    fn remove_orphaned_statuses(&self, known: &HashSet<PodUid>) {
        self.change(|records, _| Ok(records.remove_orphaned(known)));
    }
}

impl fmt::Debug for StatusManagerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatusManagerHandle").finish_non_exhaustive()
    }
}
