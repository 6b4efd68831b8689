//! Watches the pods in the API server, and checks invariants.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, Pod, PodStatus};
use kubelet_core::PodExt;
use kubelet_cri::v1;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use super::history::{Journal, Step};
use super::order::Order;
use crate::ApiServer;
use crate::memory_cri::MemoryCri;
use kubelet_apiserver::Change;

/// The label of a container's pod.
pub(super) const POD_UID: &str = "io.kubernetes.pod.uid";
/// The label of a container's name.
const CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// How long after its manifest was written a mirror pod may still show the previous pod.
const NEXT_LIFE: Duration = Duration::from_secs(600);

/// Watches all pods, and notes each visible change and each violation. Clones share the data.
#[derive(Clone, Debug)]
pub(super) struct Witness {
    journal: Journal,
    order: Order,
    /// For each node.
    runtimes: Arc<BTreeMap<String, MemoryCri>>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    pods: BTreeMap<String, Arc<Pod>>,
    /// Pods that were deleted.
    gone: BTreeSet<String>,
    /// Those of them whose deletion a user forced.
    forced: BTreeSet<String>,
    /// When the manifests of static pods were written, by the pods' names.
    written: BTreeMap<String, Instant>,
    /// Changes of statuses since the cluster should be quiet, each with the pod after the change.
    changes: Option<Vec<(Arc<Pod>, String)>>,
    problems: Vec<String>,
    /// Counts changes.
    version: u64,
}

impl Witness {
    pub(super) fn new(journal: Journal, order: Order, runtimes: BTreeMap<String, MemoryCri>) -> Self {
        Self {
            journal,
            order,
            runtimes: Arc::new(runtimes),
            seen: Arc::default(),
        }
    }

    /// A user forces the deletion of this pod, without waiting for its containers.
    pub(super) fn is_forced(&self, pod: &Pod) {
        self.seen.lock().forced.insert(pod.uid_str().to_owned());
    }

    /// The manifest of this static pod is written.
    pub(super) fn is_written(&self, pod: &Pod) {
        let name = pod.key().to_string();
        self.seen.lock().written.insert(name, Instant::now());
    }

    /// The pods that existed and were deleted.
    pub(super) fn gone(&self) -> BTreeSet<String> {
        self.seen.lock().gone.clone()
    }

    /// From now on statuses should not change.
    pub(super) fn await_quiet(&self) {
        self.seen.lock().changes = Some(Vec::new());
    }

    /// The statuses that changed since then, and how.
    pub(super) fn changes(&self) -> Vec<(Arc<Pod>, String)> {
        self.seen.lock().changes.take().unwrap_or_default()
    }

    /// Watches until it is dropped. It sees each change, in order.
    pub(super) async fn run(self, api: ApiServer) {
        let (mut since, mut found) = (0, Vec::new());
        loop {
            let Ok(mut pods) = api.changes::<Pod>(since) else {
                // This revision is no longer kept.
                since = 0;
                tokio::task::yield_now().await;
                continue;
            };
            while let Some(sighted) = pods.next().await {
                match sighted {
                    Change::Found(pod) => found.push(pod),
                    Change::FoundAll(revision) => {
                        since = revision;
                        self.keep_only(&found);
                        found.drain(..).for_each(|pod| self.applied(pod));
                    }
                    Change::Changed(revision, pod) => {
                        since = revision;
                        self.applied(pod);
                    }
                    Change::Gone(revision, pod) => {
                        since = revision;
                        self.deleted(&pod);
                    }
                }
            }
            // The server went down, and the watch with it.
            found.clear();
        }
    }

    /// The pods as last seen, ordered by name.
    pub(super) fn pods(&self) -> Vec<Arc<Pod>> {
        let mut pods: Vec<Arc<Pod>> = self.seen.lock().pods.values().cloned().collect();
        pods.sort_by_key(|pod| pod.key());
        pods
    }

    /// A number that grows with every change.
    pub(super) fn version(&self) -> u64 {
        self.seen.lock().version
    }

    /// All changes, in order.
    pub(super) fn steps(&self) -> Vec<Step> {
        self.journal.steps()
    }

    /// The violations.
    pub(super) fn problems(&self) -> Vec<String> {
        self.seen.lock().problems.clone()
    }

    fn applied(&self, pod: Pod) {
        let pod = Arc::new(pod);
        let mut seen = self.seen.lock();
        seen.version += 1;
        let before = seen.pods.get(pod.uid_str()).map(Arc::as_ref);
        let (shown, key) = (shown(&pod), pod.key());
        if before.map(self::shown).as_ref() != Some(&shown) {
            self.journal.note(format!("pod {key} {shown}"));
        }
        let mut wrong = before.map(|before| went_back(before, &pod)).unwrap_or_default();
        // Only needed when statuses should not change.
        let told = before.filter(|_| seen.changes.is_some());
        let change = told.and_then(|before| change(&before.status, &pod.status));
        if let (Some(changes), Some(change)) = (&mut seen.changes, change) {
            changes.push((pod.clone(), change));
        }
        // One mirror pod may show one life of its pod and then the next.
        let written = seen.written.get(&key.to_string());
        if pod.is_mirror() && written.is_some_and(|at| at.elapsed() < NEXT_LIFE) {
            wrong.clear();
        }
        for wrong in wrong {
            self.journal.note(format!("WRONG: pod {key}: {wrong}"));
            seen.problems.push(format!("pod {key}: {wrong}"));
        }
        seen.pods.insert(pod.uid_str().to_owned(), pod);
    }

    /// Drops the pods that are not in this list: the watch missed their deletion.
    fn keep_only(&self, listed: &[Pod]) {
        let known = self.pods().into_iter();
        for gone in known.filter(|pod| listed.iter().all(|other| other.uid_str() != pod.uid_str())) {
            self.deleted(&gone);
        }
    }

    fn deleted(&self, pod: &Pod) {
        self.journal.note(format!("pod {} is gone", pod.key()));
        let mut seen = self.seen.lock();
        seen.version += 1;
        let uid = pod.uid_str();
        seen.pods.remove(uid);
        seen.gone.insert(uid.to_owned());
        if pod.is_mirror() || seen.forced.contains(uid) {
            return;
        }
        self.order.gone(pod.uid());
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        let runtime = node.and_then(|node| self.runtimes.get(node));
        let containers = runtime.map(MemoryCri::containers).unwrap_or_default();
        let running = containers.iter().filter(|container| {
            container.state() == v1::ContainerState::ContainerRunning
                && container.labels.get(POD_UID).is_some_and(|of| of == uid)
        });
        let names: Vec<_> = running
            .filter_map(|container| Some(container.metadata.as_ref()?.name.as_str()))
            .collect();
        if !names.is_empty() {
            let names = names.join(", ");
            self.journal.note(format!(
                "WRONG: pod {} is deleted, but {names} still runs",
                pod.key()
            ));
            seen.problems.push(format!(
                "pod {}: it is deleted, but {names} still runs",
                pod.key()
            ));
        }
    }
}

/// The differences of a status: `containerStatuses.0.ready: true, then false`. Empty if there was none before.
fn change(before: &Option<PodStatus>, after: &Option<PodStatus>) -> Option<String> {
    if before == after {
        return None;
    }
    let value = |status: &Option<PodStatus>| serde_json::to_value(status).unwrap_or_default();
    let mut changes = Vec::new();
    differences("", &value(before), &value(after), &mut changes);
    Some(changes.join("; "))
}

fn differences(path: &str, before: &Value, after: &Value, found: &mut Vec<String>) {
    let at = |key: &str| match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    };
    match (before, after) {
        (Value::Object(one), Value::Object(other)) => {
            let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for key in keys {
                differences(&at(key), &before[key], &after[key], found);
            }
        }
        (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                differences(&at(&index.to_string()), one, other, found);
            }
        }
        (before, after) if before != after => found.push(format!("{path}: {before}, then {after}")),
        _ => {}
    }
}

/// The note of a pod: `uid 5f… Running 1/2 ready, 3 restarts, deleting`.
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

/// The changes that must not happen in this direction.
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

/// Why a pod in the API server does not agree with the runtime, for that UID; `None` if it does.
pub(super) fn disagreement(
    pod: &Pod,
    uid: &str,
    containers: &[v1::ContainerStatus],
    sandboxes: &[v1::PodSandboxStatus],
) -> Option<String> {
    if pod.is_deleting() {
        return Some("is still there, and was deleted".to_owned());
    }
    let Some(status) = &pod.status else {
        return Some("has no status".to_owned());
    };
    let phase = status.phase.as_deref().unwrap_or_default();
    let is_waiting = || is_initializing(pod, status) || was_cut_off(pod, status, uid, containers, sandboxes);
    if !matches!(phase, "Running" | "Succeeded" | "Failed") && !is_waiting() {
        return Some(format!("is {phase}"));
    }
    let was_turned_away = phase == "Failed" && all(status).next().is_none();
    if was_turned_away {
        let mut its = containers.iter();
        let has_none = its.all(|container| container.labels.get(POD_UID).is_none_or(|of| of != uid));
        return (!has_none).then(|| "was rejected, but has containers".to_owned());
    }
    let unready = |reported: &&ContainerStatus| {
        let runs = reported
            .state
            .as_ref()
            .is_some_and(|state| state.running.is_some());
        runs && !reported.ready
    };
    if let Some(unready) = status.container_statuses.iter().flatten().find(unready) {
        return Some(format!("reports that {} runs but is not ready", unready.name));
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
    all(status).find_map(|reported| {
        let running: Vec<&str> = containers
            .iter()
            .filter(|container| {
                container.state() == v1::ContainerState::ContainerRunning
                    && container.labels.get(POD_UID).is_some_and(|of| of == uid)
                    && container.labels.get(CONTAINER_NAME) == Some(&reported.name)
            })
            .map(|container| container.id.as_str())
            .collect();
        let runs_by_status = reported
            .state
            .as_ref()
            .is_some_and(|state| state.running.is_some());
        let reported_id = reported
            .container_id
            .as_deref()
            .and_then(|id| id.split_once("://"))
            .map(|(_, id)| id);
        match (runs_by_status, running.as_slice()) {
            (true, [id]) if reported_id == Some(*id) => None,
            (false, []) => None,
            (true, running) => Some(format!(
                "reports that {} runs as {reported_id:?}; running are {running:?}",
                reported.name
            )),
            (false, running) => Some(format!(
                "reports that {} does not run; running are {running:?}",
                reported.name
            )),
        }
    })
}

/// A pod that must not be run again and lost its sandbox after one of its containers was created and before another
/// one was started. The kubelet then makes no other sandbox, and the container that was not started keeps the pod
/// `Pending`. If no container had been created, the kubelet would retry. If an init container had failed, the pod
/// would have failed.
fn was_cut_off(
    pod: &Pod,
    status: &PodStatus,
    uid: &str,
    containers: &[v1::ContainerStatus],
    sandboxes: &[v1::PodSandboxStatus],
) -> bool {
    let is_its = |labels: &BTreeMap<String, String>| labels.get(POD_UID).is_some_and(|of| of == uid);
    let never = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()) == Some("Never");
    let mut its = sandboxes
        .iter()
        .filter(|sandbox| is_its(&sandbox.labels))
        .peekable();
    let has_lost_it =
        its.peek().is_some() && its.all(|sandbox| sandbox.state() == v1::PodSandboxState::SandboxNotready);
    let was_begun = containers.iter().any(|container| is_its(&container.labels));
    let mut init = status.init_container_statuses.iter().flatten();
    let has_failed =
        |init: &ContainerStatus| !is_sidecar(pod, init) && exit_code(init).is_some_and(|code| code != 0);
    never
        && has_lost_it
        && was_begun
        && !init.any(has_failed)
        && all(status).any(|container| exit_code(container).is_none())
}

/// An init container that fails again and again keeps a pod `Pending`.
fn is_initializing(pod: &Pod, status: &PodStatus) -> bool {
    let is_done = |init: &ContainerStatus| match is_sidecar(pod, init) {
        true => init.started == Some(true),
        false => exit_code(init) == Some(0),
    };
    let mut init = status.init_container_statuses.iter().flatten();
    init.any(|init| init.restart_count > 0 && !is_done(init))
}

fn is_sidecar(pod: &Pod, init: &ContainerStatus) -> bool {
    let mut specs = pod
        .spec
        .iter()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    specs.any(|spec| spec.name == init.name && spec.restart_policy.as_deref() == Some("Always"))
}

/// For an ended container, and the last state of a container that waits for its restart.
fn exit_code(container: &ContainerStatus) -> Option<i32> {
    let ended = |state: &Option<ContainerState>| Some(state.as_ref()?.terminated.as_ref()?.exit_code);
    let runs = container
        .state
        .as_ref()
        .is_some_and(|state| state.running.is_some());
    ended(&container.state).or_else(|| ended(&container.last_state).filter(|_| !runs))
}
