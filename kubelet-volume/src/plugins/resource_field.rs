//! A request or limit of a container as text (`pkg/api/v1/resource`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::quantity::Amount;

type Amounts = BTreeMap<String, Quantity>;

/// The request or limit, in units of the divisor, rounded up. A limit that is not set is the node's allocatable amount
/// (`ExtractResourceValueByContainerNameAndNodeAllocatable`).
pub(super) fn value(
    pod: &Pod,
    selector: &ResourceFieldSelector,
    allocatable: &Amounts,
) -> Result<String, String> {
    let container = find(pod, selector.container_name.as_deref().unwrap_or_default())?;
    let unsupported = || format!("unsupported container resource : {}", selector.resource);
    let (list, name) = selector.resource.split_once('.').ok_or_else(unsupported)?;
    let is_basic = matches!(name, "cpu" | "memory" | "ephemeral-storage");
    if !is_basic && !name.starts_with("hugepages-") {
        return Err(unsupported());
    }
    let resources = container.resources.as_ref();
    let of = |amounts: Option<&Amounts>| amount(amounts.and_then(|amounts| amounts.get(name)));
    let mut found = match list {
        "limits" => of(resources.and_then(|resources| resources.limits.as_ref()))?,
        "requests" => of(resources.and_then(|resources| resources.requests.as_ref()))?,
        _ => return Err(unsupported()),
    };
    if list == "limits" && is_basic && found.is_zero() {
        found = of(Some(allocatable))?;
    }
    let divisor = match amount(selector.divisor.as_ref())? {
        divisor if divisor.is_zero() => Amount::from_units(1),
        divisor => divisor,
    };
    let (found, divisor) = match name {
        "cpu" => (found.milli_value(), divisor.milli_value()),
        _ => (found.value(), divisor.value()),
    };
    // In floating point, as the kubelet does.
    Ok(((found as f64 / divisor as f64).ceil() as i64).to_string())
}

/// `findContainerInPod`
fn find<'a>(pod: &'a Pod, name: &str) -> Result<&'a Container, String> {
    let spec = pod.spec.iter();
    let mut all = spec.flat_map(|spec| {
        spec.containers
            .iter()
            .chain(spec.init_containers.iter().flatten())
    });
    all.find(|container| container.name == name)
        .ok_or_else(|| format!("container {name} not found"))
}

fn amount(quantity: Option<&Quantity>) -> Result<Amount, String> {
    let amount = quantity.map(Amount::try_from).transpose();
    amount
        .map(Option::unwrap_or_default)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn amounts_are_divided_and_rounded_up() {
        let pod = json!({"spec": {
            "containers": [{"name": "main", "resources": {
                "limits": {"cpu": "1250m", "memory": "64Mi", "hugepages-2Mi": "4Mi"},
                "requests": {"cpu": "250m", "memory": "32Mi"}}}],
            "initContainers": [{"name": "init"}]}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let allocatable =
            json!({"cpu": "4", "memory": "1Gi", "ephemeral-storage": "10", "hugepages-1Gi": "1Gi"});
        let allocatable: Amounts = serde_json::from_value(allocatable).unwrap();
        for (container, resource, divisor, expected) in [
            ("main", "limits.cpu", "0", Ok("2")),
            ("main", "limits.cpu", "1m", Ok("1250")),
            ("main", "limits.memory", "1Mi", Ok("64")),
            ("main", "requests.cpu", "1", Ok("1")),
            ("main", "requests.memory", "1Ki", Ok("32768")),
            ("main", "limits.ephemeral-storage", "1", Ok("10")),
            ("main", "requests.ephemeral-storage", "1", Ok("0")),
            ("main", "limits.hugepages-2Mi", "1Mi", Ok("4")),
            ("main", "limits.hugepages-1Gi", "1", Ok("0")),
            ("init", "limits.memory", "3", Ok("357913942")),
            ("init", "limits.cpu", "1", Ok("4")),
            ("init", "requests.cpu", "1", Ok("0")),
            ("none", "limits.cpu", "1", Err("container none not found")),
            (
                "main",
                "limits.gpu",
                "1",
                Err("unsupported container resource : limits.gpu"),
            ),
            ("main", "cpu", "1", Err("unsupported container resource : cpu")),
        ] {
            let selector = json!({"containerName": container, "resource": resource, "divisor": divisor});
            let found = value(&pod, &serde_json::from_value(selector).unwrap(), &allocatable);
            let expected = expected.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(found, expected, "{container} {resource} {divisor}");
        }
    }
}
