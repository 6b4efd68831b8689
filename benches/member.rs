//! The node that an agent under test is, and the configuration that it is given.

use k8s_openapi::api::core::v1::Node;
use kubelet_testing::ApiServer;

pub(crate) const NODE: &str = "node-1";

/// The text of a `KubeletConfiguration` for a runtime at this endpoint, on a host whose cgroups are not the agent's.
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
"
    )
}

/// Whether the API server has the node as ready.
pub(crate) fn is_ready(server: &ApiServer) -> bool {
    let conditions = server.get::<Node>("", NODE).unwrap();
    let conditions = conditions.and_then(|node| node.status?.conditions);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
