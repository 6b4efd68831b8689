//! The PLEG that is told.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubelet_core::{Clock, PlegHandle, PodCache, PodLifecycleEventGenerator, RuntimeReader};
use tokio_util::sync::CancellationToken;

use crate::GenericPleg;

/// A [`GenericPleg`] that lists a pod as soon as the runtime hints that it changed
/// ([`pod_hints`](RuntimeReader::pod_hints)).
///
/// Answers to the kubelet's `pleg.EventedPLEG`.
#[derive(Debug)]
pub struct EventedPleg {
    generic: GenericPleg,
}

impl EventedPleg {
    /// A PLEG that watches `runtime` and writes `cache`, of which it must be the only writer.
    pub fn new(runtime: Arc<dyn RuntimeReader>, cache: PodCache) -> Self {
        Self {
            generic: GenericPleg::new(runtime, cache),
        }
    }

    /// How long after one list the next begins while hints cannot be relied upon; 1 s, unless set.
    #[must_use]
    pub fn with_relist_period(mut self, period: Duration) -> Self {
        self.generic = self.generic.with_relist_period(period);
        self
    }

    /// How long a list may be overdue for the PLEG to be healthy; 3 min, unless set. A list that takes longer
    /// is given up and tried anew.
    #[must_use]
    pub fn with_relist_threshold(mut self, threshold: Duration) -> Self {
        self.generic = self.generic.with_relist_threshold(threshold);
        self
    }

    /// How many pods are inspected at once; 16, unless set, and at least 1.
    #[must_use]
    pub fn with_max_concurrent_inspections(mut self, count: usize) -> Self {
        self.generic = self.generic.with_max_concurrent_inspections(count);
        self
    }

    /// How long the status of a pod may take; 2 min, unless set.
    #[must_use]
    pub fn with_inspection_deadline(mut self, deadline: Duration) -> Self {
        self.generic = self.generic.with_inspection_deadline(deadline);
        self
    }

    /// The clock that `kubelet_pleg_last_seen_seconds` is read from; the system's, unless set.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.generic = self.generic.with_clock(clock);
        self
    }

    /// A handle: subscribe, ask for a relist, ask for its health. It may be taken before
    /// [`run`](Self::run) and outlive it; subscriptions end with the PLEG.
    pub fn handle(&self) -> Arc<dyn PlegHandle> {
        self.generic.handle()
    }

    /// Watches until `shutdown`. What is under way is dropped then; nothing goes on after it returned.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time; the cache stays as it was last.
    pub async fn run(self, shutdown: CancellationToken) {
        self.generic.run(shutdown).await;
    }
}

#[async_trait]
impl PodLifecycleEventGenerator for EventedPleg {
    fn handle(&self) -> Arc<dyn PlegHandle> {
        EventedPleg::handle(self)
    }

    async fn run(self: Box<Self>, shutdown: CancellationToken) {
        (*self).run(shutdown).await;
    }
}
