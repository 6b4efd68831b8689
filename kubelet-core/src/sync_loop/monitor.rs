//! The health of the sync loop.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{Error, Result};

/// The minimum time after which a loop counts as stuck (`SyncLoopHealthCheck`).
const SHORTEST: Duration = Duration::from_secs(2 * 60);

/// Stores when the sync loop last iterated (`syncLoopMonitor`). Clones share it.
#[derive(Clone, Debug, Default)]
pub struct SyncLoopMonitor {
    /// The time of the last iteration, or of the next one while the loop is idle.
    beaten_at: Arc<Mutex<Option<Instant>>>,
}

impl SyncLoopMonitor {
    pub(super) fn beat(&self) {
        self.rest_until(Instant::now());
    }

    /// The loop is idle until then, unless an event arrives.
    pub(super) fn rest_until(&self, at: Instant) {
        *self.beaten_at.lock() = Some(at);
    }

    /// Whether the loop iterated within twice the resync interval, and two minutes at least. An idle loop, and one that
    /// has not started, count as healthy. The loop does not iterate while the runtime is not ready
    /// (`SyncLoopHealthCheck`).
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if it did not iterate.
    pub fn healthy(&self, resync_interval: Duration) -> Result<()> {
        let patience = (resync_interval * 2).max(SHORTEST);
        match *self.beaten_at.lock() {
            Some(beaten_at) if beaten_at.elapsed() > patience => Err(Error::Timeout {
                what: "the sync loop",
                pod: None,
                after: patience,
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_does_not_go_round_is_not_healthy() {
        let monitor = SyncLoopMonitor::default();
        let minute = Duration::from_secs(60);
        tokio::time::advance(10 * minute).await;
        assert!(monitor.healthy(minute).is_ok(), "it has not begun");
        monitor.beat();
        tokio::time::advance(2 * minute).await;
        assert!(monitor.healthy(Duration::from_secs(1)).is_ok());
        tokio::time::advance(minute).await;
        assert!(monitor.healthy(minute).is_err());
        assert!(monitor.healthy(2 * minute).is_ok());
        monitor.rest_until(Instant::now() + 5 * minute);
        tokio::time::advance(7 * minute).await;
        assert!(monitor.healthy(minute).is_ok(), "it rested, and is not late");
        tokio::time::advance(minute).await;
        assert!(monitor.healthy(minute).is_err());
        monitor.beat();
        assert!(monitor.healthy(minute).is_ok());
    }
}
