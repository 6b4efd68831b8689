//! The CPU time of a container: measures it, and holds it to its limit.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, Sleep, sleep_until};

/// The period of a limit, as the kernel has it for containers.
const PERIOD: Duration = Duration::from_millis(100);

/// The CPU time of a container so far. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct CpuTime(Arc<AtomicU64>);

impl CpuTime {
    pub(crate) fn used(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// Runs a module. A busy module gives way at each epoch, so its CPU time is that of its thread during each poll. When it has used
/// up its share of a period, it sleeps for the rest.
pub(crate) struct Metered<F> {
    module: Pin<Box<F>>,
    time: CpuTime,
    /// The CPU time for each period; `None`: no limit.
    share: Option<Duration>,
    period: Instant,
    used_in_period: Duration,
    pause: Option<Pin<Box<Sleep>>>,
}

impl<F: Future> Metered<F> {
    pub(crate) fn new(module: F, time: CpuTime, limit_millis: Option<u64>) -> Self {
        let share = limit_millis.map(|millis| {
            let nanos = PERIOD.as_nanos() * u128::from(millis) / 1000;
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        });
        Self {
            module: Box::pin(module),
            time,
            share,
            period: Instant::now(),
            used_in_period: Duration::ZERO,
            pause: None,
        }
    }

    /// Counts, and returns until when it must sleep.
    fn count(&mut self, used: Duration) -> Option<Instant> {
        let nanos = u64::try_from(used.as_nanos()).unwrap_or(u64::MAX);
        self.time.0.fetch_add(nanos, Ordering::Relaxed);
        let share = self.share?;
        if self.period.elapsed() >= PERIOD {
            (self.period, self.used_in_period) = (Instant::now(), Duration::ZERO);
        }
        self.used_in_period += used;
        // What is over the share counts for later periods.
        let periods = self.used_in_period.as_nanos() / share.as_nanos().max(1);
        let periods = u32::try_from(periods).unwrap_or(u32::MAX);
        (periods > 0).then(|| self.period + PERIOD.saturating_mul(periods))
    }
}

impl<F: Future> Future for Metered<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        if let Some(pause) = &mut self.pause {
            if pause.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.pause = None;
        }
        let before = thread_time();
        let polled = self.module.as_mut().poll(cx);
        let until = self.count(thread_time().saturating_sub(before));
        if let (Poll::Pending, Some(until)) = (&polled, until) {
            let mut pause = Box::pin(sleep_until(until));
            if pause.as_mut().poll(cx).is_pending() {
                self.pause = Some(pause);
            }
        }
        polled
    }
}

fn thread_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_used_up_the_share_sleeps_for_the_rest_of_the_period() {
        let mut metered = Metered::new(async {}, CpuTime::default(), Some(250));
        let begin = metered.period;
        let ms = Duration::from_millis;
        assert_eq!(metered.count(ms(20)), None);
        assert_eq!(metered.count(ms(10)), Some(begin + ms(100)));
        assert_eq!(metered.count(ms(30)), Some(begin + ms(200)), "more than two shares");
        tokio::time::advance(ms(200)).await;
        assert_eq!(metered.count(ms(20)), None);
        assert_eq!(metered.time.used(), ms(80));
        assert_eq!(Metered::new(async {}, CpuTime::default(), None).count(ms(1000)), None);
    }
}
