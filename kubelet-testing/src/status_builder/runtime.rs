//! Builds the runtime's status of a pod.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::runtime::{
    Container, ContainerState, ContainerStatus, PodStatus, RuntimePod, Sandbox, SandboxState, SandboxStatus,
};
use kubelet_core::{ContainerId, PodExt, PodKey, PodUid};
use tokio::time::Instant;

/// The prefix of generated ids.
const RUNTIME: &str = "test";

/// Builds the runtime's status of a pod, both as listed and in full: `kubelet_core`'s [`RuntimePod`] and
/// [`PodStatus`].
///
/// Generated ids are `test://NAME-ATTEMPT`. A container belongs to the last sandbox that was added before it.
///
/// ```
/// use kubelet_core::PodExt;
/// use kubelet_testing::{PodBuilder, RuntimeStatusBuilder};
///
/// let pod = PodBuilder::new("web").container("main", "busybox:1.36", |c| c).build();
/// let at = "2024-01-01T00:00:00Z".parse().unwrap();
/// let runtime = RuntimeStatusBuilder::of(&pod)
///     .sandbox("10.0.0.7")
///     .container("main", |c| c.exited(at, at, 1).reason("Error"))
///     .container("main", |c| c.attempt(1).running(at));
/// let status = runtime.status();
/// assert_eq!(status.container("main").unwrap().restart_count, 1); // the newest
/// assert_eq!(runtime.listed().uid, pod.uid());
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct RuntimeStatusBuilder {
    uid: PodUid,
    key: PodKey,
    /// Oldest first.
    sandboxes: Vec<SandboxStatus>,
    containers: Vec<ContainerStatus>,
}

impl RuntimeStatusBuilder {
    /// A pod without sandboxes and containers.
    pub fn of(pod: &Pod) -> Self {
        Self::new(pod.uid(), pod.key())
    }

    /// A pod with this UID, without sandboxes and containers.
    pub fn new(uid: impl Into<PodUid>, key: PodKey) -> Self {
        Self {
            uid: uid.into(),
            key,
            sandboxes: Vec::new(),
            containers: Vec::new(),
        }
    }

    /// Adds a sandbox that is ready and newer than the others. It has this IP, or is on the host's network if the IP
    /// is empty.
    pub fn sandbox(self, ip: &str) -> Self {
        let ip = ip.to_owned();
        self.sandbox_with(|sandbox| {
            sandbox.host_network = ip.is_empty();
            sandbox.ips = [ip].into_iter().filter(|ip| !ip.is_empty()).collect();
        })
    }

    /// Adds a sandbox that is newer than the others.
    pub fn sandbox_with(mut self, edit: impl FnOnce(&mut SandboxStatus)) -> Self {
        let attempt = u32::try_from(self.sandboxes.len()).unwrap_or(u32::MAX);
        let mut sandbox = SandboxStatus::new(format!("sandbox-{attempt}"), SandboxState::Ready);
        sandbox.attempt = attempt;
        sandbox.network_reported = true;
        edit(&mut sandbox);
        self.sandboxes.push(sandbox);
        self
    }

    /// Adds a container that is newer than the others. It is created but not started, unless `edit` changes that.
    pub fn container(
        mut self,
        name: &str,
        build: impl FnOnce(RuntimeContainerBuilder) -> RuntimeContainerBuilder,
    ) -> Self {
        let id = ContainerId::new(RUNTIME, "");
        let mut status = ContainerStatus::new(id, name, ContainerState::Created);
        status.sandbox_id = self
            .sandboxes
            .last()
            .map(|sandbox| sandbox.id.clone())
            .unwrap_or_default();
        let mut status = build(RuntimeContainerBuilder { status }).status;
        if status.id.id().is_empty() {
            status.id = ContainerId::new(RUNTIME, format!("{name}-{}", status.restart_count));
        }
        self.containers.push(status);
        self
    }

    /// The full status, read now.
    pub fn status(&self) -> PodStatus {
        let mut status = PodStatus::empty(self.uid.clone(), self.key.clone(), Instant::now());
        let ready = self
            .sandboxes
            .last()
            .filter(|sandbox| sandbox.state == SandboxState::Ready);
        status.ips = ready.map(|sandbox| sandbox.ips.clone()).unwrap_or_default();
        status.sandboxes = self.sandboxes.iter().rev().cloned().collect();
        status.containers = self.containers.iter().rev().cloned().collect();
        status
    }

    /// The pod as the runtime lists it.
    pub fn listed(&self) -> RuntimePod {
        let mut pod = RuntimePod::empty(self.uid.clone(), self.key.clone());
        pod.created_at = self.sandboxes.first().and_then(|sandbox| sandbox.created_at);
        let sandboxes = self.sandboxes.iter().rev().map(|status| {
            let mut sandbox = Sandbox::new(ContainerId::new(RUNTIME, status.id.as_str()), status.state);
            sandbox.attempt = status.attempt;
            sandbox.created_at = status.created_at;
            sandbox
        });
        pod.sandboxes = sandboxes.collect();
        let containers = self.containers.iter().rev().map(|status| {
            let mut container = Container::new(status.id.clone(), &status.name, status.state);
            container.image.clone_from(&status.image);
            container.image_id.clone_from(&status.image_id);
            container.image_ref.clone_from(&status.image_ref);
            container.hash = status.hash;
            container.sandbox_id.clone_from(&status.sandbox_id);
            container.created_at = status.created_at;
            container
        });
        pod.containers = containers.collect();
        pod
    }
}

/// Builds the runtime's status of a container: see [`RuntimeStatusBuilder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct RuntimeContainerBuilder {
    status: ContainerStatus,
}

impl RuntimeContainerBuilder {
    /// It has been running since this time.
    pub fn running(mut self, since: Timestamp) -> Self {
        self.status.state = ContainerState::Running;
        self.began(since)
    }

    /// It has exited with this code.
    pub fn exited(mut self, started: Timestamp, finished: Timestamp, code: i32) -> Self {
        self.status.state = ContainerState::Exited;
        self.status.finished_at = Some(finished);
        self.status.exit_code = code;
        self.began(started)
    }

    fn began(mut self, at: Timestamp) -> Self {
        self.status.created_at.get_or_insert(at);
        self.status.started_at = Some(at);
        self
    }

    /// How often it was started before. The default is 0.
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.status.restart_count = attempt;
        self
    }

    /// The reason why it ended, in one word.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.status.reason = reason.into();
        self
    }

    /// The kubelet's hash of the container spec.
    pub fn hash(mut self, hash: u64) -> Self {
        self.status.hash = hash;
        self
    }

    /// Edits any other field.
    pub fn with(mut self, edit: impl FnOnce(&mut ContainerStatus)) -> Self {
        edit(&mut self.status);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_newest_is_first_and_both_views_agree() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let runtime = RuntimeStatusBuilder::new("8a3f", PodKey::new("default", "web"))
            .sandbox_with(|sandbox| sandbox.state = SandboxState::NotReady)
            .container("main", |c| c.exited(at(1), at(2), 137).reason("Error"))
            .sandbox("10.0.0.7")
            .container("main", |c| c.attempt(1).running(at(3)).hash(7))
            .container("side", |c| c);
        let (status, listed) = (runtime.status(), runtime.listed());
        assert_eq!(status.ips, ["10.0.0.7"]);
        let ids: Vec<_> = status.containers.iter().map(|c| c.id.to_string()).collect();
        assert_eq!(ids, ["test://side-0", "test://main-1", "test://main-0"]);
        assert_eq!(
            listed
                .containers
                .iter()
                .map(|c| c.id.to_string())
                .collect::<Vec<_>>(),
            ids
        );
        let sandboxes: Vec<_> = status.containers.iter().map(|c| &*c.sandbox_id).collect();
        assert_eq!(sandboxes, ["sandbox-1", "sandbox-1", "sandbox-0"]);
        assert_eq!(status.active_containers().count(), 2);
        assert_eq!((status.sandboxes[0].attempt, listed.sandboxes[1].attempt), (1, 0));
        assert!(status.is_running() && listed.is_running());
        assert_eq!(listed.containers[1].hash, 7);

        let on_host = RuntimeStatusBuilder::new("8a3f", PodKey::new("default", "web")).sandbox("");
        assert!(on_host.status().ips.is_empty() && on_host.status().sandboxes[0].host_network);
    }
}
