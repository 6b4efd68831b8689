//! What the runtime reports of its containers, kept for the next summary.

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::stats::{RuntimeContainerUsage, RuntimeUsages};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::matching::Listed;
use crate::Result;

/// The last usages of all containers. The runtime measures each container for them, and takes the size of writable layers from
/// what it gathered before (each 10 s, in containerd), so summaries in quick succession would wait for nothing new. CPU and memory
/// that no cgroup shows are as old.
#[derive(Default)]
pub(super) struct Usages {
    /// With the time of the request.
    last: Mutex<Option<(Instant, Arc<Vec<RuntimeContainerUsage>>)>>,
}

impl Usages {
    /// The usages, at most `max_age` old, and with all containers that run now. `Duration::ZERO`: the runtime is asked. Callers at
    /// the same time do not wait for each other, since a runtime may hang.
    ///
    /// May be dropped and called again.
    pub(super) async fn within(
        &self,
        runtime: &dyn RuntimeUsages,
        listed: &Listed,
        max_age: Duration,
    ) -> Result<Arc<Vec<RuntimeContainerUsage>>> {
        let last = self.last.lock().clone();
        if let Some((asked, usages)) = last
            && !max_age.is_zero()
            && asked.elapsed() <= max_age
            && listed.are_in(&usages)
        {
            return Ok(usages);
        }
        let asked = Instant::now();
        let usages = Arc::new(runtime.container_usages().await?);
        let mut last = self.last.lock();
        if last.as_ref().is_none_or(|(newest, _)| *newest <= asked) {
            *last = Some((asked, usages.clone()));
        }
        Ok(usages)
    }
}

impl Listed {
    /// Each container that runs is among the usages.
    fn are_in(&self, usages: &[RuntimeContainerUsage]) -> bool {
        let known = usages.iter().filter(|usage| self.find(&usage.id).is_some());
        known.count() == self.running().count()
    }
}
