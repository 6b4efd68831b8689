//! Garbage collection of dead containers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::Result;
use crate::deadline::within;
use crate::event::{EventType, NodeEventRecorder};
use crate::pod_cache::PodCache;
use crate::pod_source::SourcesReady;
use crate::pod_workers::PodWorkersHandle;
use crate::runtime::{GcPolicy, Runtime};

/// `containerGCPeriod` (`ContainerGCPeriod` in `kubelet.go`)
const GC_PERIOD: Duration = Duration::from_secs(60);
/// How often it is checked whether the first collection can begin.
const START_PERIOD: Duration = Duration::from_secs(2);
/// The time limit of one collection.
const GC_DEADLINE: Duration = Duration::from_secs(15 * 60);
/// The maximum number of skipped periods.
const LONGEST_REST: u32 = 15;

/// Removes dead containers each minute, if there may be any. The first collection begins as soon as the desired pods are known: an agent
/// that never lives for a minute collects, too.
pub(super) struct Collector {
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) workers: PodWorkersHandle,
    pub(super) cache: PodCache,
    pub(super) sources: SourcesReady,
    pub(super) policy: GcPolicy,
    pub(super) events: Arc<dyn NodeEventRecorder>,
}

impl Collector {
    pub(super) async fn run(self, shutdown: CancellationToken) {
        let mut period = tokio::time::interval(GC_PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is immediate; nothing is known yet.
        period.tick().await;
        let mut start = Some(tokio::time::interval(START_PERIOD));
        let (of_workers, mut rest) = (self.workers.changes(), Rest::default());
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = self.pods_are_known(&mut start) => {
                    start = None;
                    period.reset();
                }
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
            // Containers that are too young now will be garbage later.
            if policy.min_age.is_zero() && rest.goes_on(seen) {
                continue;
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                result = self.collect(&policy) => {
                    if let Err(error) = result {
                        tracing::error!(%error, "Container garbage collection failed");
                        self.events.record_node(EventType::Warning, "ContainerGCFailed", error.to_string());
                        rest = Rest::default();
                    }
                }
            }
        }
    }

    /// Waits until the desired pods are known. Without an interval, never ends.
    async fn pods_are_known(&self, checks: &mut Option<Interval>) {
        let Some(checks) = checks else {
            return std::future::pending().await;
        };
        loop {
            checks.tick().await;
            if self.sources.all_ready() && self.workers.is_synced() {
                return;
            }
        }
    }

    async fn collect(&self, policy: &GcPolicy) -> Result<()> {
        let collection = self.runtime.garbage_collect(policy, &self.workers);
        within("garbage collection", None, GC_DEADLINE, collection).await
    }
}

/// Counters of the changes that can lead to garbage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    statuses: u64,
    workers: u64,
    all_sources_ready: bool,
}

/// Skips periods while nothing changes. After a collection without a change, it skips twice as many periods as before.
/// So containers that cannot be removed are retried less and less often.
#[derive(Debug, Default)]
struct Rest {
    seen: Option<Seen>,
    /// How many periods are skipped in a row, and how many are left.
    length: u32,
    left: u32,
}

impl Rest {
    /// Called once a period: whether this period is skipped.
    fn goes_on(&mut self, seen: Seen) -> bool {
        if self.seen.replace(seen) != Some(seen) {
            // A removal is a change, too.
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
