//! Removes dead containers of a pod as soon as there are more than should be kept.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use tokio::sync::Notify;

use crate::ContainerId;
use crate::deadline::{RUNTIME_REQUEST_TIMEOUT, within};
use crate::runtime::{ContainerState, PodStatus, Runtime};

/// `minDeadContainerInPod`
const MIN_DEAD_CONTAINER_IN_POD: u32 = 1;

/// Removes dead containers one at a time, the newest of a pod first, without blocking the sync loop. Answers to the
/// kubelet's `podContainerDeletor`; pending removals are a set, so none is dropped. A cheap handle.
#[derive(Clone, Debug)]
pub(crate) struct ContainerDeletor {
    waiting: Arc<Waiting>,
    containers_to_keep: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    containers: Mutex<InOrder>,
    changed: Notify,
}

/// Each container once, in order of arrival.
#[derive(Debug, Default)]
struct InOrder {
    queue: VecDeque<ContainerId>,
    queued: FxHashSet<ContainerId>,
}

impl InOrder {
    fn push(&mut self, container: ContainerId) {
        if self.queued.insert(container.clone()) {
            self.queue.push_back(container);
        }
    }

    fn pop(&mut self) -> Option<ContainerId> {
        let container = self.queue.pop_front()?;
        self.queued.remove(&container);
        Some(container)
    }
}

impl ContainerDeletor {
    /// Keeps this many dead containers per container name, at least one. `None` keeps one.
    pub(crate) fn new(max_per_pod_container: Option<u32>) -> Self {
        let keep = max_per_pod_container
            .unwrap_or_default()
            .max(MIN_DEAD_CONTAINER_IN_POD);
        Self {
            waiting: Arc::default(),
            containers_to_keep: usize::try_from(keep).unwrap_or(usize::MAX),
        }
    }

    /// This container of the pod has exited: older ones of its name are removed. `remove_all` removes every dead
    /// container of the pod.
    pub(crate) fn delete_containers_in_pod(&self, died: &str, status: &PodStatus, remove_all: bool) {
        let gone = match remove_all {
            true => containers_to_delete(None, status, 0),
            false => containers_to_delete(Some(died), status, self.containers_to_keep),
        };
        if !gone.is_empty() {
            let mut waiting = self.waiting.containers.lock();
            gone.into_iter().for_each(|container| waiting.push(container));
            drop(waiting);
            self.waiting.changed.notify_one();
        }
    }

    /// Removes containers, forever.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe. A removal that has started may be lost; garbage collection repeats it.
    pub(crate) async fn run(self, runtime: Arc<dyn Runtime>) {
        loop {
            let next = self.waiting.containers.lock().pop();
            match next {
                Some(container) => delete(&*runtime, &container).await,
                None => self.waiting.changed.notified().await,
            }
        }
    }
}

async fn delete(runtime: &dyn Runtime, container: &ContainerId) {
    let deleted = runtime.delete_container(container);
    if let Err(error) = within("delete container", None, RUNTIME_REQUEST_TIMEOUT, deleted).await {
        // The next exit in the pod, or garbage collection, retries it.
        tracing::info!(%container, %error, "DeleteContainer returned error");
    }
}

/// The exited containers with the name of this container, or all exited containers, except the newest `keep`
/// (`getContainersToDeleteInPod`), newest first. Empty if the container is unknown.
fn containers_to_delete(died: Option<&str>, status: &PodStatus, keep: usize) -> Vec<ContainerId> {
    let name = died.map(|id| status.containers.iter().find(|container| container.id.id() == id));
    let name = match name {
        Some(None) => return Vec::new(),
        Some(Some(container)) => Some(&container.name),
        None => None,
    };
    let mut exited: Vec<_> = status
        .containers
        .iter()
        .filter(|container| container.state == ContainerState::Exited)
        .filter(|container| name.is_none_or(|name| *name == container.name))
        .collect();
    exited.sort_by_key(|container| std::cmp::Reverse(container.created_at));
    exited
        .iter()
        .skip(keep)
        .map(|container| container.id.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::ContainerStatus;
    use crate::{PodKey, PodUid};
    use k8s_openapi::jiff::Timestamp;
    use tokio::time::Instant;

    fn status(containers: &[(&str, &str, i64, ContainerState)]) -> PodStatus {
        let mut status = PodStatus::empty(PodUid::new("u"), PodKey::new("ns", "p"), Instant::now());
        for (id, name, created, state) in containers {
            status.containers.push(ContainerStatus {
                created_at: Some(Timestamp::from_second(*created).unwrap()),
                ..ContainerStatus::new(ContainerId::new("r", *id), *name, *state)
            });
        }
        status
    }

    #[test]
    fn the_newest_dead_ones_of_a_name_are_kept() {
        use ContainerState::*;
        let pod = status(&[
            ("a1", "a", 1, Exited),
            ("a2", "a", 2, Exited),
            ("a3", "a", 3, Exited),
            ("a4", "a", 4, Running),
            ("b1", "b", 1, Exited),
            ("b2", "b", 2, Created),
        ]);
        let cases: [(Option<&str>, usize, &[&str]); 6] = [
            (Some("a3"), 2, &["a1"]),
            (Some("a3"), 1, &["a2", "a1"]),
            (Some("b1"), 1, &[]),
            (Some("unknown"), 0, &[]),
            (None, 0, &["a3", "a2", "a1", "b1"]),
            (None, 3, &["b1"]),
        ];
        for (died, keep, expected) in cases {
            let gone = containers_to_delete(died, &pod, keep);
            let expected: Vec<_> = expected.iter().map(|id| ContainerId::new("r", *id)).collect();
            assert_eq!(gone, expected, "{died:?} {keep}");
        }
    }

    #[test]
    fn at_least_one_stays() {
        for (asked, kept) in [(None, 1), (Some(0), 1), (Some(1), 1), (Some(3), 3)] {
            assert_eq!(ContainerDeletor::new(asked).containers_to_keep, kept);
        }
    }
}
