//! Watches the pods in the API, on a connection that is not cut.
//!
//! A restart count never falls, and a pod that has ended stays ended. The last counts of pods that are gone are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use kube_client::Api;
use kube_client::api::{ListParams, WatchEvent, WatchParams};
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use crate::api::{Administrator, NAMESPACE};
use crate::journal::Journal;

/// A watch without an event is begun again after this time.
const SILENCE: Duration = Duration::from_secs(60);

/// What was seen of each pod. Clones share the data.
#[derive(Clone)]
pub(crate) struct Witness {
    journal: Journal,
    /// By UID.
    seen: Arc<Mutex<BTreeMap<String, Seen>>>,
    /// The UIDs of pods that were deleted without a wait for their containers.
    forced: Arc<Mutex<BTreeSet<String>>>,
}

#[derive(Default)]
struct Seen {
    name: String,
    phase: String,
    /// The greatest count of each container, and the container that had it.
    restarts: BTreeMap<String, (i32, String)>,
    is_deleted: bool,
    /// It was deleted while nothing watched, so its last counts may be missing.
    is_lost: bool,
}

impl Witness {
    pub(crate) fn new(journal: Journal) -> Self {
        Self { journal, seen: Arc::default(), forced: Arc::default() }
    }

    /// Watches until it is dropped.
    pub(crate) async fn run(self, administrator: Administrator) {
        let api = Api::<Pod>::namespaced(administrator.client, NAMESPACE);
        loop {
            // The server is killed at times. A watch that never begins is a fault of the verdict.
            let _ = self.watch(&api).await;
            sleep(Duration::from_millis(200)).await;
        }
    }

    async fn watch(&self, api: &Api<Pod>) -> Result<(), kube_client::Error> {
        let list = api.list(&ListParams::default()).await?;
        let mut version = list.metadata.resource_version.unwrap_or_default();
        self.sees_all(&list.items);
        loop {
            let events = api.watch(&WatchParams::default(), &version).await?;
            let mut events = pin!(events);
            while let Ok(event) = timeout(SILENCE, events.try_next()).await {
                match event? {
                    Some(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) => {
                        self.sees(&pod);
                        version = pod.metadata.resource_version.unwrap_or_default();
                    }
                    Some(WatchEvent::Deleted(pod)) => {
                        self.sees_deleted(&pod);
                        version = pod.metadata.resource_version.unwrap_or_default();
                    }
                    Some(WatchEvent::Bookmark(bookmark)) => version = bookmark.metadata.resource_version,
                    Some(WatchEvent::Error(_)) => return Ok(()),
                    None => break,
                }
            }
        }
    }

    /// The pods of a list. Those that it lacks were deleted, now or before.
    fn sees_all(&self, pods: &[Pod]) {
        let uids: BTreeSet<_> = pods.iter().filter_map(|pod| pod.metadata.uid.as_ref()).collect();
        for (uid, seen) in self.seen.lock().iter_mut() {
            seen.is_lost |= !seen.is_deleted && !uids.contains(uid);
        }
        pods.iter().for_each(|pod| self.sees(pod));
    }

    /// A pod that was deleted, as it was at last.
    fn sees_deleted(&self, pod: &Pod) {
        self.sees(pod);
        if let Some(seen) = self.seen.lock().get_mut(pod.metadata.uid.as_deref().unwrap_or_default()) {
            seen.is_deleted = true;
        }
    }

    pub(crate) fn sees(&self, pod: &Pod) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let mut all = self.seen.lock();
        let seen = all.entry(uid).or_default();
        seen.name = pod.metadata.name.clone().unwrap_or_default();
        let Some(status) = &pod.status else { return };
        let phase = status.phase.clone().unwrap_or_default();
        if matches!(seen.phase.as_str(), "Succeeded" | "Failed") && phase != seen.phase {
            self.journal.fault(format!("{}: its phase was {}, and is {phase}", seen.name, seen.phase));
        }
        seen.phase = phase;
        let annotations = pod.metadata.annotations.as_ref();
        let is_mirror =
            annotations.is_some_and(|annotations| annotations.contains_key("kubernetes.io/config.mirror"));
        for container in containers(status) {
            let id = container.container_id.clone().unwrap_or_default();
            let known = seen.restarts.entry(container.name.clone()).or_default();
            let (count, of) = known.clone();
            if is_mirror && container.restart_count == 0 && id != of {
                // The same manifest may come back before its mirror pod is gone.
                *known = (0, id);
                continue;
            }
            if container.restart_count < count {
                let now = container.restart_count;
                self.journal.fault(format!(
                    "{}: restarts of {} fell from {count} to {now}",
                    seen.name, container.name
                ));
            } else if container.restart_count == count && !id.is_empty() && !of.is_empty() && id != of {
                // A runtime that is killed loses a container that it has not started yet. Had it run, the runs would show it.
                self.journal.note(format!(
                    "{}: a second container of {} has the restart count {count}",
                    seen.name, container.name
                ));
            }
            if container.restart_count > count || (of.is_empty() && container.restart_count == count) {
                *known = (container.restart_count, id);
            }
        }
    }

    /// The pod will be deleted without a wait for its containers. The API does not see what they do after that.
    pub(crate) fn will_be_forced(&self, uid: &str) {
        self.forced.lock().insert(uid.to_owned());
    }

    pub(crate) fn has_seen(&self, uid: &str) -> bool {
        self.seen.lock().contains_key(uid)
    }

    /// The greatest restart count of a container. None if the last count of its pod is not known.
    pub(crate) fn restarts(&self, uid: &str, container: &str) -> Option<i32> {
        if self.forced.lock().contains(uid) {
            return None;
        }
        let all = self.seen.lock();
        let seen = all.get(uid).filter(|seen| !seen.is_lost)?;
        Some(seen.restarts.get(container).map_or(0, |(count, _)| *count))
    }

    /// How many pods were seen, and the sum of their restarts.
    pub(crate) fn totals(&self) -> (usize, i32) {
        let all = self.seen.lock();
        let restarts = all.values().flat_map(|seen| seen.restarts.values().map(|(count, _)| *count));
        (all.len(), restarts.sum())
    }
}

/// The statuses of all containers.
pub(crate) fn containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    [&status.init_container_statuses, &status.container_statuses].into_iter().flatten().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(uid: &str, phase: &str, restarts: i32) -> Pod {
        let status = json!({
            "name": "main", "image": "", "imageID": "", "ready": true, "restartCount": restarts,
            "containerID": format!("containerd://{uid}-{restarts}"),
        });
        serde_json::from_value(json!({
            "metadata": {"name": format!("pod-{uid}"), "uid": uid},
            "status": {"phase": phase, "containerStatuses": [status]},
        }))
        .unwrap()
    }

    fn witness() -> (Witness, Journal) {
        let journal = Journal::new();
        (Witness::new(journal.clone()), journal)
    }

    #[test]
    fn counts_that_fall_and_phases_that_change_after_the_end_are_faults() {
        let (witness, journal) = witness();
        witness.sees(&pod("1", "Running", 2));
        witness.sees(&pod("1", "Succeeded", 2));
        assert_eq!(journal.faults(), Vec::<String>::new());
        witness.sees(&pod("1", "Running", 1));
        assert_eq!(journal.faults().len(), 2, "{:?}", journal.faults());
    }

    #[test]
    fn the_last_counts_of_a_deleted_pod_stay() {
        let (witness, _) = witness();
        witness.sees_all(&[pod("1", "Running", 1), pod("2", "Running", 0)]);
        witness.sees_deleted(&pod("1", "Running", 3));
        witness.sees_all(&[pod("2", "Running", 0)]);
        assert_eq!(witness.restarts("1", "main"), Some(3));
        assert_eq!(witness.restarts("2", "main"), Some(0));
        assert_eq!(witness.restarts("2", "other"), Some(0));
        assert_eq!(witness.totals(), (2, 3));
    }

    #[test]
    fn the_last_counts_of_a_pod_that_went_unseen_or_was_forced_are_not_known() {
        let (witness, _) = witness();
        witness.sees_all(&[pod("1", "Running", 1), pod("2", "Running", 1)]);
        witness.will_be_forced("2");
        witness.sees_deleted(&pod("2", "Running", 1));
        witness.sees_all(&[]);
        assert_eq!(witness.restarts("1", "main"), None);
        assert_eq!(witness.restarts("2", "main"), None);
        assert_eq!(witness.restarts("3", "main"), None);
        assert!(witness.has_seen("1") && !witness.has_seen("3"));
    }
}
