//! The times at which a node runs out of something, or its host shuts down.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kubelet_core::{PodExt, PodUid};
use kubelet_cri::{RuntimeService, v1};
use tokio::time::{Instant, sleep, timeout};

use super::host::Scarce;
use super::managers::SHUTDOWN;
use crate::memory_cri::Answer;
use crate::simulation::driver::{Act, Driver};

/// How long a host still runs when its pods have ended.
const LAST_MOMENT: Duration = Duration::from_secs(2);
/// How much longer than the grace periods a shutdown may take: calls to the runtime, and unmounts.
const SLACK: Duration = Duration::from_secs(5);

impl Driver {
    /// A node runs out of something for a while.
    pub(in crate::simulation) fn run_short(&mut self) {
        let Some(number) = self.any_number() else { return };
        let scarce = Scarce::ALL[self.rng.usize(..Scarce::ALL.len())];
        let (Some(host), Some((_, length))) = (&self.nodes[number].host, self.faults.shortages) else {
            return;
        };
        host.run_short_of(scarce);
        let name = &self.nodes[number].name;
        self.journal
            .note(format!("{name} runs out of {} for {length:?}", scarce.name()));
        self.plan_at(Act::EndShortage(number), Instant::now() + length);
    }

    pub(in crate::simulation) fn end_shortage(&self, number: usize) {
        if let Some(host) = &self.nodes[number].host {
            host.has_enough();
        }
    }

    /// A host shuts down in order, and starts again.
    pub(in crate::simulation) async fn shut_a_host_down(&mut self) {
        let Some(number) = self.any_number() else { return };
        let node = &self.nodes[number];
        let (Some(host), true) = (node.host.clone(), node.running.is_some()) else {
            return;
        };
        self.journal.note(format!("{} shuts down", node.name));
        let began = node.clock.now();
        let known: Vec<PodUid> = match node.shown.lock().as_ref() {
            Some(kubelet) => kubelet.pods().pods().iter().map(|pod| pod.uid()).collect(),
            None => Vec::new(),
        };
        let answers = self.answers(number).await;
        let in_time = timeout(SHUTDOWN.0 + SLACK, host.trigger.shut_down())
            .await
            .is_ok();
        sleep(LAST_MOMENT).await;
        if in_time && answers {
            let running = self.still_running(number, &known, began);
            self.problems.extend(running);
        }
        self.kill_agent(number);
        let node = &self.nodes[number];
        self.journal.note(format!("{} is switched off", node.name));
        for pod in node.static_pods.all() {
            // Its mirror shows the end, and then the next life.
            self.witness.is_written(&pod);
        }
        node.reboot();
        self.start_agent_soon(number);
    }

    /// Containers that run after a shutdown, of pods that the agent knew at its begin. If a call to the runtime failed or was slow
    /// since then, nobody can say which of them had time to end.
    fn still_running(&self, number: usize, known: &[PodUid], since: Timestamp) -> Vec<String> {
        let node = &self.nodes[number];
        let calls = node.runtime.calls().all();
        let mut recent = calls.iter().filter(|call| call.at >= since);
        // Calls that only read are not recorded.
        if self.faults.runtime_calls > 0.0 || recent.any(|call| matches!(call.answer, Answer::Failed(_))) {
            return Vec::new();
        }
        let uid = |container: &v1::ContainerStatus| {
            PodUid::new(
                container
                    .labels
                    .get("io.kubernetes.pod.uid")
                    .cloned()
                    .unwrap_or_default(),
            )
        };
        let containers = node.runtime.containers().into_iter();
        let running =
            containers.filter(|container| container.state() == v1::ContainerState::ContainerRunning);
        let running = running.filter(|container| known.contains(&uid(container)));
        running
            .map(|container| {
                let name = container.metadata.clone().unwrap_or_default().name;
                format!(
                    "{}: container {name} of pod {} runs after the shutdown",
                    node.name,
                    uid(&container)
                )
            })
            .collect()
    }

    /// Whether the runtime answers.
    async fn answers(&self, number: usize) -> bool {
        let runtime = &self.nodes[number].runtime;
        RuntimeService::version(runtime, v1::VersionRequest::default())
            .await
            .is_ok()
    }
}
