//! Results of probes.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use rustc_hash::FxHashMap;

use super::ProbeKind;
use crate::ContainerId;

/// The result of a probe (`prober/results.Result`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbeResult {
    /// The probe succeeded.
    Success,
    /// The probe failed as often in a row as `failureThreshold` says.
    Failure,
    /// There is no result yet.
    Unknown,
}

impl fmt::Display for ProbeResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ProbeResult::Success => "Success",
            ProbeResult::Failure => "Failure",
            ProbeResult::Unknown => "UNKNOWN",
        })
    }
}

/// The last results of each container's probes, by container id: a restarted container has a new id. `None` if there is
/// no result.
///
/// Answers to the three result managers of `pkg/kubelet/prober/results`.
pub trait ProbeResults: Send + Sync {
    /// Its liveness probe.
    fn liveness(&self, container: &ContainerId) -> Option<ProbeResult>;
    /// Its readiness probe.
    fn readiness(&self, container: &ContainerId) -> Option<ProbeResult>;
    /// Its startup probe.
    fn startup(&self, container: &ContainerId) -> Option<ProbeResult>;
}

/// No results: nothing is probed.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProbes;

impl ProbeResults for NoProbes {
    fn liveness(&self, _: &ContainerId) -> Option<ProbeResult> {
        None
    }
    fn readiness(&self, _: &ContainerId) -> Option<ProbeResult> {
        None
    }
    fn startup(&self, _: &ContainerId) -> Option<ProbeResult> {
        None
    }
}

/// The results of a [`ProbeManager`](super::ProbeManager). A cheap handle. Create it first; give it to the manager,
/// which writes it, and to its readers: the runtime, which kills containers that fail their liveness probe, and the
/// status manager.
#[derive(Clone, Debug, Default)]
pub struct ProbeResultCache(Arc<RwLock<FxHashMap<(ProbeKind, ContainerId), ProbeResult>>>);

impl ProbeResultCache {
    /// An empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of results.
    pub fn len(&self) -> usize {
        self.0.read().len()
    }

    /// Whether there are no results.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn get(&self, kind: ProbeKind, container: &ContainerId) -> Option<ProbeResult> {
        self.0.read().get(&(kind, container.clone())).copied()
    }

    /// Stores a result; returns whether it has changed.
    pub(super) fn set(&self, kind: ProbeKind, container: &ContainerId, result: ProbeResult) -> bool {
        self.0.write().insert((kind, container.clone()), result) != Some(result)
    }

    pub(super) fn remove(&self, kind: ProbeKind, container: &ContainerId) {
        self.0.write().remove(&(kind, container.clone()));
    }
}

impl ProbeResults for ProbeResultCache {
    fn liveness(&self, container: &ContainerId) -> Option<ProbeResult> {
        self.get(ProbeKind::Liveness, container)
    }
    fn readiness(&self, container: &ContainerId) -> Option<ProbeResult> {
        self.get(ProbeKind::Readiness, container)
    }
    fn startup(&self, container: &ContainerId) -> Option<ProbeResult> {
        self.get(ProbeKind::Startup, container)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_kept_by_kind_and_container_and_tell_a_change() {
        use ProbeKind::{Liveness, Readiness};
        let results = ProbeResultCache::new();
        let (a, b) = (ContainerId::new("fake", "a"), ContainerId::new("fake", "b"));
        assert_eq!(results.readiness(&a), None);
        assert!(results.set(Readiness, &a, ProbeResult::Success));
        assert!(!results.set(Readiness, &a, ProbeResult::Success));
        assert!(results.set(Readiness, &a, ProbeResult::Failure));
        assert_eq!(results.readiness(&a), Some(ProbeResult::Failure));
        assert_eq!((results.liveness(&a), results.readiness(&b)), (None, None));
        assert!(results.set(Liveness, &a, ProbeResult::Success));
        results.remove(Readiness, &a);
        assert_eq!((results.readiness(&a), results.len()), (None, 1));
        assert!(
            results.set(Readiness, &a, ProbeResult::Failure),
            "removed, it is news again"
        );
    }
}
