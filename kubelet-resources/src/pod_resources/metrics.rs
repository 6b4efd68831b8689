//! The metrics of the pod-resources API. Without a recorder they cost nothing.

use ::metrics::counter;

/// A call of the pod-resources API.
#[derive(Clone, Copy)]
pub(super) enum PodResourcesCall {
    List,
    GetAllocatable,
    Get,
}

pub(super) fn count_pod_resources(call: PodResourcesCall) {
    counter!("kubelet_pod_resources_endpoint_requests_total", "server_api_version" => "v1").increment(1);
    let of_call = match call {
        PodResourcesCall::List => "kubelet_pod_resources_endpoint_requests_list",
        PodResourcesCall::GetAllocatable => "kubelet_pod_resources_endpoint_requests_get_allocatable",
        PodResourcesCall::Get => "kubelet_pod_resources_endpoint_requests_get",
    };
    counter!(of_call, "server_api_version" => "v1").increment(1);
}

pub(super) fn count_pod_resources_v1alpha1() {
    counter!("kubelet_pod_resources_endpoint_requests_total", "server_api_version" => "v1alpha1")
        .increment(1);
}

pub(super) fn count_pod_resources_get_error() {
    counter!("kubelet_pod_resources_endpoint_errors_get", "server_api_version" => "v1").increment(1);
}
