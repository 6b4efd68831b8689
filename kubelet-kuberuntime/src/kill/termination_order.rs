//! The order in which the containers of a pod are stopped: sidecars after all regular containers, in the reverse order
//! of their start.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::restart_rules::is_restartable_init_container;
use tokio::sync::SetOnce;
use tokio::time::Instant;

/// Which container waits for which others (`terminationOrdering`).
pub(crate) struct TerminationOrder {
    /// By name; set once it has ended. Has only running containers.
    ended: HashMap<String, SetOnce<()>>,
    waits_for: HashMap<String, Vec<String>>,
}

impl TerminationOrder {
    /// The order for the running containers of `pod`; `None` without sidecars, because then there is no order.
    pub(crate) fn new<'a>(pod: &Pod, running: impl Iterator<Item = &'a str>) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        let init_containers = spec.init_containers.as_deref().unwrap_or_default();
        if !init_containers.iter().any(is_restartable_init_container) {
            return None;
        }
        let regular: Vec<String> = spec.containers.iter().map(|c| c.name.clone()).collect();
        let mut waits_for = HashMap::new();
        let mut later: Option<&str> = None;
        for sidecar in init_containers
            .iter()
            .rev()
            .filter(|c| is_restartable_init_container(c))
        {
            let mut names = regular.clone();
            names.extend(later.map(str::to_owned));
            waits_for.insert(sidecar.name.clone(), names);
            later = Some(&sidecar.name);
        }
        let ended = running.map(|name| (name.to_owned(), SetOnce::new())).collect();
        Some(Self { ended, waits_for })
    }

    /// Waits until it is this container's turn, but `at_most` this long; returns how long it waited.
    pub(crate) async fn wait_for_turn(&self, name: &str, at_most: Duration) -> Duration {
        let start = Instant::now();
        let all = async {
            for name in self.waits_for.get(name).into_iter().flatten() {
                if let Some(ended) = self.ended.get(name) {
                    ended.wait().await;
                }
            }
        };
        let _ = tokio::time::timeout(at_most, all).await;
        start.elapsed()
    }

    /// Records that this container has ended.
    pub(crate) fn ended(&self, name: &str) {
        if let Some(ended) = self.ended.get(name) {
            // An error: it was recorded before.
            let _ = ended.set(());
        }
    }
}
