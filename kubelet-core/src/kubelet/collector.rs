//! The collection of dead containers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::Result;
use crate::deadline::within;
use crate::pod_source::SourcesReady;
use crate::pod_workers::PodWorkersHandle;
use crate::runtime::{GcPolicy, Runtime};

/// `containerGCPeriod` (`ContainerGCPeriod` in `kubelet.go`)
const GC_PERIOD: Duration = Duration::from_secs(60);
/// How long one collection may take before it is given up and begun anew.
const GC_DEADLINE: Duration = Duration::from_secs(15 * 60);
/// Removes dead containers each minute.
pub(super) struct Collector {
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) workers: PodWorkersHandle,
    pub(super) sources: SourcesReady,
    pub(super) policy: GcPolicy,
}

impl Collector {
    pub(super) async fn run(self, shutdown: CancellationToken) {
        let mut period = tokio::time::interval(GC_PERIOD);
        period.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is now, and there is nothing to collect yet.
        period.tick().await;
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
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                result = self.collect(&policy) => {
                    if let Err(error) = result {
                        tracing::error!(%error, "Container garbage collection failed");
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
