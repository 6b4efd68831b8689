//! The claims in memory, and whose turn it is to work on one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::claim::{ClaimKey, ClaimState};
use super::metrics;

/// The claims that pods of this node use (`claimInfoCache`). Clones share them.
#[derive(Clone)]
pub(super) struct Claims {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<ClaimsState>,
    /// The claims that somebody prepares or unprepares.
    busy: Mutex<BTreeSet<ClaimKey>>,
    turn_ended: Notify,
}

/// The claims, by namespace and name.
#[derive(Default)]
pub(super) struct ClaimsState {
    pub(super) by_key: BTreeMap<ClaimKey, ClaimInfo>,
    /// The drivers that the metric shows.
    counted: BTreeSet<String>,
}

/// A claim, and whether this process has prepared it.
pub(super) struct ClaimInfo {
    pub(super) state: ClaimState,
    /// Not kept on disk: after a restart, a claim is prepared again before a sandbox of its pod is created.
    pub(super) prepared: bool,
}

/// The right to prepare or unprepare some claims. While it exists nobody else has it for one of them.
pub(super) struct Turn {
    shared: Arc<Shared>,
    keys: BTreeSet<ClaimKey>,
}

impl Claims {
    /// The claims of the agent before.
    pub(super) fn new(claims: Vec<ClaimState>) -> Self {
        let by_key = claims.into_iter().map(|state| {
            let info = ClaimInfo {
                state,
                prepared: false,
            };
            (info.state.key(), info)
        });
        let claims = Self {
            shared: Arc::new(Shared {
                state: Mutex::new(ClaimsState {
                    by_key: by_key.collect(),
                    ..ClaimsState::default()
                }),
                busy: Mutex::default(),
                turn_ended: Notify::new(),
            }),
        };
        claims.lock().count();
        claims
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, ClaimsState> {
        self.shared.state.lock()
    }

    /// Waits until nobody works on one of these claims. Takes all of them at once, so two callers never wait for each other.
    /// Cancel safe.
    pub(super) async fn turn(&self, keys: BTreeSet<ClaimKey>) -> Turn {
        loop {
            let ended = self.shared.turn_ended.notified();
            tokio::pin!(ended);
            // Also a turn that ends between the look and the wait wakes us.
            ended.as_mut().enable();
            {
                let mut busy = self.shared.busy.lock();
                if busy.is_disjoint(&keys) {
                    busy.extend(keys.iter().cloned());
                    return Turn {
                        shared: Arc::clone(&self.shared),
                        keys,
                    };
                }
            }
            ended.await;
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.shared.busy.lock().retain(|key| !self.keys.contains(key));
        self.shared.turn_ended.notify_waiters();
    }
}

impl ClaimsState {
    /// What the state file should contain.
    pub(super) fn to_keep(&self) -> Vec<ClaimState> {
        self.by_key.values().map(|info| info.state.clone()).collect()
    }

    /// Updates the metric of claims in use.
    pub(super) fn count(&mut self) {
        let mut counts = BTreeMap::new();
        counts.insert(metrics::ANY_DRIVER.to_owned(), 0);
        for info in self.by_key.values().filter(|info| info.prepared) {
            let drivers = info.state.driver_state.keys().map(String::as_str);
            for driver in drivers.chain([metrics::ANY_DRIVER]) {
                *counts.entry(driver.to_owned()).or_default() += 1;
            }
        }
        metrics::set_in_use(&counts, &self.counted);
        self.counted = counts.into_keys().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_counted_until_its_last_claim_is_gone() {
        let mut state = ClaimsState {
            counted: BTreeSet::from(["gpu".to_owned()]),
            ..ClaimsState::default()
        };
        state.count();
        assert_eq!(state.counted, BTreeSet::from([metrics::ANY_DRIVER.to_owned()]));
    }
}
