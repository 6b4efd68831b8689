//! Quantities of objects: one, a list, the sum of the containers of a pod.

use std::collections::BTreeMap;

use kubelet_core::needed_at_once;
use kubelet_core::quantity::WrittenAmount;
use serde_json::{Value, json};

use super::value::Fields;

/// A list of resources: `cpu`, `memory`…
pub(super) type Amounts = BTreeMap<String, WrittenAmount>;

/// Reads a string or a number.
pub(super) fn of(value: &Value) -> Option<WrittenAmount> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

/// The valid quantities of a list.
pub(super) fn amounts(resources: &Value, list: &str) -> Amounts {
    resources
        .entries(list)
        .filter_map(|(resource, amount)| Some((resource.clone(), of(amount)?)))
        .collect()
}

/// The list as the API writes it.
pub(super) fn to_value(amounts: &Amounts) -> Value {
    amounts
        .iter()
        .map(|(resource, amount)| (resource.clone(), json!(amount.to_string())))
        .collect()
}

/// The sum of the containers of a pod in `requests` or `limits`: either the regular containers and the sidecars
/// together, or an init container and the sidecars before it, whichever is more (`AggregateContainerRequests`).
pub(super) fn of_containers(spec: &Value, list: &str) -> Amounts {
    let of = |container: &Value| amounts(&container["resources"], list);
    let init = spec.list("initContainers").iter();
    let init = init.map(|container| (container.text("restartPolicy") == "Always", of(container)));
    needed_at_once(spec.list("containers").iter().map(of), init)
}
