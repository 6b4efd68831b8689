//! Whether the runtime can be worked with, as last seen.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::deadline::{RUNTIME_REQUEST_TIMEOUT, within};
use crate::runtime::{Readiness, Runtime, RuntimeStatus};
use crate::{Error, PlegHandle, Result};

/// The runtime's state, asked for every 5 s and known to all. A cheap handle. Answers to the kubelet's
/// `runtimeState`.
#[derive(Clone)]
pub struct RuntimeState {
    inner: Arc<Mutex<Inner>>,
    asked_once: CancellationToken,
}

#[derive(Default)]
struct Inner {
    ready_at: Option<Instant>,
    runtime_error: Option<String>,
    network_error: Option<String>,
    pleg: Option<Arc<dyn PlegHandle>>,
}

/// How often the runtime is asked for its status (`updateRuntimeUp` in `Kubelet.Run`).
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
                network_error: Some("network state unknown".to_owned()),
                ..Inner::default()
            })),
            asked_once: CancellationToken::new(),
        }
    }

    /// Nothing can be run, either, while this PLEG is not healthy (`addHealthCheck`).
    pub fn add_pleg(&self, pleg: Arc<dyn PlegHandle>) {
        self.inner.lock().pleg = Some(pleg);
    }

    /// Whether the PLEG is healthy; the error says since when not.
    pub fn pleg_healthy(&self) -> Result<()> {
        let pleg = self.inner.lock().pleg.clone();
        pleg.map_or(Ok(()), |pleg| pleg.healthy())
    }

    /// Waits until the runtime has been asked for the first time, whatever came of it.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn asked(&self) {
        self.asked_once.cancelled().await;
    }

    /// Why nothing can be run at present, if so (`runtimeErrors`): all of [`runtime_problems`](Self::runtime_problems).
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

    /// Each reason why nothing can be run at present, in the kubelet's words.
    pub fn runtime_problems(&self) -> Vec<String> {
        let inner = self.inner.lock();
        let mut problems = Vec::new();
        match inner.ready_at {
            None => problems.push("container runtime status check may not have completed yet".to_owned()),
            Some(ready_at) if ready_at.elapsed() > MAX_WAIT => {
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
        let mut period = tokio::time::interval(UPDATE_PERIOD);
        period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                _ = period.tick() => {}
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                status = within("runtime status", None, RUNTIME_REQUEST_TIMEOUT, runtime.status()) => self.update(status),
            }
            self.asked_once.cancel();
        }
    }

    fn update(&self, status: Result<RuntimeStatus>) {
        let mut inner = self.inner.lock();
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
    }
}

impl fmt::Debug for RuntimeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeState").finish_non_exhaustive()
    }
}
