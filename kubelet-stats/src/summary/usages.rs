//! What the runtime reports of its containers, kept for the next summary.

use std::sync::Arc;
use std::time::Duration;

use kubelet_core::stats::{RuntimeContainerUsage, RuntimeUsages};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::matching::Listed;
use crate::Result;

/// The last usages of all containers. The runtime measures each container for them, and takes the size of writable layers from
/// what it gathered before (each 10 s, in containerd), so summaries in quick succession would wait for nothing new.
#[derive(Default)]
pub(super) struct Usages {
    /// With the time of the request. Held during a request: callers at the same time share one.
    last: Mutex<Option<(Instant, Arc<Vec<RuntimeContainerUsage>>)>>,
}

impl Usages {
    /// The usages, at most `max_age` old, and with all containers that run now. `Duration::ZERO`: the runtime is asked.
    ///
    /// May be dropped and called again.
    pub(super) async fn within(
        &self,
        runtime: &dyn RuntimeUsages,
        listed: &Listed,
        max_age: Duration,
    ) -> Result<Arc<Vec<RuntimeContainerUsage>>> {
        let mut last = self.last.lock().await;
        if let Some((asked, usages)) = &*last
            && !max_age.is_zero()
            && asked.elapsed() <= max_age
            && listed.are_in(usages)
        {
            return Ok(usages.clone());
        }
        let asked = Instant::now();
        let usages = Arc::new(runtime.container_usages().await?);
        *last = Some((asked, usages.clone()));
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
