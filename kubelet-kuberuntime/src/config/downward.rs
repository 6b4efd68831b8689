//! The downward API for variables: `fieldRef` and `resourceFieldRef` (`podFieldSelectorRuntimeValue`,
//! `containerResourceRuntimeValue`).

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, ObjectFieldSelector, Pod, ResourceFieldSelector};
use kubelet_core::PodExt;
use kubelet_core::quantity::Amount;

use super::resource_lists::ResourceLists;
use super::{ConfigError, ContainerInputs, NodeSettings, Result};

/// The value of a field of the pod.
pub(super) fn field_value(
    node: &NodeSettings,
    inputs: &ContainerInputs<'_>,
    field: &ObjectFieldSelector,
) -> Result<String> {
    let version = field.api_version.as_deref().unwrap_or("v1");
    if version != "v1" {
        return Err(ConfigError::Spec(format!("unsupported pod version: {version}")));
    }
    let metadata = &inputs.pod.metadata;
    let text = |value: Option<&String>| Ok(value.cloned().unwrap_or_default());
    let path = field.field_path.as_str();
    if let Some((map, key)) = subscripted(path) {
        let map = match map {
            "metadata.annotations" => &metadata.annotations,
            "metadata.labels" => &metadata.labels,
            _ => {
                let message = format!("field label does not support subscript: {path}");
                return Err(ConfigError::Spec(message));
            }
        };
        return text(map.as_ref().and_then(|map| map.get(key)));
    }
    let spec = inputs.pod.spec.as_ref();
    match path {
        "metadata.name" => text(metadata.name.as_ref()),
        "metadata.namespace" => text(metadata.namespace.as_ref()),
        "metadata.uid" => text(metadata.uid.as_ref()),
        "spec.nodeName" | "spec.host" => text(spec.and_then(|spec| spec.node_name.as_ref())),
        "spec.serviceAccountName" => text(spec.and_then(|spec| spec.service_account_name.as_ref())),
        "status.hostIP" => Ok(first(&node.node_ips.get())),
        "status.hostIPs" => Ok(joined(&node.node_ips.get())),
        "status.podIP" => Ok(first(&pod_ips(node, inputs))),
        "status.podIPs" => Ok(joined(&pod_ips(node, inputs))),
        "metadata.annotations"
        | "metadata.labels"
        | "spec.restartPolicy"
        | "spec.schedulerName"
        | "status.phase" => Err(ConfigError::Spec(format!("unsupported fieldPath: {path}"))),
        _ => Err(ConfigError::Spec(format!("field label not supported: {path}"))),
    }
}

/// Splits `metadata.labels['key']` into field and key.
fn subscripted(path: &str) -> Option<(&str, &str)> {
    let (map, key) = path.strip_suffix("']")?.split_once("['")?;
    (!map.is_empty()).then_some((map, key))
}

/// At most one IP of each family. The family of the node's primary IP comes first (`sortPodIPs`). A pod on the host's
/// network has the node's IPs.
fn pod_ips(node: &NodeSettings, inputs: &ContainerInputs<'_>) -> Vec<IpAddr> {
    let node_ips = node.node_ips.get();
    let primary_is_v6 = node_ips.first().is_some_and(IpAddr::is_ipv6);
    let ips: Vec<IpAddr> = match inputs.pod_ips {
        [] if inputs.pod.host_network() => node_ips,
        ips => ips.iter().filter_map(|ip| ip.parse().ok()).collect(),
    };
    let of_family = |v6: bool| ips.iter().find(move |ip| ip.is_ipv6() == v6);
    let both = [of_family(primary_is_v6), of_family(!primary_is_v6)];
    both.into_iter().flatten().copied().collect()
}

fn first(ips: &[IpAddr]) -> String {
    ips.first().map(IpAddr::to_string).unwrap_or_default()
}

fn joined(ips: &[IpAddr]) -> String {
    ips.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(",")
}

/// A request or limit of a container of the pod, in units of the divisor, rounded up. A limit that is not set is the
/// pod's limit, or else the node's allocatable amount (`defaultPodLimitsForDownwardAPI`).
pub(super) fn resource_field_value(
    node: &NodeSettings,
    inputs: &ContainerInputs<'_>,
    field: &ResourceFieldSelector,
) -> Result<String> {
    let (container, defaulted) = match field.container_name.as_deref() {
        None | Some("") => (inputs.container, true),
        Some(name) => find_container(inputs.pod, name)?,
    };
    let lists = ResourceLists::of_container(container)?;
    let unsupported = || ConfigError::Spec(format!("unsupported container resource : {}", field.resource));
    let (list, name) = field.resource.split_once('.').ok_or_else(unsupported)?;
    if !matches!(name, "cpu" | "memory" | "ephemeral-storage") && !name.starts_with("hugepages-") {
        return Err(unsupported());
    }
    let mut amount = match list {
        "limits" => lists.limits.get(name).copied().unwrap_or_default(),
        "requests" => lists.requests.get(name).copied().unwrap_or_default(),
        _ => return Err(unsupported()),
    };
    if list == "limits" && defaulted && amount.is_zero() {
        amount = default_limit(node, inputs.pod, name)?;
    }
    let divisor = divisor(field)?;
    let (amount, divisor) = match name {
        "cpu" => (amount.milli_value(), divisor.milli_value()),
        _ => (amount.value(), divisor.value()),
    };
    // In floating point, as the kubelet does.
    let quotient = (amount as f64 / divisor as f64).ceil() as i64;
    Ok(quotient.to_string())
}

/// Limits of init containers get no defaults when another container refers to them by name.
fn find_container<'a>(pod: &'a Pod, name: &str) -> Result<(&'a Container, bool)> {
    let spec = pod.spec.as_ref();
    let regular = spec.iter().flat_map(|spec| &spec.containers);
    let init = spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let mut all = regular
        .map(|container| (container, true))
        .chain(init.map(|container| (container, false)));
    all.find(|(container, _)| container.name == name)
        .ok_or_else(|| ConfigError::Spec(format!("container {name} not found")))
}

fn default_limit(node: &NodeSettings, pod: &Pod, name: &str) -> Result<Amount> {
    let units = |amount: u64| Amount::from_units(i64::try_from(amount).unwrap_or(i64::MAX));
    let allocatable = match name {
        "cpu" => Amount::from_milli(i64::try_from(node.allocatable_cpu_millis).unwrap_or(i64::MAX)),
        "memory" => units(node.allocatable_memory),
        "ephemeral-storage" => units(node.allocatable_ephemeral_storage),
        _ => return Ok(Amount::ZERO),
    };
    let of_pod = ResourceLists::of_pod(pod)?.limits.get(name).copied();
    Ok(of_pod.filter(|amount| !amount.is_zero()).unwrap_or(allocatable))
}

fn divisor(field: &ResourceFieldSelector) -> Result<Amount> {
    let Some(divisor) = &field.divisor else {
        return Ok(Amount::from_units(1));
    };
    let amount = Amount::try_from(divisor)
        .map_err(|error| ConfigError::Spec(format!("divisor of {}: {error}", field.resource)))?;
    Ok(if amount.is_zero() {
        Amount::from_units(1)
    } else {
        amount
    })
}
