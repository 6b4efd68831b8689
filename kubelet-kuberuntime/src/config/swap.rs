//! How much a container may swap (`GetContainerSwapBehavior`, `ConfigureLimitedSwap`).

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::{PodExt, QosClass, qos_class};

use super::resource_lists::ResourceLists;
use super::{NodeSettings, Result};

/// Whether a container may swap: with `LimitedSwap` and cgroup v2, a container of a burstable pod, if it requests some
/// memory and less than its limit. Critical pods may never swap.
pub(crate) fn may_swap(node: &NodeSettings, pod: &Pod, container: &Container) -> Result<bool> {
    if !(node.limited_swap && node.swap_controller && node.cgroup_v2) {
        return Ok(false);
    }
    let lists = ResourceLists::of_container(container)?;
    let of = |list: &std::collections::BTreeMap<_, _>| list.get("memory").copied().unwrap_or_default();
    let (request, limit) = (of(&lists.requests), of(&lists.limits));
    Ok(qos_class(pod) == QosClass::Burstable && request != limit && !pod.is_critical())
}

/// The container's swap in bytes: the same share of the node's swap as its request is of the node's memory
/// (`calcSwapForBurstablePods`); 0 for none.
pub(super) fn swap_limit(node: &NodeSettings, pod: &Pod, container: &Container) -> Result<u64> {
    if !may_swap(node, pod, container)? {
        return Ok(0);
    }
    let lists = ResourceLists::of_container(container)?;
    let request = lists.requests.get("memory").map_or(0, |amount| amount.value());
    let request = u64::try_from(request).unwrap_or(0);
    if node.memory_capacity == 0 || request > node.memory_capacity {
        tracing::error!(pod = %pod.key(), uid = pod.uid_str(), container = container.name, request,
            memory = node.memory_capacity, "cannot compute how much a container may swap, so it may not swap");
        return Ok(0);
    }
    // In floating point, as the kubelet does.
    Ok((request as f64 / node.memory_capacity as f64 * node.swap_capacity as f64) as u64)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const GIB: u64 = 1 << 30;

    /// 40 GiB of memory and 5 of swap.
    fn node() -> NodeSettings {
        NodeSettings {
            memory_capacity: 40 * GIB,
            swap_capacity: 5 * GIB,
            swap_controller: true,
            cgroup_v2: true,
            limited_swap: true,
            ..NodeSettings::default()
        }
    }

    /// How much the first of its containers may swap. The second one requests some memory.
    fn limit(node: &NodeSettings, resources: Value, mut spec: Value) -> Result<u64> {
        spec["containers"] = json!([
            { "name": "a", "resources": resources },
            { "name": "b", "resources": { "requests": { "memory": "1Mi" } } },
        ]);
        let pod: Pod = serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": spec })).unwrap();
        swap_limit(node, &pod, &pod.spec.as_ref().unwrap().containers[0])
    }

    #[test]
    fn containers_swap_by_their_share_of_memory() {
        let asks = |request: &str, limit: &str| {
            let list = |memory: &str| match memory {
                "" => json!({}),
                memory => json!({ "memory": memory }),
            };
            json!({ "requests": list(request), "limits": list(limit) })
        };
        for (request, of_limit, expected) in [
            ("4Gi", "", GIB / 2),
            ("4Gi", "8Gi", GIB / 2),
            ("40Gi", "", 5 * GIB),
            ("1", "", 0),
            ("4Gi", "4Gi", 0),
            ("", "", 0),
            ("41Gi", "", 0),
        ] {
            let found = limit(&node(), asks(request, of_limit), json!({})).unwrap();
            assert_eq!(found, expected, "{request} {of_limit}");
        }
        let resources = || asks("4Gi", "8Gi");
        let critical = json!({ "priority": 2_000_000_000 });
        assert_eq!(limit(&node(), resources(), critical).unwrap(), 0);
        for change in [
            (|node| node.limited_swap = false) as fn(&mut NodeSettings),
            |node| node.swap_controller = false,
            |node| node.cgroup_v2 = false,
            |node| node.memory_capacity = 0,
        ] {
            let mut node = node();
            change(&mut node);
            assert_eq!(limit(&node, resources(), json!({})).unwrap(), 0, "{node:?}");
        }
        assert!(limit(&node(), asks("much", ""), json!({})).is_err());
    }
}
