//! Probes: liveness, readiness and startup of containers (`pkg/kubelet/prober`).

mod handle;
mod kind;
mod manager;
mod metrics;
mod prober;
mod results;
mod schedule;
mod table;
mod updates;
mod worker;

pub(crate) use handle::ContainerProbe;
pub use handle::ProbeManagerHandle;
pub use kind::ProbeKind;
pub use manager::{ProbeManager, ProbeManagerConfig};
pub use prober::{ProbeOutcome, ProbeTarget, Prober};
pub use results::{NoProbes, ProbeResult, ProbeResultCache, ProbeResults};
pub use updates::ProbeUpdates;
