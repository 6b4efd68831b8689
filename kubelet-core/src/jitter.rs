//! Randomness for delays, from a seed, so that a simulation can be repeated.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// Draws jitter. Clones share one generator.
#[derive(Clone, Debug)]
pub struct Jitter(Arc<Mutex<fastrand::Rng>>);

impl Jitter {
    /// A generator with this seed: the same seed gives the same sequence.
    pub fn from_seed(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    /// A generator with a random seed.
    pub fn from_entropy() -> Self {
        Self(Arc::new(Mutex::new(fastrand::Rng::new())))
    }

    /// `base` plus a random part of up to `factor` times `base` (`wait.Jitter`).
    pub fn apply(&self, base: Duration, factor: f64) -> Duration {
        base.mul_f64(1.0 + self.0.lock().f64() * factor.max(0.0))
    }
}

impl Default for Jitter {
    fn default() -> Self {
        Self::from_entropy()
    }
}
