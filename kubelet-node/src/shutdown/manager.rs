//! The manager: delays the shutdown of the host until the pods have ended.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use kubelet_core::{Clock, EventType, NodeEventRecorder, PodExt};
use tokio::sync::Mutex;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::plan::{ShutdownGracePeriods, ShutdownGroup, terminated};
use super::pods::ShutdownPods;
use super::source::{Inhibitor, ShutdownEvent, ShutdownSource};
use super::state::NodeShutdown;
use super::state_file::{LastShutdown, StateFile};
use super::trigger::ShutdownTrigger;
use crate::{Error, Result};

/// `events.NodeShutdown`
const EVENT: &str = "NodeShutdown";
/// `dbusReconnectPeriod`
const RECONNECT_PERIOD: Duration = Duration::from_secs(1);
/// The longest time between two attempts, if the source cannot be watched. The kubelet does not try again if the first attempt
/// fails, and tries every second later.
const LONGEST_RECONNECT_PERIOD: Duration = Duration::from_secs(300);
/// How often it is checked whether a longer delay has taken effect, and how long it waits the first time; each time twice as
/// long.
const DELAY_CHECKS: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// What the manager works with.
#[derive(Clone)]
pub struct ShutdownParts {
    pods: Arc<dyn ShutdownPods>,
    recorder: Arc<dyn NodeEventRecorder>,
    sync_node_status: Arc<dyn Fn() + Send + Sync>,
    state_folder: Option<PathBuf>,
    clock: Clock,
}

impl ShutdownParts {
    /// Ends these pods, and records events about the node.
    pub fn new(pods: Arc<dyn ShutdownPods>, recorder: Arc<dyn NodeEventRecorder>) -> Self {
        Self {
            pods,
            recorder,
            sync_node_status: Arc::new(|| {}),
            state_folder: None,
            clock: Clock::system(),
        }
    }

    /// Is called when a shutdown begins, so that the node is reported as not ready at once (`SyncNodeStatusFunc`). It must
    /// return at once.
    #[must_use]
    pub fn sync_node_status(mut self, sync: impl Fn() + Send + Sync + 'static) -> Self {
        self.sync_node_status = Arc::new(sync);
        self
    }

    /// The folder of the file that keeps when the last shutdown began and ended, e.g. `/var/lib/kubelet`. By default, it is
    /// not kept.
    #[must_use]
    pub fn state_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.state_folder = Some(folder.into());
        self
    }

    /// The time of conditions and of the state file.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }
}

/// Ends the pods of a host that shuts down, group by group (`nodeshutdown.managerImpl`).
///
/// It holds a lock that delays the shutdown. When the host wants to shut down, the node is not ready and admits no pods; then
/// the pods end, and the lock is released. A cancelled shutdown makes the node ready again.
pub struct ShutdownManager {
    periods: ShutdownGracePeriods,
    parts: ShutdownParts,
    state: NodeShutdown,
    calls: Option<ShutdownTrigger>,
    /// Events of the source and of calls are processed one after the other.
    processing: Mutex<()>,
}

impl ShutdownManager {
    /// A manager that reports to `state`.
    pub fn new(periods: ShutdownGracePeriods, parts: ShutdownParts, state: NodeShutdown) -> Self {
        Self {
            periods,
            parts,
            state,
            calls: None,
            processing: Mutex::default(),
        }
    }

    /// Also shuts the node down upon these calls, whether or not the source of [`run`](Self::run) can be watched.
    #[must_use]
    pub fn calls(mut self, trigger: &ShutdownTrigger) -> Self {
        self.calls = Some(trigger.served());
        self
    }

    /// Runs until `shutdown`, which is that of the agent, not of the host. Connects again when the connection is lost, and
    /// tries again, more and more rarely, if the source cannot be watched. Without grace periods it does nothing. Spawns no
    /// task.
    ///
    /// # Cancel safety
    ///
    /// When it is dropped, the host no longer waits for the pods.
    pub async fn run(mut self, source: impl ShutdownSource, shutdown: CancellationToken) {
        let calls = self.calls.take();
        if self.periods.is_off() {
            drop(calls);
            shutdown.cancelled().await;
            return;
        }
        let watch = async {
            self.show_last();
            tokio::join!(self.watch_always(source), self.answer(calls));
        };
        shutdown.run_until_cancelled(watch).await;
    }

    /// Watches the source, and again when the connection is lost. The host waits meanwhile: a lock is held until another one is
    /// taken (`acquireInhibitLock`).
    async fn watch_always(&self, mut source: impl ShutdownSource) {
        let (mut lock, mut period, mut logged) = (None, RECONNECT_PERIOD, String::new());
        loop {
            match self.watch(&mut source, &mut lock).await {
                Ok(()) => {
                    tracing::error!("Ended to watching the node for shutdown events");
                    (period, logged) = (RECONNECT_PERIOD, String::new());
                    sleep(period).await;
                }
                Err(error) => {
                    let problem = error.to_string();
                    if problem == logged {
                        tracing::debug!(%error, "Unable to watch the node for shutdown events");
                    } else {
                        tracing::error!(%error, "Unable to watch the node for shutdown events");
                        logged = problem;
                    }
                    sleep(period).await;
                    period = (period * 2).min(LONGEST_RECONNECT_PERIOD);
                }
            }
        }
    }

    /// Watches until the connection is lost (`start`).
    async fn watch(
        &self,
        source: &mut impl ShutdownSource,
        lock: &mut Option<Box<dyn Inhibitor>>,
    ) -> Result<()> {
        source.connect().await?;
        self.allow_delay(source).await?;
        *lock = Some(source.inhibit_shutdown().await?);
        while let Some(event) = source.next_event().await {
            self.process(event).await;
            match event {
                ShutdownEvent::ShuttingDown => *lock = None,
                ShutdownEvent::Cancelled => match source.inhibit_shutdown().await {
                    Ok(new) => *lock = Some(new),
                    Err(error) => tracing::error!(%error, "Unable to delay the next shutdown"),
                },
            }
        }
        Ok(())
    }

    /// Processes the calls.
    async fn answer(&self, calls: Option<ShutdownTrigger>) {
        let Some(mut calls) = calls else { return };
        while let Some(event) = calls.next_event().await {
            self.process(event).await;
        }
    }

    /// Reports the event; ends the pods if the host shuts down.
    async fn process(&self, event: ShutdownEvent) {
        let _one_at_a_time = self.processing.lock().await;
        let is_shutting_down = event == ShutdownEvent::ShuttingDown;
        let message = match event {
            ShutdownEvent::ShuttingDown => "Shutdown manager detected shutdown event",
            ShutdownEvent::Cancelled => "Shutdown manager detected shutdown cancellation",
        };
        tracing::info!("{message}");
        self.parts
            .recorder
            .record_node(EventType::Normal, EVENT, message.to_owned());
        self.state.set(is_shutting_down);
        if is_shutting_down {
            (self.parts.sync_node_status)();
            self.end_pods().await;
            tracing::info!(
                "Shutdown manager completed processing shutdown event, node will shutdown shortly"
            );
        }
    }

    /// Asks for a longer delay, if pods may take longer than the host waits.
    async fn allow_delay(&self, source: &mut impl ShutdownSource) -> Result<()> {
        let needed = self.periods.total();
        let mut current = source.current_inhibit_delay().await?;
        if needed <= current {
            return Ok(());
        }
        source.override_inhibit_delay(needed).await?;
        let mut wait = FIRST_WAIT;
        for check in 1..=DELAY_CHECKS {
            current = source.current_inhibit_delay().await?;
            if needed <= current {
                return Ok(());
            }
            if check < DELAY_CHECKS {
                sleep(wait).await;
                wait *= 2;
            }
        }
        Err(Error::Shutdown {
            problem: format!(
                "node shutdown manager was timed out after {DELAY_CHECKS} attempts waiting for logind InhibitDelayMaxSec to update \
                 to {needed:?} (ShutdownGracePeriod), current value is {current:?}"
            ),
        })
    }

    /// `processShutdownEvent`
    async fn end_pods(&self) {
        let start = Some(self.parts.clock.now());
        self.keep(LastShutdown { start, end: None });
        for group in self.periods.groups(&self.parts.pods.active_pods()) {
            self.end_group(&group).await;
        }
        let end = Some(self.parts.clock.now());
        self.keep(LastShutdown { start, end });
    }

    /// Ends the pods of a group at the same time, and waits until their volumes are unmounted, so that the drivers of the next
    /// group are not needed any more. Pods that take too long continue to end.
    async fn end_group(&self, group: &ShutdownGroup) {
        let (priority, grace_period) = (group.priority, group.grace_period);
        let ended = async {
            let kills = group.pods.iter().map(|(pod, grace_period)| async move {
                let (key, uid) = (pod.key(), pod.uid_str());
                tracing::info!(pod = %key, uid, ?grace_period, "Shutdown manager killing pod with gracePeriod");
                let (subject, now) = (pod.clone(), self.parts.clock.api_now());
                let status_fn = Arc::new(move |status: &mut _| terminated(&subject, status, &now));
                match self.parts.pods.kill(pod, *grace_period, status_fn).await {
                    Ok(()) => tracing::info!(pod = %key, uid, "Shutdown manager finished killing pod"),
                    Err(error) => tracing::info!(pod = %key, uid, %error, "Shutdown manager failed killing pod"),
                }
            });
            join_all(kills).await;
            join_all(
                group
                    .pods
                    .iter()
                    .map(|(pod, _)| self.parts.pods.wait_for_unmount(pod)),
            )
            .await;
        };
        match timeout(grace_period, ended).await {
            Ok(()) => tracing::info!(
                priority,
                ?grace_period,
                "Done waiting for all pods in group to terminate"
            ),
            Err(_) => tracing::info!(priority, ?grace_period, "Shutdown manager pod killing time out"),
        }
    }

    /// Shows when the last shutdown was, from before the agent started (`setMetrics`).
    fn show_last(&self) {
        let Some(folder) = &self.parts.state_folder else {
            return;
        };
        match StateFile::new(folder).load() {
            Ok(last) => {
                if last.start.is_some() {
                    show(last);
                }
            }
            Err(error) => tracing::error!(%error, "Failed to load graceful shutdown state"),
        }
    }

    fn keep(&self, last: LastShutdown) {
        show(last);
        let Some(folder) = &self.parts.state_folder else {
            return;
        };
        if let Err(error) = StateFile::new(folder).store(last) {
            tracing::error!(%error, "Failed to store graceful shutdown state");
        }
    }
}

/// Sets the metrics; a shutdown that has not ended ends at 0.
fn show(last: LastShutdown) {
    let seconds =
        |time: Option<k8s_openapi::jiff::Timestamp>| time.map_or(0.0, |time| time.as_second() as f64);
    metrics::gauge!("kubelet_graceful_shutdown_start_time_seconds").set(seconds(last.start));
    metrics::gauge!("kubelet_graceful_shutdown_end_time_seconds").set(seconds(last.end));
}

kubelet_core::impl_debug!(ShutdownManager: periods, state);

kubelet_core::impl_debug!(ShutdownParts);
