//! Quantities of objects: one, a list, the sum of the containers of a pod.

use std::collections::BTreeMap;

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
    let mut total = Amounts::new();
    for container in spec.list("containers") {
        add(&mut total, &amounts(&container["resources"], list));
    }
    let (mut sidecars, mut starting) = (Amounts::new(), Amounts::new());
    for container in spec.list("initContainers") {
        let mut needed = amounts(&container["resources"], list);
        if container.text("restartPolicy") == "Always" {
            add(&mut total, &needed);
            add(&mut sidecars, &needed);
            needed = sidecars.clone();
        } else {
            add(&mut needed, &sidecars);
        }
        raise(&mut starting, &needed);
    }
    raise(&mut total, &starting);
    total
}

fn add(total: &mut Amounts, more: &Amounts) {
    for (resource, amount) in more {
        let sum = total.get(resource).map_or(*amount, |sum| *sum + *amount);
        total.insert(resource.clone(), sum);
    }
}

/// Raises each amount to the other's, if that is more.
fn raise(amounts: &mut Amounts, others: &Amounts) {
    for (resource, other) in others {
        let amount = amounts.entry(resource.clone()).or_insert(*other);
        if other.amount > amount.amount {
            *amount = *other;
        }
    }
}
