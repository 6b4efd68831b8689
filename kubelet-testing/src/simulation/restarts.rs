//! Static pods whose manifests are removed and written again at once: each must end, and start again.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::PodExt;
use kubelet_cri::v1;
use tokio::task::Id;

use super::driver::{Driver, Node};
use super::witness::POD_UID;

/// How long an agent runs until it has surely heard from all its sources. Before that it ends no pod.
const READY: Duration = Duration::from_secs(15 * 60);

/// Containers that must not run for long any more.
pub(super) struct Restart {
    /// Of the node.
    number: usize,
    /// The agent that saw the removal. Another one sees only the manifest.
    agent: Id,
    pod: String,
    containers: Vec<String>,
}

impl Driver {
    /// This static pod must start again: its manifest is about to be removed and written again at once.
    pub(super) fn expect_restart(&mut self, number: usize, pod: &Pod) {
        let node = &self.nodes[number];
        let running = node.running.as_ref();
        let Some(running) = running.filter(|running| running.since.elapsed() >= READY) else {
            return;
        };
        self.restarts.push(Restart {
            number,
            agent: running.agent.id(),
            pod: pod.key().to_string(),
            containers: containers(node, pod.uid_str()),
        });
    }

    /// The pods that did not start again, at rest.
    pub(super) fn not_restarted(&self) -> Vec<String> {
        let expected = self.restarts.iter().filter(|restart| {
            let running = self.nodes[restart.number].running.as_ref();
            running.is_some_and(|running| running.agent.id() == restart.agent)
        });
        let missed = expected.filter(|restart| {
            let all = self.nodes[restart.number].runtime.containers().into_iter();
            let mut running = all.filter(is_running);
            running.any(|container| restart.containers.contains(&container.id))
        });
        let missed = missed.map(|restart| {
            let (node, pod) = (&self.nodes[restart.number].name, &restart.pod);
            format!("{node}: static pod {pod} was removed and written again, and a container from before still runs")
        });
        missed.collect()
    }
}

/// The running containers of a pod.
fn containers(node: &Node, uid: &str) -> Vec<String> {
    let all = node.runtime.containers().into_iter();
    let its = all.filter(|container| container.labels.get(POD_UID).is_some_and(|of| of == uid));
    its.filter(is_running).map(|container| container.id).collect()
}

fn is_running(container: &v1::ContainerStatus) -> bool {
    container.state() == v1::ContainerState::ContainerRunning
}
