//! The engine of the OOM watcher.

use std::sync::Arc;

use async_trait::async_trait;
use kubelet_core::{EventType, NodeEventRecorder};
use tokio_util::sync::CancellationToken;

use super::{OomKill, OomParser};
use crate::Result;

/// `systemOOMEvent`
const SYSTEM_OOM: &str = "SystemOOM";

/// The messages of the kernel.
#[async_trait]
pub trait KernelLog: Send {
    /// Waits for the next message. `None` if there will be no more.
    ///
    /// # Errors
    ///
    /// If the log cannot be read any more.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time; no message is lost.
    async fn next_message(&mut self) -> Result<Option<String>>;
}

/// Is called for each kill, in a cgroup or of the whole host. Any `Fn(&OomKill)` implements it. It must return at once.
pub trait OomListener: Send {
    /// A process was killed.
    fn killed(&self, kill: &OomKill);
}

impl<F: Fn(&OomKill) + Send> OomListener for F {
    fn killed(&self, kill: &OomKill) {
        self(kill);
    }
}

/// Emits the event `SystemOOM` about the node when the host runs out of memory and the kernel kills a process
/// (`oom.realWatcher`). A container that reaches its own limit is no such event, but its listeners are called.
pub struct OomWatcher {
    log: Box<dyn KernelLog>,
    recorder: Arc<dyn NodeEventRecorder>,
    listeners: Vec<Box<dyn OomListener>>,
}

impl OomWatcher {
    /// Watches this log. Events go to `recorder`.
    pub fn new(log: impl KernelLog + 'static, recorder: Arc<dyn NodeEventRecorder>) -> Self {
        Self {
            log: Box::new(log),
            recorder,
            listeners: Vec::new(),
        }
    }

    /// Calls this for each kill, e.g. to count kills of containers.
    #[must_use]
    pub fn listener(mut self, listener: impl OomListener + 'static) -> Self {
        self.listeners.push(Box::new(listener));
        self
    }

    /// Runs until `shutdown`, or until the log ends. Spawns no task.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time.
    pub async fn run(mut self, shutdown: CancellationToken) {
        shutdown.run_until_cancelled_owned(self.watch()).await;
    }

    async fn watch(&mut self) {
        let mut parser = OomParser::default();
        loop {
            match self.log.next_message().await {
                Ok(Some(message)) => {
                    if let Some(kill) = parser.read(&message) {
                        self.report(&kill);
                    }
                }
                Ok(None) => {
                    tracing::error!("Unexpectedly stopped receiving OOM notifications");
                    return;
                }
                Err(error) => {
                    tracing::error!(%error, "Unexpectedly stopped receiving OOM notifications");
                    return;
                }
            }
        }
    }

    fn report(&self, kill: &OomKill) {
        if kill.is_of_system() {
            tracing::info!(?kill, "Got sys oom event");
            let mut message = "System OOM encountered".to_owned();
            if !kill.process_name.is_empty() && kill.pid != 0 {
                message += &format!(", victim process: {}, pid: {}", kill.process_name, kill.pid);
            }
            self.recorder.record_node(EventType::Warning, SYSTEM_OOM, message);
        }
        for listener in &self.listeners {
            listener.killed(kill);
        }
    }
}

kubelet_core::impl_debug!(OomWatcher);
