//! Converts CRI requests to the types of the verbs.

use std::path::{Path, PathBuf};

use super::records::{ContainerEntry, SandboxEntry};
use crate::v1;
use crate::verbs::{
    ContainerSpec, DnsSettings, EnvVar, Limits, Mount, PodInfo, PodKey, PodSpec, RegistryLogin,
};

/// The key of a sandbox's pod.
pub(super) fn pod_key(pod: &v1::PodSandboxConfig) -> PodKey {
    let metadata = pod.metadata.as_ref();
    metadata.map_or_else(
        || PodKey::new("", 0),
        |metadata| PodKey::new(metadata.uid.as_str(), metadata.attempt),
    )
}

/// The spec of the pod to begin.
pub(super) fn pod_spec(pod: &v1::PodSandboxConfig) -> PodSpec {
    let mut spec = PodSpec::new(pod_key(pod));
    spec.info = pod_info(pod);
    spec.host_network = is_on_host_network(pod);
    let ports = pod.port_mappings.iter();
    spec.host_ports = ports
        .filter_map(|port| u16::try_from(port.host_port).ok().filter(|port| *port != 0))
        .collect();
    if let Some(dns) = pod.dns_config.clone() {
        spec.dns = DnsSettings {
            servers: dns.servers,
            searches: dns.searches,
            options: dns.options,
        };
    }
    if let Some(linux) = &pod.linux {
        spec.limits = linux.resources.as_ref().map_or_else(Limits::default, limits);
        spec.overhead = linux.overhead.as_ref().map_or_else(Limits::default, limits);
        spec.cgroup_parent = Some(&linux.cgroup_parent)
            .filter(|parent| !parent.is_empty())
            .map(PathBuf::from);
    }
    spec
}

fn pod_info(pod: &v1::PodSandboxConfig) -> PodInfo {
    let metadata = pod.metadata.clone().unwrap_or_default();
    PodInfo {
        namespace: metadata.namespace,
        name: metadata.name,
        hostname: pod.hostname.clone(),
        labels: pod.labels.clone(),
        annotations: pod.annotations.clone(),
    }
}

/// Whether a sandbox asks for the network of the host.
pub(super) fn is_on_host_network(pod: &v1::PodSandboxConfig) -> bool {
    let security = pod
        .linux
        .as_ref()
        .and_then(|linux| linux.security_context.as_ref());
    let options = security.and_then(|security| security.namespace_options.as_ref());
    options.is_some_and(|options| options.network() == v1::NamespaceMode::Node)
}

/// The spec of the container to start.
pub(super) fn container_spec(sandbox: &SandboxEntry, container: &ContainerEntry) -> ContainerSpec {
    let config = &container.config;
    let pod = &sandbox.config;
    let mut spec = ContainerSpec::new(container.key.clone(), image_name(config));
    spec.pod = pod_info(pod);
    spec.pod_attempt = pod_key(pod).attempt;
    spec.command = config.command.clone();
    spec.args = config.args.clone();
    spec.env = config
        .envs
        .iter()
        .map(|env| EnvVar {
            name: env.key.clone(),
            value: env.value.clone(),
        })
        .collect();
    spec.working_dir = Some(&config.working_dir)
        .filter(|dir| !dir.is_empty())
        .map(PathBuf::from);
    spec.mounts = config
        .mounts
        .iter()
        .map(|mount| Mount {
            host_path: PathBuf::from(&mount.host_path),
            container_path: PathBuf::from(&mount.container_path),
            read_only: mount.readonly,
        })
        .collect();
    spec.log_path = log_path(pod, config);
    spec.stop_signal = stop_signal(config);
    spec.stdin = config.stdin;
    spec.stdin_once = config.stdin_once;
    spec.tty = config.tty;
    if let Some(linux) = &config.linux {
        let security = linux.security_context.as_ref();
        spec.run_as_user = security
            .and_then(|security| security.run_as_user.as_ref())
            .map(|user| user.value);
        spec.run_as_group = security
            .and_then(|security| security.run_as_group.as_ref())
            .map(|group| group.value);
        spec.read_only_root = security.is_some_and(|security| security.readonly_rootfs);
        spec.limits = linux.resources.as_ref().map_or_else(Limits::default, limits);
    }
    spec.labels = config.labels.clone();
    spec.annotations = config.annotations.clone();
    spec
}

/// A feature that the pod requests and that the five verbs cannot provide, if any.
pub(super) fn unsupported_by_sandbox(pod: &v1::PodSandboxConfig) -> Option<&'static str> {
    let linux = pod.linux.as_ref()?;
    let options = linux
        .security_context
        .as_ref()
        .and_then(|security| security.namespace_options.as_ref());
    let users = options.and_then(|options| options.userns_options.as_ref());
    if users.is_some_and(|users| users.mode() == v1::NamespaceMode::Pod) {
        return Some("user namespaces");
    }
    (!linux.sysctls.is_empty()).then_some("sysctls")
}

/// A feature that the container requests and that the five verbs cannot provide, if any.
pub(super) fn unsupported_by_container(config: &v1::ContainerConfig) -> Option<&'static str> {
    let is_image = |mount: &v1::Mount| mount.image.as_ref().is_some_and(|image| !image.image.is_empty());
    if config.mounts.iter().any(is_image) {
        return Some("image volumes");
    }
    let named = security(config).is_some_and(|security| !security.run_as_username.is_empty());
    named.then_some("users by name")
}

/// Whether a container has a group but no user.
pub(super) fn has_group_without_user(config: &v1::ContainerConfig) -> bool {
    security(config).is_some_and(|security| security.run_as_group.is_some() && security.run_as_user.is_none())
}

fn security(config: &v1::ContainerConfig) -> Option<&v1::LinuxContainerSecurityContext> {
    config.linux.as_ref()?.security_context.as_ref()
}

/// The image name from the pod's spec; the id from the image service only if the name is unknown.
pub(super) fn image_name(config: &v1::ContainerConfig) -> &str {
    let image = config.image.as_ref();
    image.map_or("", |image| {
        if image.user_specified_image.is_empty() {
            &image.image
        } else {
            &image.user_specified_image
        }
    })
}

/// The credentials of a pull; `None` if all are empty.
pub(super) fn login(auth: v1::AuthConfig) -> Option<RegistryLogin> {
    let mut login = RegistryLogin::basic(auth.username, auth.password);
    login.identity_token = auth.identity_token;
    login.registry_token = auth.registry_token;
    (login != RegistryLogin::default()).then_some(login)
}

/// The container's log file: its path in the sandbox's log folder. Without one of the two, there is no log file.
pub(super) fn log_path(pod: &v1::PodSandboxConfig, config: &v1::ContainerConfig) -> Option<PathBuf> {
    (!pod.log_directory.is_empty() && !config.log_path.is_empty())
        .then(|| Path::new(&pod.log_directory).join(&config.log_path))
}

/// `SIGTERM` and the like; `None` for the runtime's default.
fn stop_signal(config: &v1::ContainerConfig) -> Option<String> {
    match config.stop_signal() {
        v1::Signal::RuntimeDefault => None,
        signal => Some(signal.as_str_name().to_owned()),
    }
}

fn limits(resources: &v1::LinuxContainerResources) -> Limits {
    let positive = |n: i64| u64::try_from(n).ok().filter(|n| *n > 0);
    let quota = positive(resources.cpu_quota).zip(positive(resources.cpu_period));
    Limits {
        cpu_millis: quota.map(|(quota, period)| quota.saturating_mul(1000) / period),
        memory_bytes: positive(resources.memory_limit_in_bytes),
    }
}
