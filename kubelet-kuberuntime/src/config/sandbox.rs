//! The config of a pod's sandbox (`kuberuntime_sandbox.go`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, ContainerPort, Pod, PodSpec};
use kubelet_core::admission::normalize_sysctl_name;
use kubelet_core::{MountedVolume, PodExt};

use super::dns::{Recorders, pod_dns};
use super::hostname::kernel_hostname;
use super::labels::{pod_annotations, pod_labels};
use super::namespaces::namespaces_for_pod;
use super::resources::{sandbox_overhead, sandbox_resources};
use super::security_context::{
    groups_of_volumes, has_privileged_container, pod_security_context, selinux_option, supplemental_groups,
    supplemental_groups_policy,
};
use super::{ConfigError, NodeSettings, Result};
use kubelet_cri::v1;
use kubelet_cri::v1::security_profile::ProfileType;

/// Generates the config of a pod's sandbox (`generatePodSandboxConfig`). It writes no files, and reads the node's
/// `resolv.conf`.
///
/// Emits the events `MissingClusterDNS` and `DNSConfigForming`. An error is the message of `CreatePodSandboxError`.
pub(crate) fn pod_sandbox_config(
    node: &NodeSettings,
    pod: &Pod,
    attempt: u32,
    user_namespace: Result<v1::UserNamespace, String>,
    recorders: Recorders<'_>,
) -> Result<v1::PodSandboxConfig> {
    let key = pod.key();
    let dns_config = pod_dns(node, pod, recorders)?;
    let hostname = if pod.host_network() {
        String::new()
    } else {
        kernel_hostname(node, pod)?
    };
    Ok(v1::PodSandboxConfig {
        metadata: Some(v1::PodSandboxMetadata {
            name: key.name.to_string(),
            uid: pod.uid_str().to_owned(),
            namespace: key.namespace.to_string(),
            attempt,
        }),
        hostname,
        log_directory: pod_logs_directory(&node.pod_logs_dir, pod).display().to_string(),
        dns_config: Some(dns_config),
        port_mappings: port_mappings(pod),
        labels: pod_labels(pod),
        annotations: pod_annotations(pod),
        linux: Some(linux_config(node, pod, user_namespace)?),
        ..Default::default()
    })
}

/// `<pod_logs_dir>/<namespace>_<name>_<uid>` (`BuildPodLogsDirectory`)
pub(crate) fn pod_logs_directory(pod_logs_dir: &Path, pod: &Pod) -> PathBuf {
    let key = pod.key();
    pod_logs_dir.join(format!("{}_{}_{}", key.namespace, key.name, pod.uid_str()))
}

fn linux_config(
    node: &NodeSettings,
    pod: &Pod,
    user_namespace: Result<v1::UserNamespace, String>,
) -> Result<v1::LinuxPodSandboxConfig> {
    let user_namespace = user_namespace.map_err(ConfigError::Spec)?;
    let none = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&none);
    let context = spec.security_context.as_ref();
    let id = |value: Option<i64>| value.map(|value| v1::Int64Value { value });
    let sysctls = context
        .iter()
        .flat_map(|context| context.sysctls.iter().flatten());
    let security_context = v1::LinuxSandboxSecurityContext {
        // The kubelet sets no namespaces for a pod without a security context. API servers and defaulted manifests
        // always have one, but a custom source may not. On the host's network, the sandbox of such a pod would always
        // count as changed.
        namespace_options: Some(namespaces_for_pod(pod, user_namespace)),
        selinux_options: context
            .and_then(|context| context.se_linux_options.as_ref())
            .map(selinux_option),
        run_as_user: id(context.and_then(|context| context.run_as_user)),
        run_as_group: id(context.and_then(|context| context.run_as_group)),
        supplemental_groups: supplemental_groups(context),
        supplemental_groups_policy: supplemental_groups_policy(context)?,
        privileged: has_privileged_container(spec),
        // The sandbox itself always runs with the runtime's profile, independent of its containers.
        seccomp: Some(v1::SecurityProfile {
            profile_type: ProfileType::RuntimeDefault as i32,
            ..Default::default()
        }),
        ..Default::default()
    };
    Ok(v1::LinuxPodSandboxConfig {
        cgroup_parent: node.cgroup_driver.pod_cgroup_parent(pod),
        security_context: Some(security_context),
        sysctls: sysctls
            .map(|sysctl| (normalize_sysctl_name(&sysctl.name), sysctl.value.clone()))
            .collect::<BTreeMap<_, _>>(),
        overhead: Some(sandbox_overhead(node, pod)?),
        resources: Some(sandbox_resources(node, pod)?),
    })
}

/// The ports of all regular containers (`MakePortMappings`), including those without a host port. If ports of one
/// container have the same name, or are equal, the first counts.
fn port_mappings(pod: &Pod) -> Vec<v1::PortMapping> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    containers.flat_map(container_port_mappings).collect()
}

fn container_port_mappings(container: &Container) -> impl Iterator<Item = v1::PortMapping> {
    let mut names = BTreeSet::new();
    let ports = container.ports.iter().flatten();
    ports
        .filter(move |port| names.insert(port_name(port)))
        .map(|port| v1::PortMapping {
            protocol: protocol(port) as i32,
            container_port: port.container_port,
            host_port: port.host_port.unwrap_or(0),
            host_ip: port.host_ip.clone().unwrap_or_default(),
        })
}

fn port_name(port: &ContainerPort) -> String {
    if let Some(name) = port.name.as_ref().filter(|name| !name.is_empty()) {
        return name.clone();
    }
    let host_ip = port.host_ip.as_deref().unwrap_or_default();
    let family = match host_ip.parse::<IpAddr>() {
        _ if host_ip.is_empty() => "any",
        Ok(ip) if ip.is_ipv6() => "v6",
        _ => "v4",
    };
    let protocol = port.protocol.as_deref().unwrap_or_default();
    let host_port = port.host_port.unwrap_or(0);
    format!(
        "{family}-{protocol}-{host_ip}:{}:{host_port}",
        port.container_port
    )
}

fn protocol(port: &ContainerPort) -> v1::Protocol {
    match port.protocol.as_deref() {
        Some("UDP") => v1::Protocol::Udp,
        Some("SCTP") => v1::Protocol::Sctp,
        None | Some("TCP" | "") => v1::Protocol::Tcp,
        Some(other) => {
            tracing::info!(protocol = other, "unknown protocol of a port, using TCP");
            v1::Protocol::Tcp
        }
    }
}

/// Adds the groups of the pod's volumes, if it has a security context. They come after `fsGroup`.
pub(crate) fn add_groups_of_volumes(
    config: &mut v1::PodSandboxConfig,
    pod: &Pod,
    volumes: &BTreeMap<String, MountedVolume>,
) {
    let Some(of_pod) = pod_security_context(pod) else {
        return;
    };
    let context = config
        .linux
        .as_mut()
        .and_then(|linux| linux.security_context.as_mut());
    if let Some(context) = context {
        let at = usize::from(of_pod.fs_group.is_some()).min(context.supplemental_groups.len());
        let groups = groups_of_volumes(pod, volumes);
        context.supplemental_groups.splice(at..at, groups);
    }
}

#[cfg(test)]
mod tests {
    use kubelet_core::LogEvents;
    use serde_json::{Value, json};

    use super::*;

    fn config(spec: Value) -> v1::PodSandboxConfig {
        let metadata = json!({ "name": "p", "namespace": "ns", "uid": "u" });
        let pod = serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap();
        let node = NodeSettings {
            resolv_conf: None,
            ..NodeSettings::default()
        };
        pod_sandbox_config(
            &node,
            &pod,
            0,
            Ok(v1::UserNamespace::default()),
            Recorders::both(&LogEvents),
        )
        .unwrap()
    }

    #[test]
    fn a_port_of_a_container_counts_once() {
        let ports = json!([
            { "containerPort": 80, "hostPort": 8080, "protocol": "TCP" },
            { "containerPort": 80, "hostPort": 8080, "protocol": "TCP" },
            { "containerPort": 80, "hostPort": 8080, "protocol": "TCP", "hostIP": "127.0.0.1" },
            { "containerPort": 80, "hostPort": 8080, "protocol": "TCP", "hostIP": "::1" },
            { "containerPort": 80, "hostPort": 8080, "protocol": "UDP" },
            { "containerPort": 80, "protocol": "TCP" },
            { "name": "http", "containerPort": 80, "protocol": "TCP" },
            { "name": "http", "containerPort": 443, "protocol": "SCTP" },
            { "containerPort": 53, "protocol": "other" },
        ]);
        let one = json!({ "name": "a", "ports": ports });
        let init = json!({ "name": "c", "ports": [{ "containerPort": 1 }] });
        let other = json!({ "name": "b", "ports": [{ "containerPort": 80, "protocol": "TCP" }] });
        let config = config(json!({ "containers": [one, other], "initContainers": [init] }));
        let ports: Vec<String> = config
            .port_mappings
            .iter()
            .map(|port| {
                let protocol = port.protocol().as_str_name();
                let ports = format!("{}:{}", port.host_port, port.container_port);
                format!("{protocol} {}:{ports}", port.host_ip)
            })
            .collect();
        let expected = [
            "TCP :8080:80",
            "TCP 127.0.0.1:8080:80",
            "TCP ::1:8080:80",
            "UDP :8080:80",
            "TCP :0:80",
            "TCP :0:80",
            "TCP :0:53",
            "TCP :0:80",
        ];
        assert_eq!(ports, expected);
    }

    #[test]
    fn sysctls_have_dots() {
        let sysctl = |name: &str| json!({ "name": name, "value": "1" });
        let names = [
            "kernel/shm_rmid_forced",
            "net.ipv4.conf.eno2/100.rp_filter",
            "net/ipv4/conf/eno3.200/rp_filter",
            "net.ipv4.ip_local_port_range",
        ];
        let sysctls: Vec<_> = names.map(sysctl).into();
        let config = config(json!({ "containers": [], "securityContext": { "sysctls": sysctls } }));
        let found: Vec<String> = config.linux.unwrap().sysctls.into_keys().collect();
        let expected = [
            "kernel.shm_rmid_forced",
            "net.ipv4.conf.eno2/100.rp_filter",
            "net.ipv4.conf.eno3/200.rp_filter",
            "net.ipv4.ip_local_port_range",
        ];
        assert_eq!(found, expected);
    }
}
