//! The quality of service class of a pod (`pkg/apis/core/helper/qos`).

use kubelet_core::quantity::WrittenAmount;
use serde_json::Value;

use super::super::quantity::amounts;
use super::super::value::Fields;

/// `Guaranteed`, `Burstable` or `BestEffort`.
pub(super) fn of(spec: &Value) -> &'static str {
    let pod = &spec["resources"];
    let resources: Vec<&Value> = if pod.has("requests") || pod.has("limits") {
        vec![pod]
    } else {
        let containers = spec.list("containers").iter().chain(spec.list("initContainers"));
        containers.map(|container| &container["resources"]).collect()
    };
    let counted = |resources: &Value, list: &str| -> Vec<(String, WrittenAmount)> {
        let amounts = amounts(resources, list).into_iter();
        amounts
            .filter(|(name, amount)| matches!(name.as_str(), "cpu" | "memory") && amount.amount.is_positive())
            .collect()
    };
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    let mut all_limited = true;
    for resources in resources {
        requests.extend(counted(resources, "requests"));
        let own = counted(resources, "limits");
        all_limited &= ["cpu", "memory"]
            .iter()
            .all(|wanted| own.iter().any(|(name, _)| name == wanted));
        limits.extend(own);
    }
    if requests.is_empty() && limits.is_empty() {
        return "BestEffort";
    }
    let sum = |list: &[(String, WrittenAmount)], wanted: &str| {
        let amounts = list
            .iter()
            .filter(|(name, _)| name == wanted)
            .map(|(_, amount)| amount.amount);
        amounts.reduce(|sum, amount| sum + amount)
    };
    let same = ["cpu", "memory"].iter().all(|name| {
        let request = sum(&requests, name);
        request.is_none() || request == sum(&limits, name)
    });
    let as_many = ["cpu", "memory"]
        .iter()
        .all(|name| sum(&requests, name).is_some() == sum(&limits, name).is_some());
    if all_limited && same && as_many {
        "Guaranteed"
    } else {
        "Burstable"
    }
}
