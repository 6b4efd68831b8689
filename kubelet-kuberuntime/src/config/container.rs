//! The config of a container (`generateContainerConfig`, `GenerateRunContainerOptions`).

use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::PodExt;

use super::additions::{add_environment, add_to_config};
use super::environment::{Environment, environment, expand_with};
use super::files::{ContainerFiles, ETC_HOSTS, TerminationLog};
use super::hostname::hostname_and_domain;
use super::hosts::HostsFile;
use super::labels::{container_annotations, container_labels};
use super::mounts::{block_devices, plan_mounts};
use super::resources::container_resources;
use super::sandbox::pod_logs_directory;
use super::security_context::{container_security_context, groups_of_volumes, verify_run_as_non_root};
use super::{ContainerInputs, NodeSettings, Result};
use kubelet_cri::v1;

/// Generates the config of a container (`generateContainerConfig`), and prepares the files that it needs: its log
/// folder, `/etc/hosts`, the termination log, sub-paths of volumes. The lease holds what the sub-paths lead to.
///
/// An error is the message of `CreateContainerConfigError`.
///
/// # Cancel safety
///
/// May be dropped and called again. An unused termination log may then stay in the pod's folder.
pub(crate) async fn container_config(
    node: &NodeSettings,
    inputs: &ContainerInputs<'_>,
) -> Result<v1::ContainerConfig> {
    let mut environment = environment(node, inputs).await?;
    add_environment(&mut environment, inputs.additions);
    let files = container_files(node, inputs, &environment)?;
    verify_run_as_non_root(inputs.pod, inputs.container, inputs.image_user)?;
    let mut config = describe(node, inputs, environment)?;
    config.mounts = files.prepare(node.disk).await?;
    add_to_config(&mut config, inputs.additions);
    for mount in &mut config.mounts {
        mount.uid_mappings.clone_from(&inputs.user_namespace.uids);
        mount.gid_mappings.clone_from(&inputs.user_namespace.gids);
    }
    Ok(config)
}

/// `<container>/<restart_count>.log`, below the pod's log folder (`buildContainerLogsPath`)
fn container_log_path(container: &str, restart_count: u32) -> String {
    format!("{container}/{restart_count}.log")
}

/// The config without its mounts.
fn describe(
    node: &NodeSettings,
    inputs: &ContainerInputs<'_>,
    environment: Environment,
) -> Result<v1::ContainerConfig> {
    let (pod, container) = (inputs.pod, inputs.container);
    let expanded = |texts: &Option<Vec<String>>| {
        let texts = texts.iter().flatten();
        texts.map(|text| expand_with(text, &environment)).collect()
    };
    Ok(v1::ContainerConfig {
        metadata: Some(v1::ContainerMetadata {
            name: container.name.clone(),
            attempt: inputs.restart_count,
        }),
        image: Some(v1::ImageSpec {
            image: inputs.image_ref.to_owned(),
            user_specified_image: container.image.clone().unwrap_or_default(),
            ..Default::default()
        }),
        command: expanded(&container.command),
        args: expanded(&container.args),
        working_dir: container.working_dir.clone().unwrap_or_default(),
        labels: container_labels(container, pod),
        annotations: container_annotations(container, pod, inputs.restart_count),
        log_path: container_log_path(&container.name, inputs.restart_count),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        linux: Some(linux_config(node, inputs)?),
        stop_signal: stop_signal(container) as i32,
        devices: block_devices(container, inputs.volumes)?,
        envs: environment
            .into_iter()
            .map(|(key, value)| v1::KeyValue { key, value })
            .collect(),
        ..Default::default()
    })
}

fn linux_config(node: &NodeSettings, inputs: &ContainerInputs<'_>) -> Result<v1::LinuxContainerConfig> {
    let (pod, container) = (inputs.pod, inputs.container);
    let mut context =
        container_security_context(node, pod, container, inputs.image_user, inputs.user_namespace)?;
    let groups = groups_of_volumes(pod, inputs.volumes);
    context.supplemental_groups.extend(groups);
    if let (Some(target), Some(namespaces)) = (inputs.target, &mut context.namespace_options)
        && namespaces.pid() == v1::NamespaceMode::Container
    {
        namespaces.pid = v1::NamespaceMode::Target as i32;
        namespaces.target_id = target.to_owned();
    }
    Ok(v1::LinuxContainerConfig {
        resources: Some(container_resources(node, pod, container)?),
        security_context: Some(context),
    })
}

/// `getContainerConfigStopSignal`; a signal that CRI does not define becomes the runtime's default.
fn stop_signal(container: &Container) -> v1::Signal {
    let lifecycle = container.lifecycle.as_ref();
    let name = lifecycle.and_then(|lifecycle| lifecycle.stop_signal.as_deref());
    // `SIGRTMIN+1` is CRI's `SIGRTMINPLUS1`.
    let name = name.map(|name| name.replace('+', "PLUS").replace('-', "MINUS"));
    name.and_then(|name| v1::Signal::from_str_name(&name))
        .unwrap_or_default()
}

/// The API's name of the stop signal that the runtime reports; none if it reports none (`runtimeSignalToString`).
pub(crate) fn signal_name(signal: v1::Signal) -> Option<String> {
    let name = (signal != v1::Signal::RuntimeDefault).then(|| signal.as_str_name())?;
    Some(name.replace("PLUS", "+").replace("MINUS", "-"))
}

fn container_files(
    node: &NodeSettings,
    inputs: &ContainerInputs<'_>,
    environment: &Environment,
) -> Result<ContainerFiles> {
    let (pod, container) = (inputs.pod, inputs.container);
    Ok(ContainerFiles {
        logs_dir: container_logs_directory(node, pod, container),
        mounts: plan_mounts(node, inputs, environment)?,
        lease: inputs.lease.clone(),
        hosts: hosts_file(node, inputs)?,
        termination_log: termination_log(node, inputs),
        selinux: node.selinux,
    })
}

fn container_logs_directory(node: &NodeSettings, pod: &Pod, container: &Container) -> PathBuf {
    pod_logs_directory(&node.pod_logs_dir, pod).join(&container.name)
}

/// A container gets the hosts file unless it mounts its own, or the pod's IPs are unknown (`shouldMountHostsFile`).
fn hosts_file(node: &NodeSettings, inputs: &ContainerInputs<'_>) -> Result<Option<HostsFile>> {
    let pod = inputs.pod;
    let mut mounts = inputs.container.volume_mounts.iter().flatten();
    let own = mounts.any(|mount| mount.mount_path == ETC_HOSTS);
    if own || (inputs.pod_ips.is_empty() && !pod.host_network()) {
        return Ok(None);
    }
    let (hostname, domain) = hostname_and_domain(node, pod)?;
    let aliases = pod.spec.as_ref().and_then(|spec| spec.host_aliases.clone());
    Ok(Some(HostsFile {
        path: node.root_dir.etc_hosts(&pod.uid()),
        host_network: pod.host_network(),
        ips: inputs.pod_ips.to_vec(),
        hostname,
        domain,
        aliases: aliases.unwrap_or_default(),
    }))
}

fn termination_log(node: &NodeSettings, inputs: &ContainerInputs<'_>) -> Option<TerminationLog> {
    let (pod, container) = (inputs.pod, inputs.container);
    let path = container.termination_message_path.as_deref()?;
    if path.is_empty() {
        return None;
    }
    let absolute = if path.starts_with('/') { "" } else { "/" };
    Some(TerminationLog {
        dir: node.root_dir.pod_container_dir(&pod.uid(), &container.name),
        restart_count: inputs.restart_count,
        container_path: format!("{absolute}{path}"),
    })
}
