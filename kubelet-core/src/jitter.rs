//! Randomness for delays, from a seed, so that a simulation can be played again.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// Draws jitter. Clones share one generator.
#[derive(Clone, Debug)]
pub struct Jitter(Arc<Mutex<fastrand::Rng>>);

impl Jitter {
    /// A generator whose draws follow from `seed`.
    pub fn from_seed(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    /// A generator with a seed of the operating system's choice.
    pub fn from_entropy() -> Self {
        Self(Arc::new(Mutex::new(fastrand::Rng::new())))
    }

    /// `base` lengthened by up to `factor` of itself (`wait.Jitter`).
    pub fn apply(&self, base: Duration, factor: f64) -> Duration {
        base.mul_f64(1.0 + self.0.lock().f64() * factor.max(0.0))
    }
}

impl Default for Jitter {
    fn default() -> Self {
        Self::from_entropy()
    }
}
