//! The collection of dead containers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::Result;
use crate::deadline::within;
use crate::pod_cache::PodCache;
use crate::pod_source::SourcesReady;
use crate::pod_workers::PodWorkersHandle;
use crate::runtime::{GcPolicy, Runtime};

/// `containerGCPeriod` (`ContainerGCPeriod` in `kubelet.go`)
const GC_PERIOD: Duration = Duration::from_secs(60);
/// How long one collection may take before it is given up and begun anew.
const GC_DEADLINE: Duration = Duration::from_secs(15 * 60);
/// How many periods are left out at most.
const LONGEST_REST: u32 = 15;

/// Removes dead containers each minute, if there may be any.
pub(super) struct Collector {
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) workers: PodWorkersHandle,
    pub(super) cache: PodCache,
    pub(super) sources: SourcesReady,
    pub(super) policy: GcPolicy,
}

impl Collector {
    pub(super) async fn run(self, shutdown: CancellationToken) {
        let mut period = tokio::time::interval(GC_PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is now, and there is nothing to collect yet.
        period.tick().await;
        let (of_workers, mut rest) = (self.workers.changes(), Rest::default());
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                _ = period.tick() => {}
            }
            let policy = GcPolicy {
                all_sources_ready: self.sources.all_ready(),
                ..self.policy.clone()
            };
            let seen = Seen {
                statuses: self.cache.version(),
                workers: of_workers.count(),
                all_sources_ready: policy.all_sources_ready,
            };
            // What is too young today is garbage tomorrow.
            if policy.min_age.is_zero() && rest.goes_on(seen) {
                continue;
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                result = self.collect(&policy) => {
                    if let Err(error) = result {
                        tracing::error!(%error, "Container garbage collection failed");
                        rest = Rest::default();
                    }
                }
            }
        }
    }

    async fn collect(&self, policy: &GcPolicy) -> Result<()> {
        let collection = self.runtime.garbage_collect(policy, &self.workers);
        within("garbage collection", None, GC_DEADLINE, collection).await
    }
}

/// What garbage follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    statuses: u64,
    workers: u64,
    all_sources_ready: bool,
}

/// Periods that are left out while nothing changes: after a collection that followed no change twice as many as after the one
/// before it. What could not be removed is so tried again ever more rarely.
#[derive(Debug, Default)]
struct Rest {
    seen: Option<Seen>,
    /// How many periods are left out in a row, and how many still are.
    length: u32,
    left: u32,
}

impl Rest {
    /// A period has come: whether it is left out.
    fn goes_on(&mut self, seen: Seen) -> bool {
        if self.seen.replace(seen) != Some(seen) {
            // What it removes is a change in its turn.
            (self.length, self.left) = (0, 0);
            return false;
        }
        if self.left > 0 {
            self.left -= 1;
            return true;
        }
        self.length = (self.length * 2 + 1).min(LONGEST_REST);
        self.left = self.length;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_nothing_changes_it_rests_ever_longer() {
        let (mut rest, mut seen) = (
            Rest::default(),
            Seen {
                statuses: 1,
                workers: 1,
                all_sources_ready: true,
            },
        );
        let collected = |rest: &mut Rest, seen, minutes: u32| {
            (0..minutes).filter(|_| !rest.goes_on(seen)).collect::<Vec<u32>>()
        };
        assert_eq!(collected(&mut rest, seen, 70), [0, 1, 3, 7, 15, 31, 47, 63]);
        seen.statuses += 1;
        assert_eq!(collected(&mut rest, seen, 5), [0, 1, 3]);
        seen.all_sources_ready = false;
        assert_eq!(collected(&mut rest, seen, 2), [0, 1]);
        seen.workers += 1;
        assert_eq!(collected(&mut rest, seen, 2), [0, 1]);
    }
}
