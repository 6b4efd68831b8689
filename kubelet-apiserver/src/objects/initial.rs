//! The initial objects of a cluster and of a namespace.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::super::resource::Resource;
use super::metadata;

/// The namespaces that every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The settings of what each namespace has from the start.
#[derive(Debug)]
pub(crate) struct NamespaceDefaults {
    /// The certificate in `kube-root-ca.crt`. Empty if the server speaks plain HTTP; the key exists nevertheless.
    pub(crate) authority: String,
    /// Whether pods get a token of the account `default` without asking for it.
    pub(crate) account_tokens: bool,
}

/// The initial namespaces, each with its initial objects, without `resourceVersion` and in the order to store them.
pub(crate) fn initial_objects(
    defaults: &NamespaceDefaults,
    now: Timestamp,
    rng: &mut fastrand::Rng,
) -> Vec<(&'static Resource, Value)> {
    let mut objects = Vec::new();
    for name in NAMESPACES {
        let namespace = json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        });
        objects.extend(born("namespaces", namespace, now, rng));
        objects.extend(beside_namespace(name, defaults, now, rng));
    }
    objects
}

/// The objects that controllers create in a new namespace: the `default` service account and `kube-root-ca.crt`,
/// without `resourceVersion`.
pub(crate) fn beside_namespace(
    namespace: &str,
    defaults: &NamespaceDefaults,
    now: Timestamp,
    rng: &mut fastrand::Rng,
) -> Vec<(&'static Resource, Value)> {
    let authority = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "kube-root-ca.crt",
            "namespace": namespace,
            "annotations": {
                "kubernetes.io/description": "Contains a CA bundle that can be used to verify the kube-apiserver when \
                     using internal endpoints such as the internal service IP or kubernetes.default.svc. No other \
                     usage is guaranteed across distributions of Kubernetes clusters.",
            },
        },
        "data": {"ca.crt": defaults.authority},
    });
    let mut account = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "default", "namespace": namespace},
    });
    if !defaults.account_tokens {
        account["automountServiceAccountToken"] = json!(false);
    }
    [("configmaps", authority), ("serviceaccounts", account)]
        .into_iter()
        .filter_map(|(plural, object)| born(plural, object, now, rng))
        .collect()
}

fn born(
    plural: &str,
    mut object: Value,
    now: Timestamp,
    rng: &mut fastrand::Rng,
) -> Option<(&'static Resource, Value)> {
    object["metadata"]["uid"] = json!(metadata::uid(rng));
    object["metadata"]["creationTimestamp"] = json!(metadata::time(now));
    Some((Resource::find("", "v1", plural)?, object))
}
