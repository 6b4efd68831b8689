//! Who sees what the API server is told of pods, and what must hold of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use kube_client::Client;
use kube_client::api::{Api, ListParams, WatchEvent, WatchParams};
use kubelet_core::{PodExt, PodKey};
use kubelet_cri::v1;
use parking_lot::Mutex;

use super::history::{Journal, Step};

/// The label of a container's pod.
const POD_UID: &str = "io.kubernetes.pod.uid";
/// The label of a container's name.
const CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// Watches all pods, notes each change that shows, and what should never be. Clones share what they saw.
#[derive(Clone, Debug)]
pub(super) struct Witness {
    journal: Journal,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    pods: BTreeMap<String, Pod>,
    problems: Vec<String>,
}

impl Seen {
    /// The others went unseen.
    fn keep_only(&mut self, listed: &[Pod]) {
        self.pods
            .retain(|uid, _| listed.iter().any(|pod| pod.uid_str() == uid));
    }
}

impl Witness {
    pub(super) fn new(journal: Journal) -> Self {
        Self {
            journal,
            seen: Arc::default(),
        }
    }

    /// Watches until it is dropped.
    pub(super) async fn run(self, client: Client) {
        let api = Api::<Pod>::all(client);
        loop {
            let Ok(listed) = api.list(&ListParams::default()).await else {
                // The server is away.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            self.seen.lock().keep_only(&listed.items);
            let mut version = listed.metadata.resource_version.unwrap_or_default();
            for pod in listed.items {
                self.applied(pod);
            }
            while let Ok(events) = api.watch(&WatchParams::default(), &version).await {
                let mut events = events.boxed();
                let mut lost = false;
                while let Some(event) = events.next().await {
                    match event {
                        Ok(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) => {
                            version = pod.metadata.resource_version.clone().unwrap_or(version);
                            self.applied(pod);
                        }
                        Ok(WatchEvent::Deleted(pod)) => {
                            version = pod.metadata.resource_version.clone().unwrap_or(version);
                            self.deleted(&pod);
                        }
                        Ok(WatchEvent::Bookmark(mark)) => version = mark.metadata.resource_version,
                        Ok(WatchEvent::Error(_)) | Err(_) => lost = true,
                    }
                }
                if lost {
                    break;
                }
            }
        }
    }

    /// The pods as they were seen last, in the order of their names.
    pub(super) fn pods(&self) -> Vec<Pod> {
        let mut pods: Vec<Pod> = self.seen.lock().pods.values().cloned().collect();
        pods.sort_by_key(PodExt::key);
        pods
    }

    /// All changes, in order.
    pub(super) fn steps(&self) -> Vec<Step> {
        self.journal.steps()
    }

    /// What was seen and should never be.
    pub(super) fn problems(&self) -> Vec<String> {
        self.seen.lock().problems.clone()
    }

    fn applied(&self, pod: Pod) {
        let mut seen = self.seen.lock();
        let before = seen.pods.get(pod.uid_str());
        let (shown, key) = (shown(&pod), pod.key());
        if before.map(self::shown) != Some(shown.clone()) {
            self.journal.note(format!("pod {key} {shown}"));
        }
        let wrong = before.map(|before| went_back(before, &pod)).unwrap_or_default();
        seen.problems
            .extend(wrong.into_iter().map(|wrong| format!("pod {key}: {wrong}")));
        seen.pods.insert(pod.uid_str().to_owned(), pod);
    }

    fn deleted(&self, pod: &Pod) {
        self.journal.note(format!("pod {} is gone", pod.key()));
        self.seen.lock().pods.remove(pod.uid_str());
    }
}

/// What is noted of a pod: `uid 5f… Running 1/2 ready, 3 restarts, deleting`.
fn shown(pod: &Pod) -> String {
    let no_status = PodStatus::default();
    let status = pod.status.as_ref().unwrap_or(&no_status);
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    let ready = containers.iter().filter(|container| container.ready).count();
    let restarts: i32 = all(status).map(|container| container.restart_count).sum();
    let uid = pod.uid_str().split('-').next().unwrap_or_default();
    let phase = status.phase.as_deref().unwrap_or("new");
    let deleting = if pod.is_deleting() { ", deleting" } else { "" };
    format!(
        "uid {uid} {phase} {ready}/{} ready, {restarts} restarts{deleting}",
        containers.len()
    )
}

/// What must not change in this direction, and did.
fn went_back(before: &Pod, after: &Pod) -> Vec<String> {
    let mut wrong = Vec::new();
    let (Some(before), Some(after)) = (&before.status, &after.status) else {
        return wrong;
    };
    let phase = |status: &PodStatus| status.phase.clone().unwrap_or_default();
    if matches!(phase(before).as_str(), "Succeeded" | "Failed") && phase(after) != phase(before) {
        wrong.push(format!(
            "left the terminal phase {} for {}",
            phase(before),
            phase(after)
        ));
    }
    for now in all(after) {
        let then = all(before).find(|then| then.name == now.name);
        if let Some(then) = then.filter(|then| then.restart_count > now.restart_count) {
            let (then, now_count) = (then.restart_count, now.restart_count);
            wrong.push(format!(
                "restarts of {} went from {then} back to {now_count}",
                now.name
            ));
        }
    }
    wrong
}

fn all(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    status
        .init_container_statuses
        .iter()
        .chain(&status.container_statuses)
        .flatten()
}

/// Why a pod is not yet as the runtime has it; `None` if the API server and the runtime agree.
pub(super) fn disagreement(pod: &Pod, containers: &[v1::ContainerStatus]) -> Option<String> {
    if pod.is_deleting() {
        return Some("is still there, and was deleted".to_owned());
    }
    let Some(status) = &pod.status else {
        return Some("has no status".to_owned());
    };
    let phase = status.phase.as_deref().unwrap_or_default();
    if !matches!(phase, "Running" | "Succeeded" | "Failed") && !is_initializing(status) {
        return Some(format!("is {phase}"));
    }
    let names = pod
        .spec
        .iter()
        .flat_map(|spec| &spec.containers)
        .map(|container| container.name.as_str());
    if let Some(missing) = names
        .clone()
        .find(|name| !all(status).any(|container| container.name == *name))
    {
        return Some(format!("has no status of container {missing}"));
    }
    all(status).find_map(|told| {
        let running: Vec<&str> = containers
            .iter()
            .filter(|container| {
                container.state() == v1::ContainerState::ContainerRunning
                    && container
                        .labels
                        .get(POD_UID)
                        .is_some_and(|uid| uid == pod.uid_str())
                    && container.labels.get(CONTAINER_NAME) == Some(&told.name)
            })
            .map(|container| container.id.as_str())
            .collect();
        let is_told = told.state.as_ref().is_some_and(|state| state.running.is_some());
        let told_id = told
            .container_id
            .as_deref()
            .and_then(|id| id.split_once("://"))
            .map(|(_, id)| id);
        match (is_told, running.as_slice()) {
            (true, [id]) if told_id == Some(*id) => None,
            (false, []) => None,
            (true, running) => Some(format!(
                "tells that {} runs as {told_id:?}; there runs {running:?}",
                told.name
            )),
            (false, running) => Some(format!(
                "tells that {} does not run; there runs {running:?}",
                told.name
            )),
        }
    })
}

/// An init container fails again and again: such a pod stays `Pending`.
fn is_initializing(status: &PodStatus) -> bool {
    status
        .init_container_statuses
        .iter()
        .flatten()
        .any(|container| container.restart_count > 0)
}

/// Containers that run for a pod that is no more.
pub(super) fn orphans(pods: &[Pod], containers: &[v1::ContainerStatus]) -> Vec<String> {
    let runs = |container: &&v1::ContainerStatus| container.state() == v1::ContainerState::ContainerRunning;
    let uid = |container: &v1::ContainerStatus| container.labels.get(POD_UID).cloned().unwrap_or_default();
    containers
        .iter()
        .filter(runs)
        .filter(|container| !pods.iter().any(|pod| pod.uid_str() == uid(container)))
        .map(|container| {
            let label = |name: &str| container.labels.get(name).cloned().unwrap_or_default();
            let key = PodKey::new(
                label("io.kubernetes.pod.namespace"),
                label("io.kubernetes.pod.name"),
            );
            format!(
                "{} of {key} still runs, and its pod is gone",
                label(CONTAINER_NAME)
            )
        })
        .collect()
}
