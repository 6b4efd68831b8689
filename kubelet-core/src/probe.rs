//! What the probes found, for those who act on it.

use crate::ContainerId;

/// The outcome of a probe (`prober/results.Result`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProbeResult {
    /// It answered as it should.
    Success,
    /// It did not, often enough in a row.
    Failure,
    /// It was not measured yet.
    Unknown,
}

/// The last result of each container's probes, by container id: a container that was started again is
/// another one. `None` where nothing was measured.
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

/// Nothing was probed.
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
