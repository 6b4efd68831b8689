//! The services that containers are told of.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;

/// Tells of the cluster's services, which containers find in their environment. Answers to the kubelet's `serviceLister`
/// and `serviceHasSynced`. Each call is quick: what was seen last counts.
pub trait Services: Send + Sync {
    /// Whether all services were seen once. Until then no container of a pod from an API server is started, since it
    /// might miss `KUBERNETES_SERVICE_HOST`.
    fn has_synced(&self) -> bool;

    /// The service of this name.
    fn service(&self, namespace: &str, name: &str) -> Option<Arc<Service>>;

    /// The services of a namespace, in the order of their names.
    fn in_namespace(&self, namespace: &str) -> Vec<Arc<Service>>;
}

/// There are none, and there is nobody to wait for: for an agent without an API server.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoServices;

impl Services for NoServices {
    fn has_synced(&self) -> bool {
        true
    }

    fn service(&self, _: &str, _: &str) -> Option<Arc<Service>> {
        None
    }

    fn in_namespace(&self, _: &str) -> Vec<Arc<Service>> {
        Vec::new()
    }
}
