//! Whether the sync loop goes round.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{Error, Result};

/// The shortest time after which a loop counts as stuck (`SyncLoopHealthCheck`).
const SHORTEST: Duration = Duration::from_secs(2 * 60);

/// Knows when the sync loop last went round (`syncLoopMonitor`). Clones know the same.
#[derive(Clone, Debug, Default)]
pub struct SyncLoopMonitor {
    /// Or when it will: while nothing is to be done it rests.
    beaten_at: Arc<Mutex<Option<Instant>>>,
}

impl SyncLoopMonitor {
    pub(super) fn beat(&self) {
        self.rest_until(Instant::now());
    }

    /// Nothing is to be done until then, unless something comes.
    pub(super) fn rest_until(&self, at: Instant) {
        *self.beaten_at.lock() = Some(at);
    }

    /// Whether the loop went round within twice the interval at which pods are looked at again, and two minutes at least,
    /// or has nothing to do, or has not begun yet. It does not go round while the runtime is not ready (`SyncLoopHealthCheck`).
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] if it did not.
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
