//! One container.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kubelet_core::PodUid;
use kubelet_cri::v1;
use tokio::time::Instant;

use super::Subject;
use super::images::Images;
use super::log_file::LogFile;
use crate::run::{Ending, Life, Run};

/// The information about a container before it runs, for scripts with conditions.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Planned {
    /// The sandbox's config.
    pub sandbox: Arc<v1::PodSandboxConfig>,
    /// The container's config.
    pub container: Arc<v1::ContainerConfig>,
}

impl Planned {
    /// The UID of its pod.
    pub fn pod_uid(&self) -> PodUid {
        PodUid::new(
            self.sandbox
                .metadata
                .as_ref()
                .map_or("", |metadata| &metadata.uid),
        )
    }

    /// The name of its pod.
    pub fn pod_name(&self) -> &str {
        self.sandbox
            .metadata
            .as_ref()
            .map_or("", |metadata| &metadata.name)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.container
            .metadata
            .as_ref()
            .map_or("", |metadata| &metadata.name)
    }

    /// Its attempt, from 0.
    pub fn attempt(&self) -> u32 {
        self.container
            .metadata
            .as_ref()
            .map_or(0, |metadata| metadata.attempt)
    }

    /// The image, as the pod's spec names it.
    pub fn image(&self) -> &str {
        let Some(image) = &self.container.image else {
            return "";
        };
        if image.user_specified_image.is_empty() {
            &image.image
        } else {
            &image.user_specified_image
        }
    }

    pub(super) fn about(&self) -> Subject {
        Subject::container(self.sandbox.metadata.as_ref(), self.container.metadata.as_ref())
    }
}

#[derive(Debug)]
pub(super) struct Container {
    pub(super) id: String,
    /// The name that is reserved for it.
    pub(super) name: String,
    pub(super) sandbox_id: String,
    pub(super) sandbox: u64,
    pub(super) planned: Planned,
    pub(super) image_id: String,
    pub(super) created_at: i64,
    pub(super) state: State,
    pub(super) starting: bool,
    pub(super) removing: bool,
    pub(super) resources: v1::LinuxContainerResources,
    /// When its next change is due.
    pub(super) due: Option<Instant>,
    pub(super) pid: u32,
}

#[derive(Debug)]
pub(super) enum State {
    Created,
    Running(Running),
    Exited(Exited),
}

#[derive(Debug)]
pub(super) struct Running {
    pub(super) started: Instant,
    pub(super) started_at: Timestamp,
    pub(super) life: Life,
    pub(super) run: Run,
    /// How many of its outputs are written.
    pub(super) written: usize,
    pub(super) log: Option<LogFile>,
}

#[derive(Debug)]
pub(super) struct Exited {
    /// Never, if the start failed.
    pub(super) started_at: Option<Timestamp>,
    pub(super) finished_at: Timestamp,
    pub(super) code: i32,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Exited {
    pub(super) fn by(ending: Ending, started_at: Timestamp, finished_at: Timestamp) -> Self {
        Self {
            started_at: Some(started_at),
            finished_at,
            code: ending.code,
            reason: match ending {
                Ending { oom: true, .. } => "OOMKilled",
                Ending { code: 0, .. } => "Completed",
                _ => "Error",
            },
            message: String::new(),
        }
    }

    /// containerd's values for a container whose start failed: `errorStartReason` and `errorStartExitCode`.
    pub(super) fn not_started(finished_at: Timestamp, message: String) -> Self {
        Self {
            started_at: None,
            finished_at,
            code: 128,
            reason: "StartError",
            message,
        }
    }

    /// containerd's values for a container whose end it missed: `unknownExitCode` and `unknownExitReason`.
    pub(super) fn unseen(started_at: Timestamp, finished_at: Timestamp) -> Self {
        Self {
            started_at: Some(started_at),
            finished_at,
            code: 255,
            reason: "Unknown",
            message: String::new(),
        }
    }
}

impl Running {
    /// The time of its next visible change: its end or, if logs are written, its next output.
    pub(super) fn next(&self) -> Option<Instant> {
        let ends = self.life.end().map(|(at, _)| at);
        let writes = self.run.output.get(self.written).filter(|_| self.log.is_some());
        let writes = writes.map(|output| self.started + output.after);
        [ends, writes].into_iter().flatten().min()
    }

    /// The wall-clock time of an instant.
    pub(super) fn time(&self, at: Instant) -> Timestamp {
        let since = at.saturating_duration_since(self.started);
        self.started_at.checked_add(since).unwrap_or(Timestamp::MAX)
    }

    /// Writes the output that is due until then.
    pub(super) fn write_until(&mut self, at: Instant) {
        let end = self.life.end().map(|(end, _)| end);
        while let Some(output) = self.run.output.get(self.written) {
            let when = self.started + output.after;
            if when > at || end.is_some_and(|end| when > end) {
                return;
            }
            let time = self.time(when);
            if let Some(log) = &mut self.log {
                log.write(time, output.stream, &output.text);
            }
            self.written += 1;
        }
    }
}

impl Container {
    /// The container's unique name: containerd's `makeContainerName`.
    pub(super) fn name_of(planned: &Planned) -> String {
        let sandbox = planned.sandbox.metadata.clone().unwrap_or_default();
        let (name, attempt) = (planned.name(), planned.attempt());
        format!(
            "{name}_{}_{}_{}_{attempt}",
            sandbox.name, sandbox.namespace, sandbox.uid
        )
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, State::Running(_))
    }

    pub(super) fn state(&self) -> v1::ContainerState {
        match self.state {
            State::Created => v1::ContainerState::ContainerCreated,
            State::Running(_) => v1::ContainerState::ContainerRunning,
            State::Exited(_) => v1::ContainerState::ContainerExited,
        }
    }

    /// The path of its log file, if the request names one.
    pub(super) fn log_path(&self) -> String {
        let (folder, file) = (
            &self.planned.sandbox.log_directory,
            &self.planned.container.log_path,
        );
        if folder.is_empty() || file.is_empty() {
            String::new()
        } else {
            std::path::Path::new(folder).join(file).display().to_string()
        }
    }

    pub(super) fn status(&self, images: &Images) -> v1::ContainerStatus {
        let config = &self.planned.container;
        let image = images.get(&self.image_id);
        let mut spec = config.image.clone().unwrap_or_default();
        if let Some(tag) = image.and_then(|image| image.tag()) {
            spec.image.clone_from(tag);
        }
        spec.user_specified_image.clear();
        let image_ref = image.and_then(|image| image.digest()).unwrap_or(&self.image_id);
        let mut status = v1::ContainerStatus {
            id: self.id.clone(),
            metadata: config.metadata.clone(),
            state: self.state() as i32,
            created_at: self.created_at,
            image: Some(spec),
            image_ref: image_ref.clone(),
            image_id: self.image_id.clone(),
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
            mounts: config.mounts.clone(),
            log_path: self.log_path(),
            resources: Some(v1::ContainerResources {
                linux: Some(self.resources.clone()),
                windows: None,
            }),
            stop_signal: config.stop_signal,
            ..Default::default()
        };
        match &self.state {
            State::Created => {}
            State::Running(running) => status.started_at = nanos(running.started_at),
            State::Exited(exited) => {
                status.started_at = exited.started_at.map_or(0, nanos);
                status.finished_at = nanos(exited.finished_at);
                status.exit_code = exited.code;
                status.reason = exited.reason.to_owned();
                status.message.clone_from(&exited.message);
            }
        }
        status
    }

    pub(super) fn message(&self) -> v1::Container {
        let config = &self.planned.container;
        v1::Container {
            id: self.id.clone(),
            pod_sandbox_id: self.sandbox_id.clone(),
            metadata: config.metadata.clone(),
            image: config.image.clone(),
            image_ref: self.image_id.clone(),
            state: self.state() as i32,
            created_at: self.created_at,
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
            image_id: self.image_id.clone(),
        }
    }
}

/// Nanoseconds since 1970, as in CRI.
pub(super) fn nanos(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX)
}
