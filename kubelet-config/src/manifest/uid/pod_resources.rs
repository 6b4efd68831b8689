//! The resources of a pod as a whole: what it leaves unset comes from its containers.

use std::collections::BTreeMap;

use serde_json::Value;

use super::quantity::GoQuantity;
use super::written::{Known, is_set, quantity};

/// Amounts of resources.
pub(super) type Amounts = BTreeMap<String, GoQuantity>;

const BEYOND_REASON: &str = "a sum of quantities is beyond reason";

/// The limits and the requests of a pod as a whole.
#[derive(Debug, Default)]
pub(super) struct PodResources {
    pub(super) limits: Amounts,
    pub(super) requests: Amounts,
}

/// The resources of the pod, with their defaults. `spec` has those of the containers.
pub(super) fn pod_resources(spec: &Value) -> Known<PodResources> {
    let resources = &spec["resources"];
    let mut limits = amounts(&resources["limits"])?;
    let mut requests = amounts(&resources["requests"])?;
    if !limits.is_empty() || !requests.is_empty() {
        for (resource, amount) in containers_together(spec, "limits")? {
            if resource.starts_with("hugepages-") && !requests.contains_key(&resource) {
                limits.entry(resource).or_insert(amount);
            }
        }
    }
    if !limits.is_empty() {
        for (resource, amount) in containers_together(spec, "requests")? {
            if matches!(resource.as_str(), "cpu" | "memory") {
                requests.entry(resource).or_insert(amount);
            }
        }
        for (resource, amount) in &limits {
            if matches!(resource.as_str(), "cpu" | "memory") || resource.starts_with("hugepages-") {
                requests.entry(resource.clone()).or_insert_with(|| amount.clone());
            }
        }
    }
    Ok(PodResources { limits, requests })
}

/// What all containers need at once, as `needed_at_once` of `kubelet-core` has it.
fn containers_together(spec: &Value, list: &str) -> Known<Amounts> {
    let mut total = Amounts::new();
    for container in items(&spec["containers"]) {
        add(&mut total, &amounts(&container["resources"][list])?)?;
    }
    let (mut sidecars, mut most) = (Amounts::new(), Amounts::new());
    for container in items(&spec["initContainers"]) {
        let mut needed = amounts(&container["resources"][list])?;
        if container["restartPolicy"] == "Always" {
            add(&mut total, &needed)?;
            add(&mut sidecars, &needed)?;
            needed = sidecars.clone();
        } else {
            add(&mut needed, &sidecars)?;
        }
        raise(&mut most, needed)?;
    }
    raise(&mut total, most)?;
    Ok(total)
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn amounts(list: &Value) -> Known<Amounts> {
    let amounts = list.as_object().into_iter().flatten();
    amounts
        .map(|(resource, amount)| Ok((resource.clone(), quantity(Some(amount))?)))
        .collect()
}

fn add(total: &mut Amounts, more: &Amounts) -> Known<()> {
    for (resource, amount) in more {
        let sum = match total.remove(resource) {
            Some(sum) => sum.plus(amount).ok_or(BEYOND_REASON)?,
            None => amount.clone(),
        };
        total.insert(resource.clone(), sum);
    }
    Ok(())
}

fn raise(amounts: &mut Amounts, others: Amounts) -> Known<()> {
    for (resource, mut other) in others {
        let more = match amounts.get(&resource) {
            Some(amount) => other.is_more_than(amount).ok_or(BEYOND_REASON)?,
            None => true,
        };
        if more {
            amounts.insert(resource, other);
        }
    }
    Ok(())
}

/// Gives the containers of a pod, as it was written, the requests that follow from their limits.
pub(super) fn request_what_is_limited(pod: &mut Value) {
    for list in ["containers", "initContainers"] {
        let containers = pod.pointer_mut(&format!("/spec/{list}"));
        for container in containers.and_then(Value::as_array_mut).into_iter().flatten() {
            let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) else {
                continue;
            };
            let Some(Value::Object(limits)) = resources.get("limits").cloned() else {
                continue;
            };
            let requests = resources.entry("requests").or_insert(Value::Null);
            if !is_set(requests) {
                *requests = Value::Object(serde_json::Map::new());
            }
            let Value::Object(requests) = requests else {
                continue;
            };
            for (resource, limit) in limits {
                requests.entry(resource).or_insert(limit);
            }
        }
    }
}
