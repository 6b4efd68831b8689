//! The services in the environment of containers.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;

/// Lists the cluster's services for the environment of containers. Answers to the kubelet's `serviceLister` and
/// `serviceHasSynced`. Each call is fast: it reads from a cache.
pub trait Services: Send + Sync {
    /// Whether all services were listed once. Before that, no container of a pod from an API server is started, since
    /// it might lack `KUBERNETES_SERVICE_HOST`.
    fn has_synced(&self) -> bool;

    /// The service with this name.
    fn service(&self, namespace: &str, name: &str) -> Option<Arc<Service>>;

    /// The services of a namespace, sorted by name.
    fn in_namespace(&self, namespace: &str) -> Vec<Arc<Service>>;
}

/// No services, and always synced: for an agent without an API server.
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
