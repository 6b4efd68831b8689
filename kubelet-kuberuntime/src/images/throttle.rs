//! The rate limit of pulls (`throttleImagePulling`).

use parking_lot::Mutex;
use tokio::time::Instant;

/// A bucket of tokens, filled at a steady rate (`flowcontrol.NewTokenBucketRateLimiter`).
pub(super) struct Throttle {
    per_second: f64,
    burst: f64,
    bucket: Mutex<Bucket>,
}

struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Throttle {
    /// `None` without a limit.
    pub(super) fn new(per_second: u32, burst: u32) -> Option<Self> {
        (per_second > 0).then(|| Self {
            per_second: f64::from(per_second),
            burst: f64::from(burst),
            bucket: Mutex::new(Bucket {
                tokens: f64::from(burst),
                at: Instant::now(),
            }),
        })
    }

    /// Takes a token, if there is one.
    pub(super) fn try_accept(&self) -> bool {
        let now = Instant::now();
        let mut bucket = self.bucket.lock();
        let gained = (now - bucket.at).as_secs_f64() * self.per_second;
        bucket.tokens = (bucket.tokens + gained).min(self.burst);
        bucket.at = now;
        if bucket.tokens < 1.0 {
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_then_a_steady_rate() {
        let throttle = Throttle::new(5, 3).unwrap();
        let accepted = |tries: usize| (0..tries).filter(|_| throttle.try_accept()).count();
        assert_eq!(accepted(10), 3);
        advance(Duration::from_millis(399)).await;
        assert_eq!(accepted(10), 1);
        advance(Duration::from_millis(2)).await;
        assert_eq!(accepted(10), 1);
        advance(Duration::from_secs(60)).await;
        assert_eq!(accepted(10), 3, "no more than the burst is saved up");
        assert!(Throttle::new(0, 0).is_none());
    }
}
