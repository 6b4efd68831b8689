//! Who sees what the API server is told of pods, and what must hold of it.

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
const POD_UID: &str = "io.kubernetes.pod.uid";
/// The label of a container's name.
const CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// How long after its manifest was written a mirror may still tell of the pod that was there before.
const NEXT_LIFE: Duration = Duration::from_secs(600);

/// Watches all pods, notes each change that shows, and what should never be. Clones share what they saw.
#[derive(Clone, Debug)]
pub(super) struct Witness {
    journal: Journal,
    order: Order,
    /// Of each node.
    runtimes: Arc<BTreeMap<String, MemoryCri>>,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    pods: BTreeMap<String, Arc<Pod>>,
    /// Pods that were there.
    gone: BTreeSet<String>,
    /// Those of them that a user would not wait for.
    forced: BTreeSet<String>,
    /// When the manifests of static pods were written, by the pods' names.
    written: BTreeMap<String, Instant>,
    /// Changes of statuses since quiet was awaited, with each pod as it was after the change.
    changes: Option<Vec<(Arc<Pod>, String)>>,
    problems: Vec<String>,
    /// Counts what was seen.
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

    /// A user deletes this pod and does not wait for its containers.
    pub(super) fn is_forced(&self, pod: &Pod) {
        self.seen.lock().forced.insert(pod.uid_str().to_owned());
    }

    /// The manifest of this static pod is written.
    pub(super) fn is_written(&self, pod: &Pod) {
        let name = pod.key().to_string();
        self.seen.lock().written.insert(name, Instant::now());
    }

    /// The pods that were there and are no more.
    pub(super) fn gone(&self) -> BTreeSet<String> {
        self.seen.lock().gone.clone()
    }

    /// From now on statuses should not change.
    pub(super) fn await_quiet(&self) {
        self.seen.lock().changes = Some(Vec::new());
    }

    /// Which did, and how, since quiet was awaited.
    pub(super) fn changes(&self) -> Vec<(Arc<Pod>, String)> {
        self.seen.lock().changes.take().unwrap_or_default()
    }

    /// Watches until it is dropped. It sees each change, whoever has it told what by then.
    pub(super) async fn run(self, api: ApiServer) {
        let (mut since, mut found) = (0, Vec::new());
        loop {
            let Ok(mut pods) = api.changes::<Pod>(since) else {
                // So long ago that it is forgotten.
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
            // The server went down, and watches with it.
            found.clear();
        }
    }

    /// The pods as they were seen last, in the order of their names.
    pub(super) fn pods(&self) -> Vec<Arc<Pod>> {
        let mut pods: Vec<Arc<Pod>> = self.seen.lock().pods.values().cloned().collect();
        pods.sort_by_key(|pod| pod.key());
        pods
    }

    /// Grows with whatever is seen.
    pub(super) fn version(&self) -> u64 {
        self.seen.lock().version
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
        let pod = Arc::new(pod);
        let mut seen = self.seen.lock();
        seen.version += 1;
        let before = seen.pods.get(pod.uid_str()).map(Arc::as_ref);
        let (shown, key) = (shown(&pod), pod.key());
        if before.map(self::shown).as_ref() != Some(&shown) {
            self.journal.note(format!("pod {key} {shown}"));
        }
        let mut wrong = before.map(|before| went_back(before, &pod)).unwrap_or_default();
        // Where none is awaited nobody asks what it is.
        let told = before.filter(|_| seen.changes.is_some());
        let change = told.and_then(|before| change(&before.status, &pod.status));
        if let (Some(changes), Some(change)) = (&mut seen.changes, change) {
            changes.push((pod.clone(), change));
        }
        // One mirror may tell of one life of its pod and then of the next.
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

    /// The others went unseen.
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
                "WRONG: pod {} is gone, and there runs {names}",
                pod.key()
            ));
            seen.problems
                .push(format!("pod {}: it is gone, and there runs {names}", pod.key()));
        }
    }
}

/// How a status differs: `containerStatuses.0.ready: true, then false`. Nothing where there was none before.
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

/// Why a pod is not yet as the runtime has it, under that UID; `None` if the API server and the runtime agree.
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
        return (!has_none).then(|| "was turned away, and has containers".to_owned());
    }
    let unready = |told: &&ContainerStatus| {
        let runs = told.state.as_ref().is_some_and(|state| state.running.is_some());
        runs && !told.ready
    };
    if let Some(unready) = status.container_statuses.iter().flatten().find(unready) {
        return Some(format!("tells that {} runs and is not ready", unready.name));
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
                    && container.labels.get(POD_UID).is_some_and(|of| of == uid)
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

/// It must not be run again, and lost its sandbox when one of its containers had been made and another was not yet started. The
/// kubelet makes no other sandbox then, and what waits for its start keeps the pod `Pending`. Had none been made it would try
/// again; had an init container failed the pod would have.
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

/// An init container fails again and again: such a pod stays `Pending`.
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

/// Of a container that has ended, and the last one of a container that waits to be started again.
fn exit_code(container: &ContainerStatus) -> Option<i32> {
    let ended = |state: &Option<ContainerState>| Some(state.as_ref()?.terminated.as_ref()?.exit_code);
    let runs = container
        .state
        .as_ref()
        .is_some_and(|state| state.running.is_some());
    ended(&container.state).or_else(|| ended(&container.last_state).filter(|_| !runs))
}
