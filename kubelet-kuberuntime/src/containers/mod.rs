//! Containers of a pod by name: the spec, the kind, and events. The submodules start and resize them, with back-off.

pub(crate) mod actuated;
pub(crate) mod back_off;
pub(crate) mod image_volumes;
pub(crate) mod resize;
pub(crate) mod start;
pub(crate) mod unfinished_starts;

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod};
use kubelet_core::{Event, EventRecorder, EventType, PodExt};

/// The list of a pod's spec that has a container: the prefix of an event's field path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Regular,
    Init,
    Ephemeral,
    /// The container is not in the spec, or the spec is not known.
    Unlisted,
}

impl Kind {
    /// The name in messages and logs.
    pub(crate) fn type_name(self) -> &'static str {
        match self {
            Kind::Regular => "container",
            Kind::Init => "init container",
            Kind::Ephemeral => "ephemeral container",
            Kind::Unlisted => "unlisted container",
        }
    }

    /// The name in metrics.
    pub(crate) fn metric_label(self) -> &'static str {
        match self {
            Kind::Regular => "container",
            Kind::Init => "init_container",
            Kind::Ephemeral => "ephemeral_container",
            Kind::Unlisted => "unlisted_container",
        }
    }

    /// The field path of events about a container, e.g. `spec.containers{main}`.
    pub(crate) fn field_path(self, name: &str) -> String {
        let list = match self {
            Kind::Regular => "containers",
            Kind::Init => "initContainers",
            Kind::Ephemeral => "ephemeralContainers",
            // `ImplicitContainerPrefix`
            Kind::Unlisted => return format!("implicitly required container {name}"),
        };
        format!("spec.{list}{{{name}}}")
    }
}

/// Finds a container by its name, in the kubelet's order: regular, init, ephemeral (`GetContainerSpec`).
pub(crate) fn find<'a>(pod: &'a Pod, name: &str) -> Option<(Kind, Cow<'a, Container>)> {
    let spec = pod.spec.as_ref()?;
    let named = |containers: &'a [Container]| containers.iter().find(|c| c.name == name);
    if let Some(container) = named(&spec.containers) {
        return Some((Kind::Regular, Cow::Borrowed(container)));
    }
    if let Some(container) = named(spec.init_containers.as_deref().unwrap_or_default()) {
        return Some((Kind::Init, Cow::Borrowed(container)));
    }
    let ephemeral = spec
        .ephemeral_containers
        .iter()
        .flatten()
        .find(|c| c.name == name)?;
    Some((Kind::Ephemeral, Cow::Owned(common_part(ephemeral))))
}

/// An ephemeral container as a container (`EphemeralContainerCommon`).
pub(crate) fn common_part(ephemeral: &EphemeralContainer) -> Container {
    let EphemeralContainer {
        args,
        command,
        env,
        env_from,
        image,
        image_pull_policy,
        lifecycle,
        liveness_probe,
        name,
        ports,
        readiness_probe,
        resize_policy,
        resources,
        restart_policy,
        restart_policy_rules,
        security_context,
        startup_probe,
        stdin,
        stdin_once,
        target_container_name: _,
        termination_message_path,
        termination_message_policy,
        tty,
        volume_devices,
        volume_mounts,
        working_dir,
    } = ephemeral.clone();
    Container {
        args,
        command,
        env,
        env_from,
        image,
        image_pull_policy,
        lifecycle,
        liveness_probe,
        name,
        ports,
        readiness_probe,
        resize_policy,
        resources,
        restart_policy,
        restart_policy_rules,
        security_context,
        startup_probe,
        stdin,
        stdin_once,
        termination_message_path,
        termination_message_policy,
        tty,
        volume_devices,
        volume_mounts,
        working_dir,
    }
}

/// A pod in the kubelet's messages, `<name>_<namespace>(<uid>)` (`format.Pod`).
pub(crate) fn describe(pod: &Pod) -> String {
    let key = pod.key();
    format!("{}_{}({})", key.name, key.namespace, pod.uid_str())
}

/// Emits events about one container (`recordContainerEvent`).
pub(crate) struct ContainerEvents<'a> {
    pub(crate) recorder: &'a dyn EventRecorder,
    pub(crate) pod: &'a Pod,
    pub(crate) kind: Kind,
    pub(crate) name: &'a str,
}

impl ContainerEvents<'_> {
    pub(crate) fn normal(&self, reason: &str, message: impl Into<String>) {
        self.record(EventType::Normal, reason, message.into());
    }

    pub(crate) fn warning(&self, reason: &str, message: impl Into<String>) {
        self.record(EventType::Warning, reason, message.into());
    }

    /// Emits a warning. A container id in the message is replaced by the container's name, so that similar events have
    /// equal messages.
    pub(crate) fn warning_without_id(&self, reason: &str, message: impl Into<String>, id: &str) {
        let mut message = message.into();
        if !id.is_empty() {
            message = message.replace(id, self.name);
        }
        self.record(EventType::Warning, reason, message);
    }

    fn record(&self, event_type: EventType, reason: &str, message: String) {
        self.recorder.record(Event {
            pod: self.pod,
            field_path: Some(self.kind.field_path(self.name)),
            event_type,
            reason,
            message,
        });
    }
}
