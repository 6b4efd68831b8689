//! The PLEG that uses the runtime's hints.

pub(crate) mod connection;
pub(crate) mod pace;

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::{Jitter, PodCache, RuntimeReader};

use crate::Pleg;

/// The kubelet's `eventedPlegRelistPeriod`.
const EVENTED_RELIST_PERIOD: Duration = Duration::from_secs(300);

/// A PLEG that looks at a pod as soon as the runtime hints that it changed
/// ([`pod_hints`](RuntimeReader::pod_hints)), and lists all pods rarely once the hints prove to be complete.
///
/// Answers to the kubelet's `pleg.EventedPLEG`. Its events and cache are those of a
/// [`GenericPleg`](crate::GenericPleg), only sooner.
///
/// # Hints are not data
///
/// A hint makes the PLEG list its one pod, at once. Only what was listed goes into the cache. So a hint that is lost,
/// late, sent twice, out of order, or about an unknown pod changes only how soon the PLEG sees a change. The PLEG lists
/// each pod of a hint once more a second or two later, in case the hint came before the change.
///
/// # How often all pods are listed
///
/// * At the start, and then once each [relist period](Self::with_relist_period) (1 s) until the hints have proven
///   themselves: a hint must have reported a change before a list of all pods showed it.
/// * From then on, each list of all pods that finds nothing new doubles the wait for the next: 2 s, 4 s, … up to the
///   [evented relist period](Self::with_evented_relist_period), 300 s.
/// * If a list of all pods finds a pod changed, and no hint reports that pod within a relist period, the change was
///   missed. The PLEG counts it (`kubelet_evented_pleg_missed_changes_total`), and the hints must prove themselves
///   again. If there are three such lists without any hint in between, the PLEG closes the stream and opens a new one.
/// * If the stream breaks or ends, the PLEG lists at once and then each relist period again. It opens the stream again
///   after 1 s, 2 s, 4 s … up to 30 s, each lengthened at random by up to half, without end. The new stream has to prove
///   itself too.
/// * A runtime without hints is watched as by a `GenericPleg`. The PLEG asks for hints again every 5 min, because the
///   runtime may be upgraded.
///
/// # While lists of all pods are rare
///
/// Some pods must not wait for the next list of all pods. Each second (or each relist period, if that is shorter) the
/// PLEG lists these pods one by one; if there are none, it sleeps:
///
/// * pods whose status could not be read: less and less often, down to every 10 s;
/// * pods of a [`request_reinspect`](kubelet_core::PlegHandle::request_reinspect);
/// * pods that somebody [waits for](PodCache::get_newer_than) in the cache.
///
/// If the list of a single pod fails, or takes longer than a relist period, the PLEG lists all pods instead, a second
/// (or a relist period, if that is shorter) after the last such list. While a list of all pods is under way, no single
/// pod is listed.
///
/// The PLEG is [healthy](kubelet_core::PlegHandle::healthy) as long as no list is overdue for longer than the
/// threshold. The time that it rests on purpose does not count.
pub type EventedPleg = Pleg<Hints>;

/// How an [`EventedPleg`] uses the hints of the runtime.
#[derive(Debug)]
pub struct Hints {
    pub(crate) longest_period: Duration,
    pub(crate) jitter: Jitter,
}

impl EventedPleg {
    /// Returns a PLEG that watches `runtime` and writes `cache`. Nobody else may write that cache.
    pub fn new(runtime: Arc<dyn RuntimeReader>, cache: PodCache) -> Self {
        let hints = Hints {
            longest_period: EVENTED_RELIST_PERIOD,
            jitter: Jitter::from_entropy(),
        };
        Self::with_hints(runtime, cache, hints)
    }

    /// Sets the longest wait from the end of one list to the start of the next, for hints that prove to be complete. The
    /// default is 300 s. If this is not longer than the relist period, the PLEG lists each relist period.
    #[must_use]
    pub fn with_evented_relist_period(mut self, period: Duration) -> Self {
        self.hints.longest_period = period;
        self
    }

    /// Sets the source of randomness for the waits before the stream of hints is opened again. The default is seeded by
    /// the operating system.
    #[must_use]
    pub fn with_jitter(mut self, jitter: Jitter) -> Self {
        self.hints.jitter = jitter;
        self
    }
}
