//! What must hold while a simulation runs, when it has come to rest, and at its end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::PodExt;
use kubelet_core::annotations::{CONFIG_HASH, CONFIG_MIRROR};
use tokio::time::{Instant, sleep};

use super::driver::{Driver, alive_tasks};
use super::history::{History, Step};
use super::witness::disagreement;

/// How long all may take to come to rest: more than the longest back-off of the kubelet, and some.
pub(super) const REST: Duration = Duration::from_secs(30 * 60);

impl Driver {
    /// Looks for what should never be.
    pub(super) fn look(&mut self) {
        self.problems.extend(self.witness.problems());
        for node in &self.nodes {
            let violations = node.runtime.violations();
            self.problems.extend(
                violations
                    .into_iter()
                    .map(|violation| format!("{}: {violation}", node.name)),
            );
            // An agent has no reason to end.
            if node
                .running
                .as_ref()
                .is_some_and(|running| running.agent.is_finished())
            {
                self.problems.push(format!("{}: the agent ended", node.name));
            }
        }
    }

    /// Nothing goes wrong any more, and all comes to rest.
    pub(super) async fn rest(&mut self) {
        if !self.problems.is_empty() {
            return;
        }
        self.journal.note("the faults end");
        self.agenda.clear();
        self.weather.calm_down();
        self.api.faults().clear();
        for number in 0..self.nodes.len() {
            let runtime = &self.nodes[number].runtime;
            runtime.faults().clear();
            runtime.come_back();
            runtime.set_runtime_trouble(None);
            runtime.set_network_trouble(None);
            self.start_agent(number);
        }
        let (mut agreed, end) = (BTreeSet::new(), Instant::now() + REST);
        // What was seen when something was open the last time.
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
                    // A mirror shows what runs under its static pod's UID.
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
                    // Those that crash again and again agree now and then; once is enough, but for those that are to go.
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

    /// What the API server and the runtimes have, by how often it changed.
    fn seen(&self) -> Vec<u64> {
        let runtimes = self.nodes.iter().map(|node| node.runtime.version());
        runtimes.chain([self.witness.version()]).collect()
    }

    /// Tells all, when nothing runs any more.
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
        // What ends with the last handle is woken for it once more.
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
