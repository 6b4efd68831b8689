//! The PLEG that lists.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubelet_core::{Clock, PlegHandle, PodCache, PodLifecycleEventGenerator, RuntimeReader};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::inspector::Inspector;
use crate::relist::Settings;
use crate::shared::{Owner, Shared};

/// The kubelet's `genericPlegRelistPeriod`.
const RELIST_PERIOD: Duration = Duration::from_secs(1);
/// The kubelet's `genericPlegRelistThreshold`.
const RELIST_THRESHOLD: Duration = Duration::from_secs(3 * 60);
/// The kubelet's default of `runtimeRequestTimeout`.
const INSPECTION_DEADLINE: Duration = Duration::from_secs(2 * 60);
/// The kubelet inspects one pod after the other; a runtime bears some at once.
const MAX_CONCURRENT_INSPECTIONS: usize = 16;

/// Lists the runtime again and again, finds what changed, reads the status of the pods that did into the
/// [`PodCache`], and tells of the changes.
///
/// Answers to the kubelet's `pleg.GenericPLEG`. Its [`handle`](Self::handle) subscribes to the events; see
/// the [crate] on what a subscriber may rely on.
///
/// # What is listed, and when
///
/// The first list is made at once, each further one a period after the last was taken in. Whatever
/// [`request_relist`](PlegHandle::request_relist) asks for is listed on its own meanwhile, unless a list
/// that began after the request has served it.
///
/// # When something fails
///
/// * The **list** fails: nothing changes. After the threshold without a list, the PLEG is not
///   [healthy](PlegHandle::healthy).
/// * A **pod's status** cannot be read: the error goes into the cache, so that whoever waits for the pod
///   wakes. Its events wait until it can be read. It is tried again with the next relist, then ever rarer, up
///   to every 10 s; a change of the pod is always tried at once. The node stays healthy.
/// * A pod's status **hangs**: all other pods go on. Whoever waits for that pod waits until its deadline.
pub struct GenericPleg {
    runtime: Arc<dyn RuntimeReader>,
    cache: PodCache,
    settings: Settings,
    owner: Owner,
}

impl GenericPleg {
    /// A PLEG that watches `runtime` and writes `cache`, of which it must be the only writer.
    pub fn new(runtime: Arc<dyn RuntimeReader>, cache: PodCache) -> Self {
        Self {
            runtime,
            cache,
            settings: settings(),
            owner: Owner(Arc::new(Shared::new(RELIST_THRESHOLD))),
        }
    }

    /// How long after one list the next begins; 1 s, unless set.
    #[must_use]
    pub fn with_relist_period(mut self, period: Duration) -> Self {
        self.settings.relist_period = period;
        self
    }

    /// How long ago the last list may have begun for the PLEG to be healthy; 3 min, unless set. A list that
    /// takes longer is given up and tried anew.
    #[must_use]
    pub fn with_relist_threshold(mut self, threshold: Duration) -> Self {
        self.settings.relist_threshold = threshold;
        self.owner.0.set_threshold(threshold);
        self
    }

    /// How many pods are inspected at once; 16, unless set, and at least 1. An inspection that takes longer
    /// than a relist period does not count any more: a place held for ever would hold up other pods.
    #[must_use]
    pub fn with_max_concurrent_inspections(mut self, count: usize) -> Self {
        self.settings.max_concurrent_inspections = count;
        self
    }

    /// How long the status of a pod may take; 2 min, unless set.
    #[must_use]
    pub fn with_inspection_deadline(mut self, deadline: Duration) -> Self {
        self.settings.inspection_deadline = deadline;
        self
    }

    /// The clock that `kubelet_pleg_last_seen_seconds` is read from; the system's, unless set.
    #[must_use]
    pub fn with_clock(mut self, clock: Clock) -> Self {
        self.settings.clock = clock;
        self
    }

    /// A handle: subscribe, ask for a relist, ask for its health. It may be taken before
    /// [`run`](Self::run) and outlive it; subscriptions end with the PLEG.
    pub fn handle(&self) -> Arc<dyn PlegHandle> {
        self.owner.0.clone()
    }

    /// Asks the PLEG, once it runs, how it does.
    pub fn inspector(&self) -> Inspector {
        Inspector(self.owner.0.clone())
    }

    /// Watches until `shutdown`. What is under way is dropped then; nothing goes on after it returned.
    ///
    /// All calls of the runtime are made from this one future: a runtime whose calls block the thread
    /// instead of waiting blocks it, too.
    ///
    /// # Cancel safety
    ///
    /// May be dropped at any time; the cache stays as it was last.
    pub async fn run(self, shutdown: CancellationToken) {
        let engine = Engine {
            runtime: self.runtime,
            cache: self.cache,
            settings: self.settings,
            owner: self.owner,
            evented: None,
        };
        engine.run(shutdown).await;
    }
}

/// The kubelet's.
pub(crate) fn settings() -> Settings {
    Settings {
        relist_period: RELIST_PERIOD,
        relist_threshold: RELIST_THRESHOLD,
        max_concurrent_inspections: MAX_CONCURRENT_INSPECTIONS,
        inspection_deadline: INSPECTION_DEADLINE,
        clock: Clock::system(),
    }
}

#[async_trait]
impl PodLifecycleEventGenerator for GenericPleg {
    fn handle(&self) -> Arc<dyn PlegHandle> {
        GenericPleg::handle(self)
    }

    async fn run(self: Box<Self>, shutdown: CancellationToken) {
        (*self).run(shutdown).await;
    }
}

impl std::fmt::Debug for GenericPleg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GenericPleg")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
