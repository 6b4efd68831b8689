//! When the sync loop tidies up.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::changes::Changes;

/// `housekeepingPeriod`
const PERIOD: Duration = Duration::from_secs(2);

/// How many periods pass at most, however little happens: at first, and in the end. Doubled from one to the other with each
/// time at which nothing had changed.
const REST: (u32, u32) = (15, 150);

/// Every 2 s, as the kubelet; but where the last time left nothing to do, and nothing has changed since, the next times are
/// left out.
pub(super) struct Schedule {
    /// Of the desired pods, of the workers, of what runs, of what is to be removed once more.
    changes: [Changes; 4],
    last: Instant,
    next: Pin<Box<Sleep>>,
    /// The changes that were looked at.
    seen: [u64; 4],
    rests: bool,
    /// How many periods the next rest lasts.
    rest: u32,
}

impl Schedule {
    /// The first time is now.
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

    /// When it is time, if nothing changes.
    pub(super) fn at(&self) -> Instant {
        self.next.deadline()
    }

    /// Waits until it is time.
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

    /// It is done now; what changes from now on has not been looked at.
    pub(super) fn begin(&mut self) {
        self.last = Instant::now();
        let seen = std::array::from_fn(|of| self.changes[of].count());
        let nothing_changed = std::mem::replace(&mut self.seen, seen) == seen;
        self.rest = match nothing_changed && self.rests {
            true => (self.rest * 2).min(REST.1),
            false => REST.0,
        };
    }

    /// It was done; whether nothing is left to do.
    pub(super) fn done(&mut self, is_settled: bool) {
        self.rests = is_settled;
        let periods = if is_settled { self.rest } else { 1 };
        self.next.as_mut().reset(self.last + PERIOD * periods);
    }

    /// The next time is when it would have been without a rest.
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
