//! The last known state of the runtime.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::deadline::{RUNTIME_REQUEST_TIMEOUT, within};
use crate::runtime::{Readiness, Runtime, RuntimeStatus};
use crate::{Error, PlegHandle, Result};

/// The state of the runtime, updated every 5 s ([configurable](crate::KubeletBuilder::runtime_status_period)). A cheap
/// handle. Answers to the kubelet's `runtimeState`.
#[derive(Clone)]
pub struct RuntimeState {
    inner: Arc<Mutex<Inner>>,
    /// How often the runtime was asked.
    asked: Arc<watch::Sender<u64>>,
    /// Requests that the runtime is asked now.
    ask: Arc<Notify>,
}

struct Inner {
    /// The period while the runtime is ready.
    period: Duration,
    ready_at: Option<Instant>,
    runtime_error: Option<String>,
    network_error: Option<String>,
    pleg: Option<Arc<dyn PlegHandle>>,
}

/// The default period (`updateRuntimeUp` in `Kubelet.Run`).
const UPDATE_PERIOD: Duration = Duration::from_secs(5);
/// How long the runtime may be silent before it counts as down (`maxWaitForContainerRuntime`).
const MAX_WAIT: Duration = Duration::from_secs(30);

impl Default for RuntimeState {
    fn default() -> Self {
        Self::new()
    }
}

impl RuntimeState {
    /// The runtime was not asked yet.
    pub fn new() -> Self {
        Self {
            inner: Arc::new(Mutex::new(Inner {
                period: UPDATE_PERIOD,
                ready_at: None,
                runtime_error: None,
                network_error: Some("network state unknown".to_owned()),
                pleg: None,
            })),
            asked: Arc::default(),
            ask: Arc::default(),
        }
    }

    /// Sets the period while the runtime is ready. Otherwise it is asked every 5 s.
    pub(crate) fn set_period(&self, period: Duration) {
        self.inner.lock().period = period;
    }

    /// Adds a PLEG: while it is unhealthy, the runtime counts as not ready (`addHealthCheck`).
    pub fn add_pleg(&self, pleg: Arc<dyn PlegHandle>) {
        self.inner.lock().pleg = Some(pleg);
    }

    /// Whether the PLEG is healthy. The error says since when it is not.
    pub fn pleg_healthy(&self) -> Result<()> {
        let pleg = self.inner.lock().pleg.clone();
        pleg.map_or(Ok(()), |pleg| pleg.healthy())
    }

    /// Waits until the runtime has been asked for the first time, whatever the result.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn asked(&self) {
        // This handle keeps the sender alive, and so the channel.
        let _ = self.asked.subscribe().wait_for(|times| *times > 0).await;
    }

    /// Requests that the runtime is asked now, regardless of the period, and waits for that. It waits while nothing
    /// runs this.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe; the request remains.
    pub async fn ask_now(&self) {
        let mut asked = self.asked.subscribe();
        self.ask.notify_one();
        let _ = asked.changed().await;
    }

    /// Why no pod can run at present, if so (`runtimeErrors`): all of [`runtime_problems`](Self::runtime_problems).
    pub fn runtime_errors(&self) -> Result<()> {
        let problems = self.runtime_problems();
        if problems.is_empty() {
            Ok(())
        } else {
            Err(Error::RuntimeNotReady {
                message: problems.join(", "),
            })
        }
    }

    /// Each reason why no pod can run at present, in the kubelet's words.
    pub fn runtime_problems(&self) -> Vec<String> {
        let inner = self.inner.lock();
        let mut problems = Vec::new();
        match inner.ready_at {
            None => problems.push("container runtime status check may not have completed yet".to_owned()),
            Some(ready_at) if ready_at.elapsed() > MAX_WAIT.max(inner.period * 2) => {
                problems.push("container runtime is down".to_owned());
            }
            Some(_) => {}
        }
        if let Some(Err(error)) = inner.pleg.as_ref().map(|pleg| pleg.healthy()) {
            problems.push(format!("PLEG is not healthy: {error}"));
        }
        problems.extend(inner.runtime_error.clone());
        problems
    }

    /// Why pods that are not on the host's network must wait, if so (`networkErrors`).
    pub fn network_errors(&self) -> Result<()> {
        match self.inner.lock().network_error.clone() {
            None => Ok(()),
            Some(message) => Err(Error::NetworkNotReady { message }),
        }
    }

    /// Asks the runtime until `shutdown`.
    pub(crate) async fn run(self, runtime: Arc<dyn Runtime>, shutdown: CancellationToken) {
        let mut next = pin!(tokio::time::sleep(Duration::ZERO));
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = &mut next => {}
                () = self.ask.notified() => {}
            }
            let asked = Instant::now();
            let rest = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                status = within("runtime status", None, RUNTIME_REQUEST_TIMEOUT, runtime.status()) => self.update(status),
            };
            self.asked.send_modify(|times| *times += 1);
            next.as_mut().reset((asked + rest).max(Instant::now()));
        }
    }

    /// Returns when to ask again.
    fn update(&self, status: Result<RuntimeStatus>) -> Duration {
        let mut inner = self.inner.lock();
        let was_told = status.is_ok();
        match status {
            Err(error) => tracing::error!(%error, "Container runtime sanity check failed"),
            Ok(RuntimeStatus {
                runtime_ready,
                network_ready,
            }) => {
                inner.network_error = match network_ready {
                    Readiness::Ready => None,
                    Readiness::NotReady(why) => Some(format!("container runtime network not ready: {why}")),
                };
                match runtime_ready {
                    Readiness::Ready => {
                        inner.runtime_error = None;
                        inner.ready_at = Some(Instant::now());
                    }
                    Readiness::NotReady(why) => {
                        inner.runtime_error = Some(format!("container runtime not ready: {why}"));
                    }
                }
            }
        }
        match was_told && inner.runtime_error.is_none() && inner.network_error.is_none() {
            true => inner.period,
            false => inner.period.min(UPDATE_PERIOD),
        }
    }
}

crate::impl_debug!(RuntimeState);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_that_is_well_is_asked_in_its_period_and_one_that_is_not_every_5_s() {
        let state = RuntimeState::new();
        let minute = Duration::from_secs(60);
        let not_ready = || Readiness::NotReady("drawn".to_owned());
        let status = |runtime_ready, network_ready| {
            Ok(RuntimeStatus {
                runtime_ready,
                network_ready,
            })
        };
        assert_eq!(
            state.update(status(Readiness::Ready, Readiness::Ready)),
            UPDATE_PERIOD
        );
        tokio::time::advance(MAX_WAIT + Duration::from_secs(1)).await;
        assert_eq!(state.runtime_problems(), ["container runtime is down"]);

        state.set_period(minute);
        assert_eq!(state.update(status(Readiness::Ready, Readiness::Ready)), minute);
        tokio::time::advance(minute * 2).await;
        assert!(state.runtime_errors().is_ok());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(state.runtime_problems(), ["container runtime is down"]);
        let failed = || Err(Error::runtime("Status", std::io::Error::other("away")));
        for trouble in [
            status(not_ready(), Readiness::Ready),
            status(Readiness::Ready, not_ready()),
            failed(),
        ] {
            assert_eq!(state.update(trouble), UPDATE_PERIOD);
        }
        state.set_period(Duration::from_secs(1));
        assert_eq!(state.update(failed()), Duration::from_secs(1));
    }
}
