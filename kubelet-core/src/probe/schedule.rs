//! A ticker for probes: it keeps its period and stores at most one missed tick.

use std::time::Duration;

use tokio::time::Instant;

/// Ticks every period from its start, however long each probe takes. Of missed ticks one is kept, the others are
/// dropped (Go's `time.Ticker`).
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticker {
    period: Duration,
    next: Instant,
}

impl Ticker {
    pub(super) fn starting(now: Instant, period: Duration) -> Self {
        Self {
            period,
            next: now + period,
        }
    }

    /// The time of the next tick; in the past if one was missed.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Takes the current tick.
    pub(super) fn take(&mut self, now: Instant) {
        let late = now.saturating_duration_since(self.next);
        let missed = late.as_nanos() / self.period.as_nanos().max(1);
        let missed = u32::try_from(missed).unwrap_or(u32::MAX - 1);
        self.next += self.period * (missed + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_late_tick_is_taken_at_once_and_the_beat_is_kept() {
        let seconds = Duration::from_secs_f64;
        let start = Instant::now();
        let mut ticker = Ticker::starting(start, seconds(10.0));
        // taken at → the next one
        for (at, next) in [
            (10.0, 20.0),
            (20.0, 30.0),
            (34.0, 40.0),
            (75.0, 80.0),
            (80.0, 90.0),
        ] {
            ticker.take(start + seconds(at));
            assert_eq!(ticker.next() - start, seconds(next), "taken at {at}");
        }
    }
}
