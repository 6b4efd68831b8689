//! Resizes that are impossible whatever the node's capacity (`podResizesAdmitHandler`).

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::resources::resizable_containers;
use super::state::AllocationState;
use crate::quantity::Amount;
use crate::runtime::ResizeRefusal;
use crate::{QosClass, Runtime, qos_class};

/// Why the pod cannot be resized from its allocation to its spec; `None` if only the node's capacity decides.
pub(super) fn refusal(
    state: &AllocationState,
    runtime: &dyn Runtime,
    pod: &Arc<Pod>,
) -> Option<ResizeRefusal> {
    let settings = state.settings();
    if !settings.supported {
        return Some(ResizeRefusal::unsupported());
    }
    let allocated = state.update_pod_from_allocation(pod);
    if let Some(refusal) = runtime.refuses_resize(pod, &allocated) {
        return Some(refusal);
    }
    if qos_class(pod) != QosClass::Guaranteed {
        return None;
    }
    // `guaranteedPodResourceResizeRequired`: limits equal requests.
    let other_request = |resource| {
        let requests =
            |pod| resizable_containers(pod, settings).map(|container| request(container, resource));
        requests(pod).ne(requests(&allocated))
    };
    if settings.static_cpu_manager && other_request("cpu") {
        return Some(ResizeRefusal::new(
            "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"",
            "guaranteed_pod_cpu_manager_static_policy",
        ));
    }
    if settings.static_memory_manager && other_request("memory") {
        return Some(ResizeRefusal::new(
            "Resize is infeasible for Guaranteed Pods alongside Memory Manager policy \"Static\"",
            "guaranteed_pod_memory_manager_static_policy",
        ));
    }
    None
}

fn request(container: &Container, resource: &str) -> Amount {
    let requests = container
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.as_ref());
    let quantity = requests.and_then(|requests| requests.get(resource));
    quantity
        .and_then(|quantity| Amount::try_from(quantity).ok())
        .unwrap_or_default()
}
