//! When the sync loop does its clean-up.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::changes::Changes;

/// `housekeepingPeriod`
const PERIOD: Duration = Duration::from_secs(2);

/// The maximum number of periods between two clean-ups without changes: the initial and the final value. It doubles
/// each time nothing had changed.
const REST: (u32, u32) = (15, 150);

/// Every 2 s, like the kubelet. If the last clean-up left nothing to do and nothing has changed since, the next ones
/// are skipped.
pub(super) struct Schedule {
    /// Counters of the desired pods, the workers, the running containers, and the removals to retry.
    changes: [Changes; 4],
    last: Instant,
    next: Pin<Box<Sleep>>,
    /// The counts at the last clean-up.
    seen: [u64; 4],
    rests: bool,
    /// The number of periods of the next idle time.
    rest: u32,
}

impl Schedule {
    /// The first clean-up is due now.
    pub(super) fn new(changes: [Changes; 4]) -> Self {
        Self {
            changes,
            last: Instant::now(),
            next: Box::pin(sleep(Duration::ZERO)),
            seen: [0; 4],
            rests: false,
            rest: REST.0,
        }
    }

    /// When the next clean-up is due, without changes.
    pub(super) fn at(&self) -> Instant {
        self.next.deadline()
    }

    /// Waits until a clean-up is due.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub(super) async fn due(&mut self) {
        if self.rests {
            let ([one, two, three, four], seen) = (&self.changes, self.seen);
            tokio::select! {
                biased;
                () = &mut self.next => return,
                () = one.other_than(seen[0]) => {}
                () = two.other_than(seen[1]) => {}
                () = three.other_than(seen[2]) => {}
                () = four.other_than(seen[3]) => {}
            }
            self.wake();
        }
        self.next.as_mut().await;
    }

    /// A clean-up starts; later changes make the next one due.
    pub(super) fn begin(&mut self) {
        self.last = Instant::now();
        let seen = std::array::from_fn(|of| self.changes[of].count());
        let nothing_changed = std::mem::replace(&mut self.seen, seen) == seen;
        self.rest = match nothing_changed && self.rests {
            true => (self.rest * 2).min(REST.1),
            false => REST.0,
        };
    }

    /// A clean-up has ended. `settled`: nothing is left to do.
    pub(super) fn done(&mut self, is_settled: bool) {
        self.rests = is_settled;
        let periods = if is_settled { self.rest } else { 1 };
        self.next.as_mut().reset(self.last + PERIOD * periods);
    }

    /// The next one is due when it would have been without skipping.
    fn wake(&mut self) {
        self.rests = false;
        let periods = self.last.elapsed().as_nanos().div_ceil(PERIOD.as_nanos()).max(1);
        let periods = u32::try_from(periods).unwrap_or(REST.1);
        self.next.as_mut().reset(self.last + PERIOD * periods);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn passes_after(schedule: &mut Schedule) -> Duration {
        let start = Instant::now();
        schedule.due().await;
        start.elapsed()
    }

    fn pass(schedule: &mut Schedule, is_settled: bool) {
        schedule.begin();
        schedule.done(is_settled);
    }

    #[tokio::test(start_paused = true)]
    async fn it_rests_until_something_changes_and_keeps_its_beat() {
        let changes = Changes::default();
        let none = Changes::default;
        let mut schedule = Schedule::new([none(), changes.clone(), none(), none()]);
        assert!(passes_after(&mut schedule).await < SECOND);
        pass(&mut schedule, false);
        assert_eq!(passes_after(&mut schedule).await, 2 * SECOND);
        pass(&mut schedule, true);
        for rest in [30, 60, 120, 240, 300, 300] {
            assert_eq!(schedule.at(), Instant::now() + rest * SECOND);
            assert_eq!(passes_after(&mut schedule).await, rest * SECOND);
            pass(&mut schedule, true);
        }
        advance(7 * SECOND).await;
        assert!(schedule.due().now_or_never().is_none());
        changes.note();
        assert!(schedule.due().now_or_never().is_none());
        assert_eq!(passes_after(&mut schedule).await, SECOND);

        // What changes while it is done, too.
        schedule.begin();
        changes.note();
        schedule.done(true);
        assert_eq!(passes_after(&mut schedule).await, 2 * SECOND);
        pass(&mut schedule, true);
        assert_eq!(passes_after(&mut schedule).await, 30 * SECOND);
    }
}
