//! Limits how often something may be done.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A rate limit that several tasks share; it may be unlimited. Answers to `flowcontrol.RateLimiter` of client-go.
#[derive(Debug)]
pub struct RateLimit(Option<Mutex<TokenBucket>>);

impl RateLimit {
    /// `burst` at once, then `qps` per second. A `qps` of 0 is no limit. With a `burst` of 0 nothing is ever allowed.
    pub fn new(qps: u32, burst: u32) -> Self {
        let bucket = || TokenBucket::new(f64::from(qps), burst, Instant::now());
        Self((qps > 0).then(|| Mutex::new(bucket())))
    }

    /// Takes a token if there is one. Returns whether it may be done now.
    pub fn try_take(&self) -> bool {
        let bucket = self.0.as_ref();
        bucket.is_none_or(|bucket| bucket.lock().try_take(Instant::now()))
    }

    /// Waits until there is a token, and takes it.
    ///
    /// # Cancel safety
    ///
    /// A dropped wait takes nothing.
    pub async fn take(&self) {
        let Some(bucket) = &self.0 else { return };
        loop {
            let wait = {
                let (mut bucket, now) = (bucket.lock(), Instant::now());
                match bucket.try_take(now) {
                    true => return,
                    false => bucket.wait(now),
                }
            };
            // At least a millisecond: the resolution of tokio's clock.
            tokio::time::sleep(wait.max(Duration::from_millis(1))).await;
        }
    }

    /// Returns an unused token.
    pub fn give_back(&self) {
        if let Some(bucket) = &self.0 {
            bucket.lock().give_back();
        }
    }
}

/// A number of tokens at once, then a number per second. It uses tokio's clock, so changes of the wall clock have no
/// effect.
#[derive(Debug)]
pub struct TokenBucket {
    qps: f64,
    burst: f64,
    tokens: f64,
    at: Instant,
}

impl TokenBucket {
    /// A full bucket of `burst` tokens, that gets `qps` tokens per second.
    pub fn new(qps: f64, burst: u32, now: Instant) -> Self {
        let burst = f64::from(burst);
        Self {
            qps,
            burst,
            tokens: burst,
            at: now,
        }
    }

    /// Takes a token if there is one. Returns whether there was.
    pub fn try_take(&mut self, now: Instant) -> bool {
        self.wait(now).is_zero() && {
            self.tokens -= 1.0;
            true
        }
    }

    fn give_back(&mut self) {
        self.tokens = (self.tokens + 1.0).min(self.burst);
    }

    /// The time until there is a token.
    pub fn wait(&mut self, now: Instant) -> Duration {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + elapsed * self.qps).min(self.burst);
        self.at = now;
        // A rounding error must not cost a token.
        let missing = 1.0 - 1e-9 - self.tokens;
        if missing <= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(missing / self.qps).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_a_rate() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs_f64(seconds);
        let mut bucket = TokenBucket::new(2.0, 3, start);
        let taken: Vec<bool> = (0..4).map(|_| bucket.try_take(start)).collect();
        assert_eq!(taken, [true, true, true, false]);
        assert!((0.24..=0.25).contains(&bucket.wait(at(0.25)).as_secs_f64()));
        assert!(bucket.try_take(at(0.5)) && !bucket.try_take(at(0.75)));
        // Never more than the burst.
        let taken = (0..5).filter(|_| bucket.try_take(at(1000.0))).count();
        assert_eq!(taken, 3);
        let mut none = TokenBucket::new(0.0, 0, start);
        assert!(!none.try_take(at(1e6)));
        assert_eq!(none.wait(start), Duration::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_share_a_limit() {
        let limit = RateLimit::new(5, 3);
        let taken = |tries: usize| (0..tries).filter(|_| limit.try_take()).count();
        assert_eq!(taken(10), 3);
        tokio::time::advance(Duration::from_millis(399)).await;
        assert_eq!(taken(10), 1);
        tokio::time::advance(Duration::from_millis(2)).await;
        assert_eq!(taken(10), 1);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(taken(10), 3, "no more than the burst is saved up");
        let start = Instant::now();
        limit.take().await;
        assert!(start.elapsed() > Duration::from_millis(199));
        limit.give_back();
        assert_eq!(taken(10), 1);
        assert!((0..100).all(|_| RateLimit::new(0, 0).try_take()));
    }
}
