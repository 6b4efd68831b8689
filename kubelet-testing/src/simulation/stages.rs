//! The end of a simulation, once the cluster is at rest: agents are replaced, pods are deleted, agents end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::PodExt;
use tokio::time::{Instant, sleep, timeout};

use super::csi;
use super::driver::{Driver, Running, alive_tasks};
use super::judge::REST;
use super::leftovers::leftovers;
use super::resources::{self, SimulatedMachine};
use super::storage;

/// How long nothing must change until the cluster counts as calm. By then all reports are made.
const CALM: Duration = Duration::from_secs(120);
/// How long to watch a new agent: long enough to run each probe and sync each pod.
const AFTERMATH: Duration = Duration::from_secs(1000);
/// How long a node is without an agent.
const PAUSE: Duration = Duration::from_secs(5);
/// How long an agent may take to end.
const END: Duration = Duration::from_secs(5 * 60);

/// The newest instance of each container of each pod, and its state. Older ones that are removed are visible nowhere.
type Fingerprint = BTreeMap<String, BTreeMap<String, Option<Instance>>>;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Instance {
    created_at: i64,
    id: String,
    state: i32,
}

impl Driver {
    /// Kills and replaces every agent. If the containers of a pod do not change, its status must not change.
    pub(super) async fn replace_agents(&mut self) {
        if !self.problems.is_empty() {
            return;
        }
        let calm = self.fingerprint();
        sleep(CALM).await;
        let before = self.fingerprint();
        self.witness.await_quiet();
        let volumes = self.volumes();
        self.take_over().await;
        sleep(AFTERMATH).await;
        let after = self.fingerprint();
        // Pods that end or crash meanwhile may give back their volumes.
        let is_calm = calm == before && before == after;
        for ((name, before), (_, after)) in volumes.iter().zip(self.volumes()).filter(|_| is_calm) {
            if *before != after {
                let problem = format!("{name}: the agent's restart changes volumes: {before:?}, {after:?}");
                self.problems.push(problem);
            }
        }
        for (pod, change) in self.witness.changes() {
            let uid = pod.uid_str();
            let is_same = calm.get(uid) == before.get(uid) && before.get(uid) == after.get(uid);
            // It ends by the clock.
            let is_timed = pod
                .spec
                .as_ref()
                .is_some_and(|spec| spec.active_deadline_seconds.is_some());
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            let is_managed = self
                .nodes
                .iter()
                .any(|known| known.machine.is_some() && Some(&*known.name) == node);
            // Its containers ended unseen, if it had any.
            let was_rejected = is_managed
                && pod.status.as_ref().is_some_and(|status| {
                    status
                        .message
                        .as_ref()
                        .is_some_and(|text| text.starts_with("Pod was rejected"))
                });
            // Until it runs, the status shows extended resources too; afterwards the next sync leaves them out.
            let is_of_resources =
                is_managed && change.split("; ").all(|change| change.starts_with("resources."));
            if is_same
                && !is_timed
                && !was_rejected
                && !is_of_resources
                && !pod.is_mirror()
                && !pod.is_deleting()
            {
                let problem = format!("pod {}: the agent's restart shows: {change}", pod.key());
                self.problems.push(problem);
            }
        }
        self.look();
    }

    /// The mounts and files of volumes on each node.
    fn volumes(&self) -> Vec<(String, Vec<String>)> {
        let nodes = self.nodes.iter();
        nodes
            .map(|node| {
                (
                    node.name.clone(),
                    storage::snapshot(&node.mounter, &node.root_dir),
                )
            })
            .collect()
    }

    /// Kills every agent, and starts another one on its node.
    async fn take_over(&mut self) {
        self.journal.note("the agents are replaced by others");
        for node in &mut self.nodes {
            if let Some(running) = node.running.take() {
                running.agent.abort();
            }
        }
        sleep(PAUSE).await;
        for number in 0..self.nodes.len() {
            self.run_agent(number);
        }
    }

    fn fingerprint(&self) -> Fingerprint {
        let mut pods = Fingerprint::new();
        for node in &self.nodes {
            for container in node.runtime.containers() {
                let uid = container.labels.get("io.kubernetes.pod.uid").cloned();
                let of_pod = pods.entry(uid.unwrap_or_default()).or_default();
                let name = container.metadata.map(|metadata| metadata.name);
                let instance = Some(Instance {
                    created_at: container.created_at,
                    id: container.id,
                    state: container.state,
                });
                let newest = of_pod.entry(name.unwrap_or_default()).or_default();
                *newest = instance.max(newest.take());
            }
        }
        pods
    }

    /// Deletes all pods, and checks that nothing stays of them: in the runtimes, on the disks, in the agents' memory,
    /// and no more tasks than a new agent has.
    pub(super) async fn clear(&mut self) {
        if !self.problems.is_empty() {
            return;
        }
        self.journal.note("all pods are deleted");
        self.nodes.iter().for_each(|node| node.static_pods.clear());
        for pod in self.witness.pods().into_iter().filter(|pod| !pod.is_mirror()) {
            self.delete(&pod, None).await;
        }
        let end = Instant::now() + REST;
        loop {
            let pods = self.witness.pods();
            let mut open: Vec<String> = pods
                .iter()
                .map(|pod| format!("pod {} is still there", pod.key()))
                .collect();
            let is_over = Instant::now() >= end;
            if open.is_empty() || is_over {
                open.extend(self.leftovers(&BTreeSet::new()));
                open.extend(csi::left_attached(&self.api));
                let machines = self.nodes.iter().filter_map(|node| node.machine.as_ref());
                open.extend(machines.flat_map(SimulatedMachine::left));
            }
            self.look();
            if open.is_empty() || !self.problems.is_empty() {
                break;
            }
            if is_over {
                let minutes = REST.as_secs() / 60;
                let late = open.into_iter();
                self.problems
                    .extend(late.map(|how| format!("{minutes} min after all pods were deleted: {how}")));
                break;
            }
            sleep(Duration::from_secs(1)).await;
        }
        let tasks = fewest_tasks().await;
        self.take_over().await;
        sleep(CALM).await;
        self.check_devices().await;
        let fresh = fewest_tasks().await;
        if tasks > fresh && self.problems.is_empty() {
            let problem = format!("with all pods gone there are {tasks} tasks; new agents have {fresh}");
            self.problems.push(problem);
        }
        self.look();
    }

    /// Devices that pods had are free once another pod is admitted: it is then the only one that has some.
    async fn check_devices(&mut self) {
        for number in 0..self.nodes.len() {
            let node = &self.nodes[number];
            let (Some(machine), name) = (node.machine.clone(), node.name.clone()) else {
                continue;
            };
            if !self.problems.is_empty() {
                return;
            }
            let last = format!("last-{name}");
            match serde_json::from_value(resources::with_devices(&last, &name)) {
                Ok(pod) => self.create(pod).await,
                Err(error) => self.problems.push(format!("pod {last}: {error}")),
            }
            sleep(CALM).await;
            let pods = self.witness.pods();
            let uids: BTreeSet<String> = pods.iter().map(|pod| pod.uid_str().to_owned()).collect();
            let (with, ready) = (machine.with_devices(), pods.iter().all(|pod| is_ready(pod)));
            if with != uids || !ready {
                let problem = format!(
                    "{name}: devices belong to {with:?}, and the only pod is {uids:?}, ready: {ready}"
                );
                self.problems.push(problem);
            }
            self.delete_by_name(&last).await;
            sleep(CALM).await;
        }
    }

    /// What stays of deleted pods, on all nodes.
    pub(super) fn leftovers(&self, living: &BTreeSet<String>) -> Vec<String> {
        let gone = self.witness.gone();
        let nodes = self.nodes.iter();
        nodes
            .flat_map(|node| {
                let mut living = living.clone();
                let static_pods = node.static_pods.all();
                living.extend(static_pods.iter().map(|pod| pod.uid_str().to_owned()));
                let left = leftovers(node, &living, &gone).into_iter();
                left.map(|left| format!("{}: {left}", node.name))
            })
            .collect()
    }

    /// Ends all agents.
    pub(super) async fn end(&mut self) {
        for node in &self.nodes {
            for text in csi::published(&node.csi) {
                self.journal.note(format!("{} {text}", node.name));
            }
        }
        for number in 0..self.nodes.len() {
            self.end_agent(number).await;
        }
    }

    /// Shuts an agent down, and waits for its end.
    pub(super) async fn end_agent(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        let Some(Running {
            mut agent, shutdown, ..
        }) = node.running.take()
        else {
            return;
        };
        shutdown.cancel();
        let problem = match timeout(END, &mut agent).await {
            Ok(Ok(Ok(()))) => return,
            Ok(Ok(Err(error))) => format!("the agent ended with an error: {error}"),
            Ok(Err(error)) => format!("the agent died: {error}"),
            Err(_) => {
                agent.abort();
                format!("the agent did not end within {END:?}")
            }
        };
        self.problems.push(format!("{}: {problem}", node.name));
    }
}

fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let containers = status.and_then(|status| status.container_statuses.as_ref());
    containers.is_some_and(|all| all.iter().all(|container| container.ready))
}

/// The number of tasks that stay, without those that come and go.
async fn fewest_tasks() -> usize {
    let mut fewest = usize::MAX;
    for _ in 0..10 {
        sleep(Duration::from_millis(1700)).await;
        fewest = fewest.min(alive_tasks());
    }
    fewest
}
