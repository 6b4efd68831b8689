//! Limits how often something may be done.

use parking_lot::Mutex;
use tokio::time::Instant;

/// A bucket of tokens.
pub(super) struct Rate {
    per_second: f64,
    burst: f64,
    /// The tokens there were, and when.
    tokens: Mutex<(f64, Instant)>,
}

impl Rate {
    pub(super) fn new(per_second: f64, burst: f64) -> Self {
        Self {
            per_second,
            burst,
            tokens: Mutex::new((burst, Instant::now())),
        }
    }

    /// Takes a token, if there is one.
    pub(super) fn allow(&self) -> bool {
        let now = Instant::now();
        let mut tokens = self.tokens.lock();
        let gained = now.duration_since(tokens.1).as_secs_f64() * self.per_second;
        let available = (tokens.0 + gained).min(self.burst);
        let allowed = available >= 1.0;
        *tokens = (if allowed { available - 1.0 } else { available }, now);
        allowed
    }
}
