//! Probes: which containers live, are ready, have started (`pkg/kubelet/prober`).

mod manager;
mod metrics;
mod prober;
mod results;
mod schedule;
mod worker;

pub use manager::{ProbeManager, ProbeManagerConfig, ProbeManagerHandle, ProbeUpdates};
pub use prober::{ProbeKind, ProbeOutcome, ProbeTarget, Prober};
pub use results::{NoProbes, ProbeResult, ProbeResultCache, ProbeResults};
