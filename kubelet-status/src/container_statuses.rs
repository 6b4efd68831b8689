//! The API status of each container (`convertToAPIContainerStatuses`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus as ApiContainerStatus, ContainerUser, LinuxContainerUser, Pod, VolumeMount,
    VolumeMountStatus,
};
use kubelet_core::restart_rules::is_restartable_init_container;
use kubelet_core::runtime::{ContainerState as RuntimeState, ContainerStatus, PodStatus, SyncFailure};
use kubelet_core::{PodExt, clock::api_time};

use crate::resources::container_resources;
use crate::restart_rules::container_will_start;
use crate::status_ext::{
    CONTAINER_STATUS_UNKNOWN, RESTARTING_ALL_CONTAINERS, is_running, is_waiting, terminated,
    terminated_unseen, text,
};

const CONTAINER_CREATING: &str = "ContainerCreating";
const POD_INITIALIZING: &str = "PodInitializing";

/// One of a pod's lists of containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Regular,
    Init,
    Ephemeral,
}

/// The input of the container statuses of one pod.
pub(crate) struct ContainerStatuses<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) runtime: &'a PodStatus,
    pub(crate) start_failures: Option<&'a BTreeMap<String, SyncFailure>>,
    /// The pod's end was reported.
    pub(crate) ended: bool,
    /// All containers are restarting in place.
    pub(crate) restarting: bool,
    /// Whether the runtime supports recursive read-only mounts.
    pub(crate) recursive_read_only: bool,
    pub(crate) stop_signals: bool,
}

impl ContainerStatuses<'_> {
    /// The statuses of `containers`, one list of the pod: init containers in the order of the spec, others sorted by
    /// name.
    pub(crate) fn generate(
        &self,
        kind: Kind,
        containers: &[Container],
        previous: &[ApiContainerStatus],
    ) -> Vec<ApiContainerStatus> {
        let mut statuses: Vec<ApiContainerStatus> = containers
            .iter()
            .map(|container| {
                let previous = previous.iter().rfind(|status| status.name == container.name);
                let mut status = self.status_of(container, previous);
                match previous.filter(|previous| self.has_told_end(&status, previous)) {
                    Some(told) => {
                        (status.state, status.last_state) = (told.state.clone(), told.last_state.clone())
                    }
                    None => self.apply_start_failure(kind, container, &mut status),
                }
                status
            })
            .collect();
        if kind != Kind::Init {
            statuses.sort_by(|a, b| a.name.cmp(&b.name));
        }
        statuses
    }

    /// The container's newest instance, with the previous one as its last state. Without an instance, the status is
    /// derived from the reported one.
    fn status_of(&self, container: &Container, previous: Option<&ApiContainerStatus>) -> ApiContainerStatus {
        let mut instances: Vec<&ContainerStatus> = self
            .runtime
            .containers
            .iter()
            .filter(|status| status.name == container.name)
            .collect();
        instances.sort_by_key(|status| std::cmp::Reverse(status.created_at));
        let mut instances = instances.into_iter();
        let Some(newest) = instances.next() else {
            return self.without_instance(container, previous);
        };
        let mut status = self.convert(container, newest, previous);
        if let Some(before) = instances.next() {
            status.last_state = self.convert(container, before, previous).state;
        }
        status
    }

    /// Whether the container's exit was reported together with the end of the pod. That report is final, even if the
    /// runtime did not see the exit or the agent was replaced.
    fn has_told_end(&self, status: &ApiContainerStatus, previous: &ApiContainerStatus) -> bool {
        self.ended
            && terminated(&previous.state).is_some()
            && !is_running(&status.state)
            && status.container_id == previous.container_id
    }

    /// The status of a container that the runtime does not know.
    fn without_instance(
        &self,
        container: &Container,
        previous: Option<&ApiContainerStatus>,
    ) -> ApiContainerStatus {
        let mut status = match previous {
            Some(previous) if terminated(&previous.state).is_some() => previous.clone(),
            _ => ApiContainerStatus {
                name: container.name.clone(),
                image: container.image.clone().unwrap_or_default(),
                state: Some(waiting_to_start(self.pod)),
                restart_count: previous.map_or(0, |previous| previous.restart_count),
                last_state: Some(
                    previous
                        .and_then(|previous| previous.last_state.clone())
                        .unwrap_or_default(),
                ),
                volume_mounts: self.volume_mounts(container),
                ..ApiContainerStatus::default()
            },
        };
        let Some(previous) = previous else {
            return status;
        };

        if self.restarting && !is_waiting(&previous.state) {
            let message = "The container is removed because RestartAllContainers in place";
            status.state = Some(waiting(RESTARTING_ALL_CONTAINERS, message));
            status.last_state = Some(terminated_unseen(RESTARTING_ALL_CONTAINERS, message));
            status.restart_count = previous.restart_count + 1;
        } else if is_running(&previous.state) && terminated(&status.last_state).is_none() {
            // It was running when it was last seen, so it has exited; it is not one that never started.
            status.last_state = Some(terminated_unseen(
                CONTAINER_STATUS_UNKNOWN,
                "The container could not be located when the pod was deleted.  The container used to be Running",
            ));
            if !self.pod.is_deleting() {
                status.restart_count += 1;
            }
        }
        status
    }

    /// Converts one instance of a container.
    fn convert(
        &self,
        container: &Container,
        status: &ContainerStatus,
        previous: Option<&ApiContainerStatus>,
    ) -> ApiContainerStatus {
        let container_id = status.id.to_string();
        let mut restart_count = i32::try_from(status.restart_count).unwrap_or(i32::MAX);
        let (mut last_terminated, mut last_waiting) = (None, None);
        if let Some(previous) = previous {
            restart_count = restart_count.max(previous.restart_count);
            // A removed instance is known only from its reported status.
            let ended = terminated(&previous.state)
                .filter(|_| previous.container_id.as_deref() != Some(container_id.as_str()));
            last_terminated = ended.or(terminated(&previous.last_state)).cloned();
            // So is one that never ran: it must not be forgotten when it is removed.
            last_waiting = (previous.last_state.as_ref())
                .filter(|_| {
                    last_terminated.is_none() && previous.container_id.as_ref() == Some(&container_id)
                })
                .and_then(|last| last.waiting.clone());
        }

        let mut state = ContainerState::default();
        match status.state {
            RuntimeState::Running => {
                state.running = Some(ContainerStateRunning {
                    started_at: status.started_at.map(api_time),
                });
                if let Some(previous) = previous
                    && terminated(&previous.state).is_some()
                    && i64::from(previous.restart_count) >= i64::from(status.restart_count)
                {
                    restart_count = previous.restart_count + 1;
                }
            }
            RuntimeState::Exited => {
                state.terminated = Some(ContainerStateTerminated {
                    exit_code: status.exit_code,
                    reason: text(&status.reason),
                    message: text(&status.message),
                    started_at: status.started_at.map(api_time),
                    finished_at: status.finished_at.map(api_time),
                    container_id: Some(container_id.clone()),
                    signal: None,
                });
            }
            RuntimeState::Unknown if previous.is_some_and(|previous| is_running(&previous.state)) => {
                let reason = match self.restarting {
                    true => RESTARTING_ALL_CONTAINERS,
                    false => CONTAINER_STATUS_UNKNOWN,
                };
                let message = "The container could not be located when the pod was terminated";
                state = terminated_unseen(reason, message);
                restart_count = previous.map_or(0, |previous| previous.restart_count) + 1;
            }
            RuntimeState::Created | RuntimeState::Unknown => state = waiting("", ""),
        }

        let resources = container_resources(container, status, previous);
        ApiContainerStatus {
            name: status.name.clone(),
            state: Some(state),
            last_state: Some(ContainerState {
                terminated: last_terminated,
                waiting: last_waiting,
                running: None,
            }),
            restart_count,
            image: status.image.clone(),
            image_id: status.image_ref.clone(),
            container_id: Some(container_id),
            // A container that started before the agent did counts as started until a probe has a result.
            started: previous
                .filter(|_| status.state == RuntimeState::Running)
                .and_then(|previous| previous.started),
            resources: Some(resources),
            allocated_resources: container
                .resources
                .as_ref()
                .and_then(|resources| resources.requests.clone())
                .filter(|requests| !requests.is_empty()),
            volume_mounts: previous.and_then(|previous| previous.volume_mounts.clone()),
            user: status.user.as_ref().map(|user| ContainerUser {
                linux: Some(LinuxContainerUser {
                    uid: user.uid,
                    gid: user.gid,
                    supplemental_groups: Some(user.supplemental_groups.clone())
                        .filter(|groups| !groups.is_empty()),
                }),
            }),
            stop_signal: status.stop_signal.clone().filter(|_| self.stop_signals),
            ..ApiContainerStatus::default()
        }
    }

    /// A container that failed to start is waiting, with the reason.
    fn apply_start_failure(&self, kind: Kind, container: &Container, status: &mut ApiContainerStatus) {
        if kind == Kind::Init {
            match self.runtime.container(&container.name) {
                Some(instance) if instance.state == RuntimeState::Exited && instance.exit_code == 0 => return,
                // The regular containers were created, so this init container has completed, although its exit is
                // unknown.
                None if !is_restartable_init_container(container)
                    && is_waiting(&status.state)
                    && self.any_regular_container_created() =>
                {
                    status.state = Some(completed_unseen());
                    return;
                }
                _ => {}
            }
        }
        if !container_will_start(container, self.pod, self.runtime) {
            return;
        }
        let failure = self
            .start_failures
            .and_then(|failures| failures.get(&container.name));
        if let Some(failure) = failure {
            if terminated(&status.state).is_some() {
                status.last_state = status.state.take();
            }
            status.state = Some(waiting(&failure.reason, &failure.message));
        }
    }

    /// `HasAnyRegularContainerCreated`
    fn any_regular_container_created(&self) -> bool {
        self.pod
            .spec
            .iter()
            .flat_map(|spec| &spec.containers)
            .any(|container| {
                self.runtime
                    .container(&container.name)
                    .is_some_and(|status| status.state != RuntimeState::Unknown)
            })
    }

    /// The container's volume mounts from its spec: CRI does not know the volumes' names.
    fn volume_mounts(&self, container: &Container) -> Option<Vec<VolumeMountStatus>> {
        let mounts = container.volume_mounts.as_ref()?;
        let statuses = mounts.iter().map(|mount| {
            let read_only = mount.read_only == Some(true);
            let recursive = match mount.recursive_read_only.as_deref() {
                Some("IfPossible" | "Enabled") if !is_propagated(mount) => self.recursive_read_only,
                _ => false,
            };
            VolumeMountStatus {
                name: mount.name.clone(),
                mount_path: mount.mount_path.clone(),
                read_only: read_only.then_some(true),
                recursive_read_only: read_only
                    .then(|| if recursive { "Enabled" } else { "Disabled" }.to_owned()),
                ..VolumeMountStatus::default()
            }
        });
        Some(statuses.collect()).filter(|mounts: &Vec<_>| !mounts.is_empty())
    }
}

/// Whether the mount propagates later mounts, which excludes recursive read-only (`resolveRecursiveReadOnly`).
fn is_propagated(mount: &VolumeMount) -> bool {
    let propagation = mount.mount_propagation.as_deref();
    propagation.is_some_and(|propagation| propagation != "None")
}

/// The state of a container that was not started yet.
pub(crate) fn waiting_to_start(pod: &Pod) -> ContainerState {
    let spec = pod.spec.as_ref();
    let init_containers = spec.and_then(|spec| spec.init_containers.as_ref());
    match init_containers.is_some_and(|containers| !containers.is_empty()) {
        true => waiting(POD_INITIALIZING, ""),
        false => waiting(CONTAINER_CREATING, ""),
    }
}

fn waiting(reason: &str, message: &str) -> ContainerState {
    ContainerState {
        waiting: Some(ContainerStateWaiting {
            reason: text(reason),
            message: text(message),
        }),
        ..ContainerState::default()
    }
}

fn completed_unseen() -> ContainerState {
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code: 0,
            reason: Some("Completed".to_owned()),
            message: Some(
                "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally"
                    .to_owned(),
            ),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    }
}

/// The pod's ephemeral containers as regular ones (`EphemeralContainerCommon`), with the fields that statuses need.
pub(crate) fn ephemeral_containers(pod: &Pod) -> Vec<Container> {
    pod.spec
        .iter()
        .flat_map(|spec| spec.ephemeral_containers.iter().flatten())
        .map(|container| Container {
            name: container.name.clone(),
            image: container.image.clone(),
            resources: container.resources.clone(),
            restart_policy: container.restart_policy.clone(),
            restart_policy_rules: container.restart_policy_rules.clone(),
            volume_mounts: container.volume_mounts.clone(),
            ..Container::default()
        })
        .collect()
}
