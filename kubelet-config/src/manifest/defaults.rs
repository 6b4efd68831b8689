//! The API's defaults for what a pod leaves unset (`pkg/apis/core/v1/defaults.go`), and the values that the API changes
//! in any pod it reads (`pkg/apis/core/v1/conversion.go`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, DownwardAPIVolumeFile, EmptyDirVolumeSource, HTTPGetAction, LifecycleHandler, Pod, PodIP,
    PodSpec, PodStatus, Probe, ResourceRequirements, Volume,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::image_name::default_pull_policy;
use kubelet_core::needed_at_once;
use kubelet_core::quantity::WrittenAmount;
use kubelet_core::restart_rules::is_restartable_init_container;

use super::canonical::amount;

const TERMINATION_MESSAGE_PATH: &str = "/dev/termination-log";
const TERMINATION_GRACE_PERIOD_SECONDS: i64 = 30;
/// Replaces a negative grace period.
const LEAST_GRACE_PERIOD_SECONDS: i64 = 1;
const VOLUME_FILE_MODE: i32 = 0o644;
const TOKEN_EXPIRATION_SECONDS: i64 = 3600;

/// Annotations that listed init containers before there was a field for them. The API drops them.
const INIT_CONTAINER_ANNOTATIONS: [&str; 4] = [
    "pod.alpha.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-container-statuses",
    "pod.beta.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
];

/// Fills in what the pod leaves unset, as the API server does for its pods (`SetObjectDefaults_Pod`).
///
/// [`decode`](super::decode) does it. A source of your own does it before it yields a pod that no API server has seen: without defaults,
/// such a pod has no restart policy and no grace period.
///
/// ```
/// let mut pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(serde_json::json!({
///     "metadata": {"name": "web", "namespace": "default", "uid": "1"},
///     "spec": {"containers": [{"name": "main", "image": "nginx"}]},
/// }))?;
/// kubelet_config::manifest::set_defaults(&mut pod);
/// let spec = pod.spec.unwrap();
/// assert_eq!(spec.restart_policy.as_deref(), Some("Always"));
/// assert_eq!(spec.containers[0].image_pull_policy.as_deref(), Some("Always"));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn set_defaults(pod: &mut Pod) {
    if let Some(annotations) = &mut pod.metadata.annotations {
        annotations.retain(|key, _| !INIT_CONTAINER_ANNOTATIONS.contains(&key.as_str()));
    }
    pod.status.iter_mut().for_each(agree_on_pod_ip);
    let spec = pod.spec.get_or_insert_default();
    for volume in spec.volumes.iter_mut().flatten() {
        default_volume(volume);
    }
    for container in spec
        .init_containers
        .iter_mut()
        .flatten()
        .chain(&mut spec.containers)
    {
        default_container(container);
        default_requests(container.resources.get_or_insert_default());
    }
    if spec.host_network == Some(true) {
        default_host_ports(spec);
    }
    default_pod_resources(spec);
    spec.enable_service_links.get_or_insert(true);
    spec.dns_policy.get_or_insert_with(|| "ClusterFirst".into());
    spec.restart_policy.get_or_insert_with(|| "Always".into());
    spec.security_context.get_or_insert_default();
    let grace_period = spec
        .termination_grace_period_seconds
        .get_or_insert(TERMINATION_GRACE_PERIOD_SECONDS);
    if *grace_period < 0 {
        *grace_period = LEAST_GRACE_PERIOD_SECONDS;
    }
    spec.scheduler_name
        .get_or_insert_with(|| "default-scheduler".into());
    // Two names of one field.
    match (&spec.service_account_name, &spec.service_account) {
        (Some(name), _) => spec.service_account = Some(name.clone()),
        (None, Some(name)) => spec.service_account_name = Some(name.clone()),
        (None, None) => {}
    }
}

/// A status has its first address in two fields. Where they differ, the singular one counts.
fn agree_on_pod_ip(status: &mut PodStatus) {
    let ips = status.pod_ips.get_or_insert_default();
    match (&status.pod_ip, ips.first()) {
        (Some(ip), first) if first.is_none_or(|first| first.ip != *ip) => {
            *ips = vec![PodIP { ip: ip.clone() }];
        }
        (None, Some(first)) => status.pod_ip = Some(first.ip.clone()),
        _ => {}
    }
    status.pod_ips.take_if(|ips| ips.is_empty());
}

fn default_container(container: &mut Container) {
    let image = container.image.as_deref().unwrap_or_default();
    container
        .image_pull_policy
        .get_or_insert_with(|| default_pull_policy(image).into());
    container
        .termination_message_path
        .get_or_insert_with(|| TERMINATION_MESSAGE_PATH.into());
    container
        .termination_message_policy
        .get_or_insert_with(|| "File".into());
    for port in container.ports.iter_mut().flatten() {
        port.protocol.get_or_insert_with(|| "TCP".into());
    }
    for env in container.env.iter_mut().flatten() {
        let Some(from) = &mut env.value_from else { continue };
        if let Some(field) = &mut from.field_ref {
            field.api_version.get_or_insert_with(|| "v1".into());
        }
        if let Some(resource) = &mut from.resource_field_ref {
            resource.divisor.get_or_insert_with(|| Quantity("0".into()));
        }
        if let Some(file) = &mut from.file_key_ref {
            file.optional.get_or_insert(false);
        }
    }
    let probes = [
        &mut container.liveness_probe,
        &mut container.readiness_probe,
        &mut container.startup_probe,
    ];
    probes.into_iter().flatten().for_each(default_probe);
    if let Some(lifecycle) = &mut container.lifecycle {
        let hooks = [&mut lifecycle.post_start, &mut lifecycle.pre_stop];
        hooks.into_iter().flatten().for_each(default_hook);
    }
}

fn default_probe(probe: &mut Probe) {
    probe.timeout_seconds.get_or_insert(1);
    probe.period_seconds.get_or_insert(10);
    probe.success_threshold.get_or_insert(1);
    probe.failure_threshold.get_or_insert(3);
    probe.http_get.iter_mut().for_each(default_http_get);
    if let Some(grpc) = &mut probe.grpc {
        grpc.service.get_or_insert_default();
    }
}

fn default_hook(hook: &mut LifecycleHandler) {
    hook.http_get.iter_mut().for_each(default_http_get);
}

fn default_http_get(get: &mut HTTPGetAction) {
    get.path.get_or_insert_with(|| "/".into());
    get.scheme.get_or_insert_with(|| "HTTP".into());
}

/// What is limited but not requested is requested up to its limit.
fn default_requests(resources: &mut ResourceRequirements) {
    let Some(limits) = &resources.limits else { return };
    let requests = resources.requests.get_or_insert_default();
    for (resource, limit) in limits {
        requests.entry(resource.clone()).or_insert_with(|| limit.clone());
    }
}

/// On the host's network a container port is a port of the host.
fn default_host_ports(spec: &mut PodSpec) {
    let containers = spec
        .init_containers
        .iter_mut()
        .flatten()
        .chain(&mut spec.containers);
    for port in containers.flat_map(|container| container.ports.iter_mut().flatten()) {
        port.host_port.get_or_insert(port.container_port);
    }
}

/// A pod with limits of its own requests what its containers request together, and else its limits.
fn default_pod_resources(spec: &mut PodSpec) {
    default_huge_page_limits(spec);
    let Some(limits) = spec
        .resources
        .as_ref()
        .and_then(|resources| resources.limits.clone())
    else {
        return;
    };
    let together = container_requests(spec);
    let Some(resources) = &mut spec.resources else {
        return;
    };
    let requests = resources.requests.get_or_insert_default();
    for (resource, amount) in together {
        if matches!(resource.as_str(), "cpu" | "memory") {
            requests.entry(resource).or_insert(amount);
        }
    }
    for (resource, limit) in limits {
        if is_pod_level(&resource) {
            requests.entry(resource).or_insert(limit);
        }
    }
    if requests.is_empty() {
        resources.requests = None;
    }
}

/// Huge pages cannot be overcommitted: the pod's limit is the sum of its containers' limits.
fn default_huge_page_limits(spec: &mut PodSpec) {
    let stated =
        |list: &Option<BTreeMap<String, Quantity>>| list.as_ref().is_some_and(|list| !list.is_empty());
    let Some(resources) = &spec.resources else { return };
    if !stated(&resources.limits) && !stated(&resources.requests) {
        return;
    }
    let together = containers_together(spec, |resources| resources.limits.as_ref());
    let Some(resources) = &mut spec.resources else {
        return;
    };
    let requested = resources.requests.clone().unwrap_or_default();
    for (resource, amount) in together
        .into_iter()
        .filter(|(resource, _)| resource.starts_with("hugepages-"))
    {
        if !requested.contains_key(&resource) {
            let limits = resources.limits.get_or_insert_default();
            limits.entry(resource).or_insert(amount);
        }
    }
}

fn is_pod_level(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory") || resource.starts_with("hugepages-")
}

/// What the containers request together.
pub(super) fn container_requests(spec: &PodSpec) -> BTreeMap<String, Quantity> {
    containers_together(spec, |resources| resources.requests.as_ref())
}

/// The sum of a list of all containers: of the regular containers and the sidecars, which run at once, or of an init
/// container and the sidecars before it, whichever is more.
fn containers_together(
    spec: &PodSpec,
    list: impl Fn(&ResourceRequirements) -> Option<&BTreeMap<String, Quantity>>,
) -> BTreeMap<String, Quantity> {
    let of = |container: &Container| -> BTreeMap<String, WrittenAmount> {
        let resources = container.resources.as_ref();
        let amounts = resources.and_then(&list).into_iter().flatten();
        amounts
            .filter_map(|(resource, quantity)| Some((resource.clone(), amount(&quantity.0)?)))
            .collect()
    };
    let init = spec.init_containers.iter().flatten();
    let init = init.map(|container| (is_restartable_init_container(container), of(container)));
    let total = needed_at_once(spec.containers.iter().map(of), init);
    let written = |(resource, amount): (String, WrittenAmount)| (resource, amount.into());
    total.into_iter().map(written).collect()
}

fn default_volume(volume: &mut Volume) {
    let unset = Volume {
        name: volume.name.clone(),
        ..Volume::default()
    };
    if *volume == unset {
        volume.empty_dir = Some(EmptyDirVolumeSource::default());
    }
    if let Some(image) = &mut volume.image {
        let reference = image.reference.as_deref().unwrap_or_default();
        image
            .pull_policy
            .get_or_insert_with(|| default_pull_policy(reference).into());
    }
    if let Some(secret) = &mut volume.secret {
        secret.default_mode.get_or_insert(VOLUME_FILE_MODE);
    }
    if let Some(config_map) = &mut volume.config_map {
        config_map.default_mode.get_or_insert(VOLUME_FILE_MODE);
    }
    if let Some(host_path) = &mut volume.host_path {
        host_path.type_.get_or_insert_default();
    }
    if let Some(downward) = &mut volume.downward_api {
        downward.default_mode.get_or_insert(VOLUME_FILE_MODE);
        downward
            .items
            .iter_mut()
            .flatten()
            .for_each(default_downward_file);
    }
    if let Some(projected) = &mut volume.projected {
        projected.default_mode.get_or_insert(VOLUME_FILE_MODE);
        for source in projected.sources.iter_mut().flatten() {
            if let Some(token) = &mut source.service_account_token {
                token.expiration_seconds.get_or_insert(TOKEN_EXPIRATION_SECONDS);
            }
            if let Some(downward) = &mut source.downward_api {
                downward
                    .items
                    .iter_mut()
                    .flatten()
                    .for_each(default_downward_file);
            }
        }
    }
    if let Some(iscsi) = &mut volume.iscsi {
        iscsi.iscsi_interface.get_or_insert_with(|| "default".into());
    }
    if let Some(rbd) = &mut volume.rbd {
        rbd.pool.get_or_insert_with(|| "rbd".into());
        rbd.user.get_or_insert_with(|| "admin".into());
        rbd.keyring.get_or_insert_with(|| "/etc/ceph/keyring".into());
    }
    if let Some(disk) = &mut volume.azure_disk {
        disk.caching_mode.get_or_insert_with(|| "ReadWrite".into());
        disk.kind.get_or_insert_with(|| "Shared".into());
        disk.fs_type.get_or_insert_with(|| "ext4".into());
        disk.read_only.get_or_insert(false);
    }
    if let Some(scale_io) = &mut volume.scale_io {
        scale_io
            .storage_mode
            .get_or_insert_with(|| "ThinProvisioned".into());
        scale_io.fs_type.get_or_insert_with(|| "xfs".into());
    }
}

fn default_downward_file(file: &mut DownwardAPIVolumeFile) {
    if let Some(field) = &mut file.field_ref {
        field.api_version.get_or_insert_with(|| "v1".into());
    }
    if let Some(resource) = &mut file.resource_field_ref {
        resource.divisor.get_or_insert_with(|| Quantity("0".into()));
    }
}

#[cfg(test)]
mod tests;
