//! Builds containers; the code reads like a manifest.

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvVar, EnvVarSource, ExecAction, LifecycleHandler, ObjectFieldSelector, Probe,
    VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Builds a container of a pod: see [`PodBuilder`](super::PodBuilder).
#[derive(Clone, Debug)]
#[must_use]
pub struct ContainerBuilder {
    pub(super) container: Container,
}

impl ContainerBuilder {
    pub(super) fn new(name: &str, image: &str) -> Self {
        let container = Container {
            name: name.to_owned(),
            image: Some(image.to_owned()),
            image_pull_policy: Some("IfNotPresent".to_owned()),
            termination_message_path: Some("/dev/termination-log".to_owned()),
            termination_message_policy: Some("File".to_owned()),
            ..Container::default()
        };
        Self { container }
    }

    /// `command`
    pub fn command<S: Into<String>>(mut self, command: impl IntoIterator<Item = S>) -> Self {
        self.container.command = Some(words(command));
        self
    }

    /// `args`
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.container.args = Some(words(args));
        self
    }

    /// `workingDir`
    pub fn working_dir(mut self, dir: impl Into<String>) -> Self {
        self.container.working_dir = Some(dir.into());
        self
    }

    /// Adds to `env`.
    pub fn env(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.variable(EnvVar {
            name: name.into(),
            value: Some(value.into()),
            ..EnvVar::default()
        })
    }

    /// Adds to `env`, from a field of the pod: `status.podIP`.
    pub fn env_from_field(self, name: impl Into<String>, field_path: impl Into<String>) -> Self {
        let field = ObjectFieldSelector {
            api_version: Some("v1".to_owned()),
            field_path: field_path.into(),
        };
        self.variable(EnvVar {
            name: name.into(),
            value_from: Some(EnvVarSource {
                field_ref: Some(field),
                ..EnvVarSource::default()
            }),
            ..EnvVar::default()
        })
    }

    fn variable(mut self, variable: EnvVar) -> Self {
        self.container.env.get_or_insert_default().push(variable);
        self
    }

    /// Adds a TCP port to `ports`.
    pub fn port(self, port: u16) -> Self {
        self.container_port(None, port)
    }

    /// Adds a TCP port with a name to `ports`.
    pub fn named_port(self, name: impl Into<String>, port: u16) -> Self {
        self.container_port(Some(name.into()), port)
    }

    fn container_port(mut self, name: Option<String>, port: u16) -> Self {
        let port = ContainerPort {
            name,
            container_port: port.into(),
            protocol: Some("TCP".to_owned()),
            ..ContainerPort::default()
        };
        self.container.ports.get_or_insert_default().push(port);
        self
    }

    /// Adds to `resources.requests`: `("cpu", "100m")`.
    pub fn request(mut self, resource: impl Into<String>, quantity: impl Into<String>) -> Self {
        let resources = self.container.resources.get_or_insert_default();
        let requests = resources.requests.get_or_insert_default();
        requests.insert(resource.into(), Quantity(quantity.into()));
        self
    }

    /// Adds to `resources.limits`: `("memory", "64Mi")`. The request defaults to the limit.
    pub fn limit(mut self, resource: impl Into<String>, quantity: impl Into<String>) -> Self {
        let resources = self.container.resources.get_or_insert_default();
        let limits = resources.limits.get_or_insert_default();
        limits.insert(resource.into(), Quantity(quantity.into()));
        self
    }

    /// Adds to `volumeMounts`.
    pub fn mount(mut self, volume: impl Into<String>, path: impl Into<String>) -> Self {
        let mount = VolumeMount {
            name: volume.into(),
            mount_path: path.into(),
            ..VolumeMount::default()
        };
        self.container.volume_mounts.get_or_insert_default().push(mount);
        self
    }

    /// `livenessProbe`; the module [`probe`](super::probe) has functions for probes.
    pub fn liveness_probe(mut self, probe: Probe) -> Self {
        self.container.liveness_probe = Some(probe);
        self
    }

    /// `readinessProbe`
    pub fn readiness_probe(mut self, probe: Probe) -> Self {
        self.container.readiness_probe = Some(probe);
        self
    }

    /// `startupProbe`
    pub fn startup_probe(mut self, probe: Probe) -> Self {
        self.container.startup_probe = Some(probe);
        self
    }

    /// `lifecycle.postStart`, with a command.
    pub fn post_start<S: Into<String>>(mut self, command: impl IntoIterator<Item = S>) -> Self {
        self.container.lifecycle.get_or_insert_default().post_start = Some(handler(command));
        self
    }

    /// `lifecycle.preStop`, with a command.
    pub fn pre_stop<S: Into<String>>(mut self, command: impl IntoIterator<Item = S>) -> Self {
        self.container.lifecycle.get_or_insert_default().pre_stop = Some(handler(command));
        self
    }

    /// `imagePullPolicy`; the default is `IfNotPresent`.
    pub fn image_pull_policy(mut self, policy: &str) -> Self {
        self.container.image_pull_policy = Some(policy.to_owned());
        self
    }

    /// `terminationMessagePolicy`; the default is `File`.
    pub fn termination_message_policy(mut self, policy: &str) -> Self {
        self.container.termination_message_policy = Some(policy.to_owned());
        self
    }

    /// `restartPolicy` of the container: `Always` makes an init container a sidecar.
    pub fn restart_policy(mut self, policy: &str) -> Self {
        self.container.restart_policy = Some(policy.to_owned());
        self
    }

    /// Edits any other field.
    pub fn with(mut self, edit: impl FnOnce(&mut Container)) -> Self {
        edit(&mut self.container);
        self
    }
}

fn handler<S: Into<String>>(command: impl IntoIterator<Item = S>) -> LifecycleHandler {
    LifecycleHandler {
        exec: Some(ExecAction {
            command: Some(words(command)),
        }),
        ..LifecycleHandler::default()
    }
}

fn words<S: Into<String>>(words: impl IntoIterator<Item = S>) -> Vec<String> {
    words.into_iter().map(Into::into).collect()
}
