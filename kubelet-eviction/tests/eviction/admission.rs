//! Which pods are admitted under pressure.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{PodAdmitAttributes, PodAdmitHandler, Rejection};
use kubelet_eviction::{NodePressure, PressureCondition};
use serde_json::{Value, json};

use super::node::pod;

async fn admit(conditions: &[PressureCondition], pod: &Arc<Pod>) -> Result<(), Rejection> {
    let pressure = NodePressure::new();
    pressure.set(conditions.to_vec());
    pressure.admit(&PodAdmitAttributes::new(pod, &[])).await
}

#[tokio::test]
async fn pressure_decides_which_pods_are_admitted() {
    use PressureCondition::{Disk, Memory, Pid};
    let containers = |requests: Value| json!([{"name": "c", "resources": {"requests": requests}}]);
    let tolerates =
        |key: &str| json!({"tolerations": [{"key": key, "operator": "Exists", "effect": "NoSchedule"}]});
    let best_effort = pod("p", json!({}));
    let burstable = pod("p", json!({"containers": containers(json!({"cpu": "1"}))}));
    let critical = pod("p", json!({"priority": 2_000_000_000}));
    let tolerant = pod("p", tolerates("node.kubernetes.io/memory-pressure"));
    let of_disk = pod("p", tolerates("node.kubernetes.io/disk-pressure"));
    let cases: [(&[PressureCondition], &Arc<Pod>, Option<&str>); 12] = [
        (&[], &best_effort, None),
        (&[Memory], &best_effort, Some("[MemoryPressure]")),
        (&[Memory], &burstable, None),
        (&[Memory], &tolerant, None),
        (&[Memory], &of_disk, Some("[MemoryPressure]")),
        (&[Memory], &critical, None),
        (&[Disk], &best_effort, Some("[DiskPressure]")),
        (&[Disk], &burstable, Some("[DiskPressure]")),
        (&[Disk], &of_disk, Some("[DiskPressure]")),
        (&[Disk], &critical, None),
        (&[Pid], &burstable, Some("[PIDPressure]")),
        (&[Memory, Disk], &tolerant, Some("[MemoryPressure DiskPressure]")),
    ];
    for (conditions, pod, rejected) in cases {
        let expected = rejected
            .map(|conditions| Rejection::new("Evicted", format!("The node had condition: {conditions}. ")));
        assert_eq!(
            admit(conditions, pod).await.err(),
            expected,
            "{conditions:?} {:?}",
            pod.spec
        );
    }
}
