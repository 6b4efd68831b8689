//! The invariants of a simulation: while it runs, at rest, and at its end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::PodExt;
use kubelet_core::annotations::{CONFIG_HASH, CONFIG_MIRROR};
use tokio::time::{Instant, sleep};

use super::csi;
use super::driver::{Driver, alive_tasks};
use super::history::{History, Step};
use super::pressure::SimulatedHost;
use super::resources;
use super::witness::disagreement;

/// How long the cluster may take to come to rest: more than the longest back-off of the kubelet.
pub(super) const REST: Duration = Duration::from_secs(30 * 60);

impl Driver {
    /// Checks for violations.
    pub(super) fn look(&mut self) {
        self.problems.extend(self.witness.problems());
        for node in &self.nodes {
            let violations = node.runtime.violations();
            self.problems.extend(
                violations
                    .into_iter()
                    .map(|violation| format!("{}: {violation}", node.name)),
            );
            let mut violations = node.mounter.violations();
            violations.extend(node.csi.violations());
            violations.extend(csi::detached(&self.api, &node.name, &node.csi));
            let violations = violations.into_iter();
            self.problems
                .extend(violations.map(|violation| format!("{}: {violation}", node.name)));
            if let Some(machine) = &node.machine {
                let violations = machine.problems(&node.runtime).into_iter();
                self.problems
                    .extend(violations.map(|violation| format!("{}: {violation}", node.name)));
                resources::publish_slice(&self.api, &node.name);
            }
            let violations = node.host.iter().flat_map(SimulatedHost::problems);
            self.problems
                .extend(violations.map(|violation| format!("{}: {violation}", node.name)));
            // An agent must not end by itself.
            if node
                .running
                .as_ref()
                .is_some_and(|running| running.agent.is_finished())
            {
                self.problems.push(format!("{}: the agent ended", node.name));
            }
        }
    }

    /// Stops all faults, and waits until the cluster is at rest.
    pub(super) async fn rest(&mut self) {
        if !self.problems.is_empty() {
            return;
        }
        self.journal.note("the faults end");
        self.restart_crashed();
        self.agenda.clear();
        self.weather.calm_down();
        self.api.faults().clear();
        for number in 0..self.nodes.len() {
            self.end_shortage(number);
            if let Some(machine) = &self.nodes[number].machine {
                machine.end_faults();
            }
            let runtime = &self.nodes[number].runtime;
            runtime.faults().clear();
            self.nodes[number].mounter.end_faults();
            self.nodes[number].csi.clear_faults();
            runtime.come_back();
            runtime.set_runtime_trouble(None);
            runtime.set_network_trouble(None);
            self.start_agent(number);
        }
        let (mut agreed, end) = (BTreeSet::new(), Instant::now() + REST);
        // The state at the last check that found something open.
        let mut seen = None;
        loop {
            let now = self.seen();
            if seen.as_ref() == Some(&now) && Instant::now() < end {
                self.look();
                if !self.problems.is_empty() {
                    return;
                }
                sleep(Duration::from_secs(1)).await;
                continue;
            }
            let pods = self.witness.pods();
            let mut open = Vec::new();
            for node in &self.nodes {
                let (containers, sandboxes) = (node.runtime.containers(), node.runtime.sandboxes());
                let static_pods = node.static_pods.all();
                let is_here = |pod: &&Arc<Pod>| {
                    pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(&node.name)
                };
                for pod in pods.iter().filter(is_here) {
                    // A mirror pod shows the containers with its static pod's UID.
                    let uid = match pod.annotation(CONFIG_MIRROR) {
                        None => pod.uid_str(),
                        hash => match static_pods.iter().find(|of| of.annotation(CONFIG_HASH) == hash) {
                            Some(shown) => shown.uid_str(),
                            None => {
                                open.push(format!("{}: mirror {} shows no static pod", node.name, pod.key()));
                                continue;
                            }
                        },
                    };
                    // Pods that crash again and again are correct only now and then. Once is enough, unless they are
                    // to be deleted.
                    if agreed.contains(uid) && !pod.is_deleting() {
                        continue;
                    }
                    match disagreement(pod, uid, &containers, &sandboxes) {
                        None => drop(agreed.insert(uid.to_owned())),
                        Some(how) => open.push(format!("{}: pod {} {how}", node.name, pod.key())),
                    }
                }
                let unseen = static_pods.iter().filter(|pod| !agreed.contains(pod.uid_str()));
                open.extend(
                    unseen.map(|pod| format!("{}: static pod {} has no mirror", node.name, pod.key())),
                );
            }
            let is_over = Instant::now() >= end;
            seen = (!open.is_empty()).then_some(now);
            if open.is_empty() || is_over {
                let living: BTreeSet<String> = pods.iter().map(|pod| pod.uid_str().to_owned()).collect();
                open.extend(self.leftovers(&living));
                open.extend(self.unsettled());
                open.extend(self.not_restarted());
            }
            self.look();
            if open.is_empty() || !self.problems.is_empty() {
                return;
            }
            if is_over {
                let minutes = REST.as_secs() / 60;
                self.problems.extend(
                    open.into_iter()
                        .map(|how| format!("{minutes} min after the last fault: {how}")),
                );
                return;
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// The containers that do not run on the CPUs that they should share.
    fn unsettled(&self) -> Vec<String> {
        let nodes = self.nodes.iter();
        let machines = nodes.filter_map(|node| Some((node, node.machine.as_ref()?)));
        machines
            .flat_map(|(node, machine)| {
                let unsettled = machine.unsettled(&node.runtime).into_iter();
                unsettled.map(|how| format!("{}: {how}", node.name))
            })
            .collect()
    }

    /// How often the state of the API server and the runtimes has changed.
    fn seen(&self) -> Vec<u64> {
        let runtimes = self.nodes.iter().map(|node| node.runtime.version());
        runtimes.chain([self.witness.version()]).collect()
    }

    /// Returns everything, when nothing runs any more.
    pub(super) async fn finish(self, tasks_before: usize) -> (History, Vec<String>) {
        let Self {
            journal,
            witness,
            nodes,
            start,
            mut problems,
            admin,
            api,
            ..
        } = self;
        let mut witnesses = vec![journal.steps()];
        for node in &nodes {
            let calls = node.runtime.calls().all().into_iter();
            let origin = node.clock.now();
            let now = start.elapsed();
            witnesses.push(
                calls
                    .map(|call| {
                        let before = origin.duration_since(call.at).unsigned_abs();
                        let what = format!("{} {call:#}", node.name);
                        Step {
                            at: now.saturating_sub(before),
                            what,
                        }
                    })
                    .collect(),
            );
        }
        witnesses.push(witness.steps());
        drop((nodes, admin, api, witness));
        // Tasks that end with the last handle need one more turn.
        for _ in 0..100 {
            if alive_tasks() <= tasks_before {
                break;
            }
            tokio::task::yield_now().await;
        }
        let left = alive_tasks().saturating_sub(tasks_before);
        if left > 0 && problems.is_empty() {
            problems.push(format!("the agents left {left} tasks behind"));
        }
        (History::merged(witnesses), problems)
    }
}
