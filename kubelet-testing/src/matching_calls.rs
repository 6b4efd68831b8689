//! Which of the calls that match a fault it hits.

/// Of all calls by default; of the first so many, or of a share that a seed chooses.
#[derive(Clone, Debug)]
pub(crate) struct MatchingCalls {
    first: u64,
    share: Option<(f64, u64)>,
    matched: u64,
}

impl MatchingCalls {
    pub(crate) fn all() -> Self {
        Self {
            first: u64::MAX,
            share: None,
            matched: 0,
        }
    }

    pub(crate) fn first(&mut self, calls: u64) {
        self.first = calls;
    }

    pub(crate) fn share(&mut self, rate: f64, seed: u64) {
        self.share = Some((rate, seed));
    }

    /// Another call matches. Returns whether the fault hits it.
    pub(crate) fn hits(&mut self) -> bool {
        self.matched += 1;
        let is_drawn = |(rate, seed)| drawn(seed, self.matched).f64() < rate;
        self.matched <= self.first && self.share.is_none_or(is_drawn)
    }
}

/// Random numbers for the call with this number: the same for the same seed, whatever other calls there are.
pub(crate) fn drawn(seed: u64, number: u64) -> fastrand::Rng {
    fastrand::Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
