//! Builds the status of a pod in the API.

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

/// Builds the `status` of a pod in the API.
///
/// ```
/// use kubelet_testing::{PodBuilder, PodStatusBuilder};
///
/// let status = PodStatusBuilder::new("Running")
///     .pod_ip("10.0.0.7")
///     .condition("Ready", "True")
///     .init_container("setup", |c| c.terminated(0, "Completed"))
///     .container("main", |c| c.running("2024-01-01T00:00:00Z".parse().unwrap()).ready().restart_count(2))
///     .container("side", |c| c.waiting("CrashLoopBackOff", "back-off 10s").last_terminated(1, "Error"))
///     .build();
/// let pod = PodBuilder::new("web").container("main", "busybox:1.36", |c| c).status(status).build();
/// assert_eq!(pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap().len(), 2);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct PodStatusBuilder {
    status: PodStatus,
}

impl PodStatusBuilder {
    /// A status with this phase: `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub fn new(phase: &str) -> Self {
        let status = PodStatus {
            phase: Some(phase.to_owned()),
            ..PodStatus::default()
        };
        Self { status }
    }

    /// `reason`, such as `Evicted`, and `message`.
    pub fn reason(mut self, reason: impl Into<String>, message: impl Into<String>) -> Self {
        self.status.reason = Some(reason.into());
        self.status.message = Some(message.into());
        self
    }

    /// Adds to `podIPs`. The first one is also `podIP`.
    pub fn pod_ip(mut self, ip: impl Into<String>) -> Self {
        let ip = ip.into();
        self.status.pod_ip.get_or_insert_with(|| ip.clone());
        self.status.pod_ips.get_or_insert_default().push(PodIP { ip });
        self
    }

    /// `hostIP`
    pub fn host_ip(mut self, ip: impl Into<String>) -> Self {
        self.status.host_ip = Some(ip.into());
        self
    }

    /// `startTime`
    pub fn start_time(mut self, at: Timestamp) -> Self {
        self.status.start_time = Some(Time(at));
        self
    }

    /// `qosClass`
    pub fn qos_class(mut self, class: &str) -> Self {
        self.status.qos_class = Some(class.to_owned());
        self
    }

    /// Adds to `conditions`: `("Ready", "True")`.
    pub fn condition(self, condition: &str, status: &str) -> Self {
        self.condition_with(condition, status, |_| {})
    }

    /// Adds to `conditions`, with a reason, a message, times.
    pub fn condition_with(
        mut self,
        condition: &str,
        status: &str,
        edit: impl FnOnce(&mut PodCondition),
    ) -> Self {
        let mut condition = PodCondition {
            type_: condition.to_owned(),
            status: status.to_owned(),
            ..PodCondition::default()
        };
        edit(&mut condition);
        self.status.conditions.get_or_insert_default().push(condition);
        self
    }

    /// Adds to `containerStatuses`. The default is a container that waits with the reason `ContainerCreating`.
    pub fn container(
        mut self,
        name: &str,
        build: impl FnOnce(ContainerStatusBuilder) -> ContainerStatusBuilder,
    ) -> Self {
        let status = build(ContainerStatusBuilder::new(name)).status;
        self.status
            .container_statuses
            .get_or_insert_default()
            .push(status);
        self
    }

    /// Adds to `initContainerStatuses`.
    pub fn init_container(
        mut self,
        name: &str,
        build: impl FnOnce(ContainerStatusBuilder) -> ContainerStatusBuilder,
    ) -> Self {
        let status = build(ContainerStatusBuilder::new(name)).status;
        self.status
            .init_container_statuses
            .get_or_insert_default()
            .push(status);
        self
    }

    /// Edits any other field.
    pub fn with(mut self, edit: impl FnOnce(&mut PodStatus)) -> Self {
        edit(&mut self.status);
        self
    }

    /// Returns the status.
    pub fn build(self) -> PodStatus {
        self.status
    }
}

impl From<PodStatusBuilder> for PodStatus {
    fn from(builder: PodStatusBuilder) -> Self {
        builder.build()
    }
}

/// Builds the status of a container: see [`PodStatusBuilder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct ContainerStatusBuilder {
    status: ContainerStatus,
}

impl ContainerStatusBuilder {
    fn new(name: &str) -> Self {
        let status = ContainerStatus {
            name: name.to_owned(),
            ..ContainerStatus::default()
        };
        Self { status }.waiting("ContainerCreating", "")
    }

    /// `state.waiting`; an empty message is left out.
    pub fn waiting(mut self, reason: impl Into<String>, message: &str) -> Self {
        let waiting = ContainerStateWaiting {
            reason: Some(reason.into()),
            message: (!message.is_empty()).then(|| message.to_owned()),
        };
        self.status.started = Some(false);
        self.status.state = Some(ContainerState {
            waiting: Some(waiting),
            ..ContainerState::default()
        });
        self
    }

    /// `state.running`, and `started`.
    pub fn running(mut self, since: Timestamp) -> Self {
        let running = ContainerStateRunning {
            started_at: Some(Time(since)),
        };
        self.status.started = Some(true);
        self.status.state = Some(ContainerState {
            running: Some(running),
            ..ContainerState::default()
        });
        self
    }

    /// `state.terminated`
    pub fn terminated(mut self, exit_code: i32, reason: &str) -> Self {
        self.status.started = Some(false);
        self.status.state = Some(ended(exit_code, reason));
        self
    }

    /// `lastState.terminated`
    pub fn last_terminated(mut self, exit_code: i32, reason: &str) -> Self {
        self.status.last_state = Some(ended(exit_code, reason));
        self
    }

    /// `ready`
    pub fn ready(mut self) -> Self {
        self.status.ready = true;
        self
    }

    /// `restartCount`
    pub fn restart_count(mut self, count: i32) -> Self {
        self.status.restart_count = count;
        self
    }

    /// `containerID`: `containerd://…`.
    pub fn container_id(mut self, id: impl Into<String>) -> Self {
        self.status.container_id = Some(id.into());
        self
    }

    /// `image` and `imageID`
    pub fn image(mut self, image: impl Into<String>, id: impl Into<String>) -> Self {
        self.status.image = image.into();
        self.status.image_id = id.into();
        self
    }

    /// Edits any other field.
    pub fn with(mut self, edit: impl FnOnce(&mut ContainerStatus)) -> Self {
        edit(&mut self.status);
        self
    }
}

fn ended(exit_code: i32, reason: &str) -> ContainerState {
    let terminated = ContainerStateTerminated {
        exit_code,
        reason: Some(reason.to_owned()),
        ..ContainerStateTerminated::default()
    };
    ContainerState {
        terminated: Some(terminated),
        ..ContainerState::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_like_what_is_shown() {
        let at = Timestamp::from_second(1_700_000_000).unwrap();
        let status = PodStatusBuilder::new("Running")
            .pod_ip("10.0.0.7")
            .pod_ip("fd00::7")
            .condition_with("Ready", "False", |condition| {
                condition.reason = Some("ContainersNotReady".into())
            })
            .container("main", |c| {
                c.running(at)
                    .ready()
                    .restart_count(2)
                    .container_id("containerd://abc")
            })
            .container("side", |c| {
                c.waiting("CrashLoopBackOff", "back-off 10s")
                    .last_terminated(1, "Error")
            })
            .container("late", |c| c)
            .build();
        let expected = serde_json::json!({
            "phase": "Running",
            "podIP": "10.0.0.7",
            "podIPs": [{ "ip": "10.0.0.7" }, { "ip": "fd00::7" }],
            "conditions": [{ "type": "Ready", "status": "False", "reason": "ContainersNotReady" }],
            "containerStatuses": [
                {
                    "name": "main", "image": "", "imageID": "", "ready": true, "started": true, "restartCount": 2,
                    "containerID": "containerd://abc", "state": { "running": { "startedAt": "2023-11-14T22:13:20Z" } },
                },
                {
                    "name": "side", "image": "", "imageID": "", "ready": false, "started": false, "restartCount": 0,
                    "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 10s" } },
                    "lastState": { "terminated": { "exitCode": 1, "reason": "Error" } },
                },
                {
                    "name": "late", "image": "", "imageID": "", "ready": false, "started": false, "restartCount": 0,
                    "state": { "waiting": { "reason": "ContainerCreating" } },
                },
            ],
        });
        assert_eq!(serde_json::to_value(status).unwrap(), expected);
    }
}
