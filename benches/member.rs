//! The node of an agent under test, and the agent's configuration.

use k8s_openapi::api::core::v1::Node;
use kubelet_testing::ApiServer;

pub(crate) const NODE: &str = "node-1";

/// A `KubeletConfiguration` for a runtime at this endpoint. The agent does not manage the host's cgroups, and removes no image
/// when the disk is full.
pub(crate) fn configuration(endpoint: &str, pod_logs_dir: &str) -> String {
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: {endpoint}
podLogsDir: {pod_logs_dir}
healthzPort: 0
failCgroupV1: false
failSwapOn: false
cgroupsPerQOS: false
enforceNodeAllocatable: []
imageGCHighThresholdPercent: 100
"
    )
}

/// Whether the node is ready in the API server.
pub(crate) fn is_ready(server: &ApiServer) -> bool {
    let conditions = server.get::<Node>("", NODE).unwrap();
    let conditions = conditions.and_then(|node| node.status?.conditions);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
