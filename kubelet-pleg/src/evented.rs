//! The PLEG that is told.

pub(crate) mod connection;
pub(crate) mod pace;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kubelet_core::{Clock, Jitter, PlegHandle, PodCache, PodLifecycleEventGenerator, RuntimeReader};
use tokio_util::sync::CancellationToken;

use crate::engine::{Engine, Evented};
use crate::generic;
use crate::inspector::Inspector;
use crate::relist::Settings;
use crate::shared::{Owner, Shared};

/// The kubelet's `eventedPlegRelistPeriod`.
const EVENTED_RELIST_PERIOD: Duration = Duration::from_secs(300);

/// A [`GenericPleg`](crate::GenericPleg) that looks at a pod as soon as the runtime hints that it changed
/// ([`pod_hints`](RuntimeReader::pod_hints)), and lists rarely when hints prove to tell of everything.
///
/// Answers to the kubelet's `pleg.EventedPLEG`. Subscribers and the cache see what they see of the generic one,
/// only sooner.
///
/// # Hints are hints
///
/// A hint asks for the list of its one pod, at once. Nothing it says goes into the cache; lists alone do. So a
/// hint that is lost, late, doubled, out of order, or about a pod that nobody knows, changes nothing but how
/// soon a change is seen. Each pod that was hinted at is listed once more a second or two later, should a hint
/// have come before the fact.
///
/// # How often is listed
///
/// * The first list is made at once, and then one each [relist period](Self::with_relist_period), 1 s, as long as
///   hints have not proven themselves: a hint must have told of a change before a list of all showed it.
/// * From then on each list of all that finds nothing else doubles the wait for the next: 2 s, 4 s, … up to the
///   [evented relist period](Self::with_evented_relist_period), 300 s.
/// * A pod that a list of all finds changed, and that no hint tells of within a relist period, was missed. It is
///   counted (`kubelet_evented_pleg_missed_changes_total`), and the hints must prove themselves anew. A stream
///   that was silent through three such lists is given up for a new one.
/// * When the stream breaks or ends, lists are made each relist period again, beginning with one at once. The
///   stream is asked for after 1 s, 2 s, 4 s … up to 30 s, each lengthened at random by up to half, for ever. It
///   has to prove itself again.
/// * A runtime that has no hints is watched as by a `GenericPleg`, and asked again every 5 min: it may be
///   replaced by a newer one.
///
/// # While lists are rare
///
/// Each second (each relist period, if that is shorter), single pods are listed that would else wait for the next
/// list of all, if there are any; an idle PLEG sleeps. They are: those that cannot be read, ever rarer up to every
/// 10 s; those of [`request_reinspect`](PlegHandle::request_reinspect); and those that somebody [waits for](PodCache::get_newer_than) in the cache. When the list of a single pod fails,
/// or takes longer than a relist period, a list of all is made in its stead, a second (a relist period, if that is
/// shorter) after the last. Whatever asks for a single pod while a list of all is under way waits for its end.
///
/// [Healthy](PlegHandle::healthy) is a PLEG that was not due to list for longer than the threshold without having
/// done so: the time that it rests by design does not count.
pub struct EventedPleg {
    runtime: Arc<dyn RuntimeReader>,
    cache: PodCache,
    settings: Settings,
    evented_relist_period: Duration,
    jitter: Jitter,
    owner: Owner,
}

impl EventedPleg {
    /// A PLEG that watches `runtime` and writes `cache`, of which it must be the only writer.
    pub fn new(runtime: Arc<dyn RuntimeReader>, cache: PodCache) -> Self {
        let settings = generic::settings();
        Self {
            runtime,
            cache,
            owner: Owner(Arc::new(Shared::new(settings.relist_threshold))),
            settings,
            evented_relist_period: EVENTED_RELIST_PERIOD,
            jitter: Jitter::from_entropy(),
        }
    }

    /// How long after one list the next begins while hints cannot be relied upon; 1 s, unless set.
    #[must_use]
    pub fn with_relist_period(mut self, period: Duration) -> Self {
        self.settings.relist_period = period;
        self
    }

    /// How long after one list the next begins at most, when hints prove to tell of everything; 300 s, unless
    /// set. No longer than the relist period: as if there were none.
    #[must_use]
    pub fn with_evented_relist_period(mut self, period: Duration) -> Self {
        self.evented_relist_period = period;
        self
    }

    /// How long a list may be overdue for the PLEG to be healthy; 3 min, unless set. A list that takes longer
    /// is given up and tried anew.
    #[must_use]
    pub fn with_relist_threshold(mut self, threshold: Duration) -> Self {
        self.settings.relist_threshold = threshold;
        self.owner.0.set_threshold(threshold);
        self
    }

    /// How many pods are listed alone, and how many inspected, at once; 16, unless set, and at least 1. A call
    /// that takes longer than a relist period does not count any more.
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

    /// What lengthens the waits before the stream of hints is asked for anew; seeded by the operating system,
    /// unless set.
    #[must_use]
    pub fn with_jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
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
            evented: Some(Evented {
                longest_period: self.evented_relist_period,
                jitter: self.jitter,
            }),
        };
        engine.run(shutdown).await;
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

impl std::fmt::Debug for EventedPleg {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventedPleg")
            .field("settings", &self.settings)
            .field("evented_relist_period", &self.evented_relist_period)
            .finish_non_exhaustive()
    }
}
