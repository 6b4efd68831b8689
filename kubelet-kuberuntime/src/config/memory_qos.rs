//! Which memory of a container the kernel protects, and from where on it slows the container down (`MemoryQoS`).

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::{QosClass, qos_class};

use super::resource_lists::{ResourceLists, get};
use super::{NodeSettings, Result};

/// The memory settings of containers under the gate `MemoryQoS`, with cgroup v2.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ContainerMemoryQos {
    /// Whether requested memory is protected (`memoryReservationPolicy: TieredReservation`): `memory.min` in guaranteed pods,
    /// `memory.low` in others.
    pub protect_requests: bool,
    /// Where between the request and the limit of a container the kernel begins to slow it down (`memoryThrottlingFactor`):
    /// `memory.high`. Without a limit, the memory that pods may use on the node takes its place.
    pub throttling_factor: f64,
    /// The memory that all pods may use together, in bytes: the capacity without the reservations, but with huge pages and
    /// what eviction keeps free. `None`: the node's allocatable memory.
    pub all_pods: Option<u64>,
}

impl Default for ContainerMemoryQos {
    fn default() -> Self {
        Self {
            protect_requests: false,
            throttling_factor: 0.9,
            all_pods: None,
        }
    }
}

/// The settings of the container's cgroup; none if the gate is off or the host has cgroup v1.
pub(super) fn memory_qos(
    node: &NodeSettings,
    pod: &Pod,
    container: &Container,
) -> Result<Vec<(String, String)>> {
    let Some(qos) = node.memory_qos.filter(|_| node.cgroup_v2) else {
        return Ok(Vec::new());
    };
    let lists = ResourceLists::of_container(container)?;
    let request = get(&lists.requests, "memory").value();
    let limit = get(&lists.limits, "memory").value();
    let mut settings = match (qos.protect_requests && request != 0, qos_class(pod)) {
        (false, _) => vec![("memory.min", 0), ("memory.low", 0)],
        (true, QosClass::Guaranteed) => vec![("memory.min", request)],
        (true, QosClass::Burstable | QosClass::BestEffort) => vec![("memory.low", request)],
    };
    let high = match limit {
        0 => i64::try_from(qos.all_pods.unwrap_or(node.allocatable_memory)).unwrap_or(i64::MAX),
        limit => limit,
    };
    if request != limit && high > 0 {
        let high = throttled(request, high, qos.throttling_factor);
        settings.extend((high > request).then_some(("memory.high", high)));
    }
    let settings = settings.into_iter();
    Ok(settings
        .map(|(file, bytes)| (file.to_owned(), bytes.to_string()))
        .collect())
}

/// In whole pages. In floating point, as the kubelet computes it.
fn throttled(request: i64, most: i64, factor: f64) -> i64 {
    let page = i64::try_from(rustix::param::page_size()).unwrap_or(4096);
    let bytes = request as f64 + (most as f64 - request as f64) * factor;
    (bytes / page as f64).floor() as i64 * page
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(protect_requests: bool) -> NodeSettings {
        NodeSettings {
            cgroup_v2: true,
            allocatable_memory: 10 << 30,
            memory_qos: Some(ContainerMemoryQos {
                protect_requests,
                ..ContainerMemoryQos::default()
            }),
            ..NodeSettings::default()
        }
    }

    /// For a container of a pod with these requests and limits of memory, `-` for none.
    fn of(node: &NodeSettings, request: &str, limit: &str) -> Vec<String> {
        let list = |memory: &str| match memory {
            "-" => json!({}),
            memory => json!({ "memory": memory, "cpu": "1" }),
        };
        let resources: Value = json!({ "requests": list(request), "limits": list(limit) });
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p" },
            "spec": { "containers": [{ "name": "a", "resources": resources }] },
        }))
        .unwrap();
        let settings = memory_qos(node, &pod, &pod.spec.as_ref().unwrap().containers[0]).unwrap();
        settings
            .into_iter()
            .map(|(file, bytes)| format!("{file}={bytes}"))
            .collect()
    }

    #[test]
    fn memory_is_protected_and_throttled() {
        let page = rustix::param::page_size() as u64;
        let pages = |bytes: f64| format!("memory.high={}", (bytes / page as f64).floor() as u64 * page);
        let (mib, gib) = ((1_u64 << 20) as f64, (1_u64 << 30) as f64);
        let zero = ["memory.min=0".to_owned(), "memory.low=0".to_owned()];
        let low = |mib: u64| format!("memory.low={}", mib << 20);
        let cases = [
            // protect, request, limit
            (true, "100Mi", "100Mi", vec!["memory.min=104857600".to_owned()]),
            (false, "100Mi", "100Mi", zero.to_vec()),
            (true, "100Mi", "200Mi", vec![low(100), pages(190.0 * mib)]),
            (
                false,
                "100Mi",
                "200Mi",
                [&zero[..], &[pages(190.0 * mib)]].concat(),
            ),
            (true, "1Gi", "-", vec![low(1024), pages(gib + 9.0 * gib * 0.9)]),
            // Without memory on the node to compute with.
            (true, "-", "-", zero.to_vec()),
        ];
        for (protect, request, limit, expected) in cases {
            assert_eq!(
                of(&node(protect), request, limit),
                expected,
                "{protect} {request} {limit}"
            );
        }
        // As measured: 4015952 KiB without 300 MiB.
        let mut measured = node(true);
        measured.allocatable_memory = 3_625_795_584;
        measured.memory_qos = Some(ContainerMemoryQos {
            protect_requests: true,
            throttling_factor: 0.8,
            all_pods: Some(3_797_762_048),
        });
        let high = of(&measured, "32Mi", "-").pop().unwrap();
        assert!(format!("{high:?}").contains("3044917248"), "{high:?}");
        let mut small = node(true);
        small.allocatable_memory = 0;
        assert_eq!(of(&small, "1Gi", "-"), [low(1024)]);
        small.allocatable_memory = 1 << 20;
        assert_eq!(of(&small, "1Gi", "-"), [low(1024)], "less than the request");
        let mut off = node(true);
        off.cgroup_v2 = false;
        assert!(of(&off, "1Gi", "2Gi").is_empty());
        off = node(true);
        off.memory_qos = None;
        assert!(of(&off, "1Gi", "2Gi").is_empty());
    }
}
