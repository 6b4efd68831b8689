//! CPU time per second.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use tokio::time::Instant;

/// A rate is over at least this time, if readings are that old (`defaultHousekeepingInterval`).
const WINDOW: Duration = Duration::from_secs(10);
/// Without a reading for so long, a rate would be the average over a pause in which nobody asked.
const LONGEST: Duration = Duration::from_secs(90);
/// A rate over a shorter time says little.
const SHORTEST: Duration = Duration::from_millis(100);

/// The CPU time of earlier readings, at most two for each cgroup.
#[derive(Default)]
pub(super) struct Rates(FxHashMap<Arc<str>, Earlier>);

struct Earlier {
    /// The start of the window.
    base: (Instant, u64),
    /// The start of the next window.
    next: (Instant, u64),
    /// The last total, to notice a counter that goes back.
    last: u64,
    rate: Option<u64>,
}

impl Rates {
    /// The rate in nanocores over the last 10 to 20 s (`InstCpuStats`). `None` at the first reading, and after the counter
    /// went back: then another container has this name. Whoever reads less often than every 20 s receives the rate over a
    /// longer time, of 90 s at most; after a longer pause, `None`.
    pub(super) fn update(&mut self, name: &Arc<str>, now: Instant, total: u64) -> Option<u64> {
        let first = Earlier {
            base: (now, total),
            next: (now, total),
            last: total,
            rate: None,
        };
        let Some(earlier) = self.0.get_mut(name) else {
            self.0.insert(name.clone(), first);
            return None;
        };
        if total < earlier.last {
            *earlier = first;
            return None;
        }
        earlier.last = total;
        if now.saturating_duration_since(earlier.next.0) >= WINDOW {
            earlier.base = earlier.next;
            earlier.next = (now, total);
        }
        let passed = now.saturating_duration_since(earlier.base.0);
        if passed > LONGEST {
            *earlier = first;
            return None;
        }
        if passed >= SHORTEST {
            let used = total.saturating_sub(earlier.base.1);
            earlier.rate = Some((used as f64 / passed.as_nanos() as f64 * 1e9) as u64);
        }
        earlier.rate
    }

    /// Whether there is an earlier reading of this cgroup.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Forgets cgroups that are gone.
    pub(super) fn retain(&mut self, exists: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| exists(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_rate_over_the_last_window() {
        let start = Instant::now();
        let name: Arc<str> = "/kubepods".into();
        let mut rates = Rates::default();
        let mut at = |millis: u64, total| rates.update(&name, start + Duration::from_millis(millis), total);
        assert_eq!(at(0, 1_000), None);
        assert_eq!(at(50, 2_000), None, "too short a time");
        assert_eq!(at(1_000, 3_000), Some(2_000));
        assert_eq!(at(10_000, 21_000), Some(2_000));
        assert_eq!(at(15_000, 21_000), Some(1_333), "since 0 s");
        assert_eq!(at(20_000, 21_000), Some(0), "since 10 s");
        assert_eq!(at(21_000, 5), None, "another container");
        assert_eq!(at(22_000, 105), Some(100));
        assert_eq!(at(81_000, 6_005), Some(100), "over 60 s");
        assert_eq!(at(172_000, 7_000), None, "after a pause");
        assert_eq!(at(173_000, 7_050), Some(50));
    }
}
