//! Builds CRI answers from the records and the runtime's state.

use std::collections::BTreeMap;

use super::nanos;
use super::records::{ContainerEntry, Phase, SandboxEntry};
use super::request::{image_name, is_on_host_network, log_path};
use crate::v1;
use crate::verbs::{Container, ContainerState};

/// The exit code containerd gives a container that could not be started.
const START_ERROR_EXIT_CODE: i32 = 128;
/// The kubelet's exit code and reason for a container whose real exit code is unknown.
const UNKNOWN_EXIT_CODE: i32 = 137;

/// A container's state as CRI has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct View {
    pub(super) state: v1::ContainerState,
    started_at: i64,
    finished_at: i64,
    exit_code: i32,
    reason: String,
    message: String,
}

impl View {
    /// Combines the runtime's present state of a container with the phase that was recorded before. `None` if the
    /// container is being removed and the runtime does not list it any more.
    pub(super) fn new(before: &Phase, live: Option<&Container>) -> Option<Self> {
        let view = match (live.map(|live| &live.state), before) {
            (Some(ContainerState::Running { started_at }), _) => Self {
                state: v1::ContainerState::ContainerRunning,
                started_at: nanos(*started_at),
                ..Self::default()
            },
            (Some(ContainerState::Exited(exit)), _) => Self {
                state: v1::ContainerState::ContainerExited,
                started_at: nanos(exit.started_at),
                finished_at: nanos(exit.finished_at),
                exit_code: exit.code,
                reason: exit.reason.clone(),
                message: exit.message.clone(),
            },
            (None, Phase::Created) => Self::default(),
            (None, Phase::Failed { at, message }) => Self {
                state: v1::ContainerState::ContainerExited,
                finished_at: *at,
                exit_code: START_ERROR_EXIT_CODE,
                reason: "StartError".to_owned(),
                message: message.clone(),
                ..Self::default()
            },
            (None, Phase::Lost { started_at, at }) => Self {
                state: v1::ContainerState::ContainerExited,
                started_at: *started_at,
                finished_at: *at,
                exit_code: UNKNOWN_EXIT_CODE,
                reason: "ContainerStatusUnknown".to_owned(),
                message: "the runtime does not list the container any more".to_owned(),
            },
            (None, Phase::Started { .. } | Phase::Removing) => return None,
        };
        Some(view)
    }
}

/// The container as `ListContainers` shows it.
pub(super) fn container(entry: &ContainerEntry, view: &View) -> v1::Container {
    v1::Container {
        id: entry.id.clone(),
        pod_sandbox_id: entry.sandbox_id.clone(),
        metadata: entry.config.metadata.clone(),
        image: Some(image(entry)),
        image_ref: image_ref(entry),
        image_id: image_ref(entry),
        state: view.state as i32,
        created_at: entry.created_at,
        labels: entry.config.labels.clone(),
        annotations: entry.config.annotations.clone(),
    }
}

/// The container as `ContainerStatus` shows it.
pub(super) fn container_status(
    sandbox: Option<&SandboxEntry>,
    entry: &ContainerEntry,
    view: View,
) -> v1::ContainerStatus {
    let log_path = sandbox.and_then(|sandbox| log_path(&sandbox.config, &entry.config));
    v1::ContainerStatus {
        id: entry.id.clone(),
        metadata: entry.config.metadata.clone(),
        state: view.state as i32,
        created_at: entry.created_at,
        started_at: view.started_at,
        finished_at: view.finished_at,
        exit_code: view.exit_code,
        image: Some(image(entry)),
        image_ref: image_ref(entry),
        image_id: image_ref(entry),
        reason: view.reason,
        message: view.message,
        labels: entry.config.labels.clone(),
        annotations: entry.config.annotations.clone(),
        mounts: entry.config.mounts.clone(),
        log_path: log_path
            .map(|path| path.display().to_string())
            .unwrap_or_default(),
        stop_signal: entry.config.stop_signal,
        ..Default::default()
    }
}

/// The sandbox as `ListPodSandbox` shows it.
pub(super) fn sandbox(entry: &SandboxEntry) -> v1::PodSandbox {
    v1::PodSandbox {
        id: entry.id.clone(),
        metadata: entry.config.metadata.clone(),
        state: sandbox_state(entry) as i32,
        created_at: entry.created_at,
        labels: entry.config.labels.clone(),
        annotations: entry.config.annotations.clone(),
        runtime_handler: entry.runtime_handler.clone(),
    }
}

/// The sandbox as `PodSandboxStatus` shows it; `addresses` for one that is not on the host's network.
pub(super) fn sandbox_status(entry: &SandboxEntry, addresses: Vec<String>) -> v1::PodSandboxStatus {
    let security = entry
        .config
        .linux
        .as_ref()
        .and_then(|linux| linux.security_context.as_ref());
    let options = security
        .and_then(|security| security.namespace_options.clone())
        .unwrap_or_default();
    let mut addresses = addresses.into_iter();
    if is_on_host_network(&entry.config) || entry.is_stopped() {
        addresses = Vec::new().into_iter();
    }
    v1::PodSandboxStatus {
        id: entry.id.clone(),
        metadata: entry.config.metadata.clone(),
        state: sandbox_state(entry) as i32,
        created_at: entry.created_at,
        network: Some(v1::PodSandboxNetworkStatus {
            ip: addresses.next().unwrap_or_default(),
            additional_ips: addresses.map(|ip| v1::PodIp { ip }).collect(),
        }),
        linux: Some(v1::LinuxPodSandboxStatus {
            namespaces: Some(v1::Namespace {
                options: Some(options),
            }),
        }),
        labels: entry.config.labels.clone(),
        annotations: entry.config.annotations.clone(),
        runtime_handler: entry.runtime_handler.clone(),
    }
}

fn sandbox_state(entry: &SandboxEntry) -> v1::PodSandboxState {
    if entry.is_stopped() {
        v1::PodSandboxState::SandboxNotready
    } else {
        v1::PodSandboxState::SandboxReady
    }
}

fn image(entry: &ContainerEntry) -> v1::ImageSpec {
    v1::ImageSpec {
        image: image_name(&entry.config).to_owned(),
        ..Default::default()
    }
}

fn image_ref(entry: &ContainerEntry) -> String {
    let image = entry.config.image.as_ref();
    image.map(|image| image.image.clone()).unwrap_or_default()
}

/// Whether the labels match a filter.
pub(super) fn has_labels(labels: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::ContainerKey;
    use k8s_openapi::jiff::Timestamp;

    #[test]
    fn the_word_of_the_runtime_counts() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let running = Container::running(ContainerKey::new("u", "c", 0), at(1));
        let mut completed = running.clone();
        completed.exited(0, at(2));
        let mut killed = running.clone();
        killed.exited(137, at(3));
        let failed = Phase::Failed {
            at: 5,
            message: "no".into(),
        };
        let started = Phase::Started { at: 1 };
        let lost = Phase::Lost { started_at: 1, at: 6 };

        use v1::ContainerState::*;
        for (before, live, expected) in [
            (&Phase::Created, None, Some((ContainerCreated, 0, ""))),
            (&Phase::Created, Some(&running), Some((ContainerRunning, 0, ""))),
            (&started, Some(&running), Some((ContainerRunning, 0, ""))),
            (
                &started,
                Some(&completed),
                Some((ContainerExited, 0, "Completed")),
            ),
            (
                &Phase::Removing,
                Some(&killed),
                Some((ContainerExited, 137, "Error")),
            ),
            (&Phase::Removing, None, None),
            (&failed, None, Some((ContainerExited, 128, "StartError"))),
            (&failed, Some(&running), Some((ContainerRunning, 0, ""))),
            (
                &lost,
                None,
                Some((ContainerExited, 137, "ContainerStatusUnknown")),
            ),
            (&lost, Some(&completed), Some((ContainerExited, 0, "Completed"))),
        ] {
            let view = View::new(before, live);
            let seen = view
                .as_ref()
                .map(|view| (view.state, view.exit_code, view.reason.as_str()));
            assert_eq!(seen, expected, "{before:?} {live:?}");
        }
    }
}
