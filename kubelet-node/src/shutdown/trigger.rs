//! Shutdowns on hosts without logind: somebody calls.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::source::{Inhibitor, ShutdownEvent, ShutdownSource};
use crate::Result;

/// Shuts a node down by a call, e.g. upon a signal, or from the init system of the host. Clones share the state: pass one to
/// the manager, and keep another.
#[derive(Clone, Debug, Default)]
pub struct ShutdownTrigger {
    shared: Arc<Shared>,
    /// Set in the clone of the manager.
    serving: Option<Arc<Serving>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The last event, if the manager has not received it yet.
    event: Option<ShutdownEvent>,
    /// Dropped when the pods have ended.
    waiting: Vec<oneshot::Sender<()>>,
    /// The manager ends the pods for these.
    served: Vec<oneshot::Sender<()>>,
    /// How many managers serve calls.
    managers: usize,
    /// A manager has served calls, and no other does now.
    has_ended: bool,
}

/// A manager serves calls until this is dropped. Then nobody waits for it any longer.
#[derive(Debug)]
struct Serving {
    shared: Arc<Shared>,
}

impl Serving {
    fn start(shared: Arc<Shared>) -> Arc<Self> {
        {
            let mut state = shared.state.lock();
            state.managers += 1;
            state.has_ended = false;
        }
        Arc::new(Self { shared })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.managers -= 1;
        if state.managers == 0 {
            *state = State {
                has_ended: true,
                ..State::default()
            };
        }
    }
}

impl ShutdownTrigger {
    /// A trigger that nobody has called.
    pub fn new() -> Self {
        Self::default()
    }

    /// The clone for a manager. When it is dropped, and with it the manager, calls of [`shut_down`](Self::shut_down) return.
    #[must_use]
    pub fn served(&self) -> Self {
        let shared = self.shared.clone();
        Self {
            serving: Some(Serving::start(shared.clone())),
            shared,
        }
    }

    /// Shuts the node down. Returns when its pods have ended, or their time is over, or the manager has ended. A call before
    /// the manager runs waits for it.
    ///
    /// # Cancel safety
    ///
    /// When the call is dropped, the shutdown goes on.
    pub async fn shut_down(&self) {
        let (done, ended) = oneshot::channel();
        {
            let mut state = self.shared.state.lock();
            if state.has_ended {
                return;
            }
            state.event = Some(ShutdownEvent::ShuttingDown);
            state.waiting.push(done);
        }
        self.shared.changed.notify_one();
        // Dropped when the manager asks for the next event, or ends.
        let _ = ended.await;
    }

    /// The host does not shut down after all: the node is ready again. Pods that have ended stay so.
    pub fn cancel(&self) {
        self.shared.state.lock().event = Some(ShutdownEvent::Cancelled);
        self.shared.changed.notify_one();
    }
}

/// Callers wait for the next call of the manager instead.
struct NoLock;

impl Inhibitor for NoLock {}

#[async_trait]
impl ShutdownSource for ShutdownTrigger {
    async fn connect(&mut self) -> Result<()> {
        if self.serving.is_none() {
            self.serving = Some(Serving::start(self.shared.clone()));
        }
        Ok(())
    }

    /// The caller waits as long as it takes.
    async fn current_inhibit_delay(&mut self) -> Result<Duration> {
        Ok(Duration::MAX)
    }

    async fn override_inhibit_delay(&mut self, _: Duration) -> Result<()> {
        Ok(())
    }

    async fn inhibit_shutdown(&mut self) -> Result<Box<dyn Inhibitor>> {
        Ok(Box::new(NoLock))
    }

    async fn next_event(&mut self) -> Option<ShutdownEvent> {
        self.shared.state.lock().served.clear();
        loop {
            {
                let mut state = self.shared.state.lock();
                if let Some(event) = state.event.take() {
                    state.served = std::mem::take(&mut state.waiting);
                    return Some(event);
                }
            }
            self.shared.changed.notified().await;
        }
    }
}
