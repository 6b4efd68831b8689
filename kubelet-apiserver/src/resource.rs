//! [`Resource`]: the table of the kinds that are served.

use serde_json::{Value, json};

/// One served resource.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Resource {
    /// The API group; empty for the core group.
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    /// The path's segment: `pods`.
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
    pub(crate) short_names: &'static [&'static str],
    /// The sub-resources of an object: `status`, `token`, `approval`…
    pub(crate) subresources: &'static [&'static str],
}

// What nodes serve needs TLS.
#[cfg(feature = "tls")]
const NODE_SUBRESOURCES: &[&str] = &["status", "proxy"];
#[cfg(not(feature = "tls"))]
const NODE_SUBRESOURCES: &[&str] = &["status"];
#[cfg(feature = "tls")]
const POD_SUBRESOURCES: &[&str] = &[
    "status",
    "binding",
    "eviction",
    "ephemeralcontainers",
    "resize",
    "log",
    "exec",
    "attach",
    "portforward",
    "proxy",
];
#[cfg(not(feature = "tls"))]
const POD_SUBRESOURCES: &[&str] = &["status", "binding", "eviction", "ephemeralcontainers", "resize"];

/// All resources whose objects are stored.
pub(crate) static RESOURCES: &[Resource] = &[
    core(
        "namespaces",
        "namespace",
        "Namespace",
        false,
        &["ns"],
        &["status"],
    ),
    core("nodes", "node", "Node", false, &["no"], NODE_SUBRESOURCES),
    core("pods", "pod", "Pod", true, &["po"], POD_SUBRESOURCES),
    core("events", "event", "Event", true, &["ev"], &[]),
    core("secrets", "secret", "Secret", true, &[], &[]),
    core("configmaps", "configmap", "ConfigMap", true, &["cm"], &[]),
    core("services", "service", "Service", true, &["svc"], &["status"]),
    core(
        "serviceaccounts",
        "serviceaccount",
        "ServiceAccount",
        true,
        &["sa"],
        &["token"],
    ),
    named("coordination.k8s.io", "leases", "lease", "Lease", true, &[], &[]),
    named("events.k8s.io", "events", "event", "Event", true, &["ev"], &[]),
    named(
        "node.k8s.io",
        "runtimeclasses",
        "runtimeclass",
        "RuntimeClass",
        false,
        &[],
        &[],
    ),
    named(
        "authentication.k8s.io",
        "tokenreviews",
        "tokenreview",
        "TokenReview",
        false,
        &[],
        &[],
    ),
    named(
        "authorization.k8s.io",
        "subjectaccessreviews",
        "subjectaccessreview",
        "SubjectAccessReview",
        false,
        &[],
        &[],
    ),
    named(
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
        "selfsubjectaccessreview",
        "SelfSubjectAccessReview",
        false,
        &[],
        &[],
    ),
    #[cfg(feature = "tls")]
    named(
        "certificates.k8s.io",
        "certificatesigningrequests",
        "certificatesigningrequest",
        "CertificateSigningRequest",
        false,
        &["csr"],
        &["approval", "status"],
    ),
    core(
        "persistentvolumeclaims",
        "persistentvolumeclaim",
        "PersistentVolumeClaim",
        true,
        &["pvc"],
        &["status"],
    ),
    core(
        "persistentvolumes",
        "persistentvolume",
        "PersistentVolume",
        false,
        &["pv"],
        &["status"],
    ),
    named(
        "storage.k8s.io",
        "storageclasses",
        "storageclass",
        "StorageClass",
        false,
        &["sc"],
        &[],
    ),
    named(
        "storage.k8s.io",
        "csidrivers",
        "csidriver",
        "CSIDriver",
        false,
        &[],
        &[],
    ),
    named(
        "storage.k8s.io",
        "csinodes",
        "csinode",
        "CSINode",
        false,
        &[],
        &[],
    ),
    named(
        "storage.k8s.io",
        "volumeattachments",
        "volumeattachment",
        "VolumeAttachment",
        false,
        &[],
        &["status"],
    ),
    named(
        "resource.k8s.io",
        "resourceclaims",
        "resourceclaim",
        "ResourceClaim",
        true,
        &[],
        &["status"],
    ),
    named(
        "resource.k8s.io",
        "resourceclaimtemplates",
        "resourceclaimtemplate",
        "ResourceClaimTemplate",
        true,
        &[],
        &[],
    ),
    named(
        "resource.k8s.io",
        "deviceclasses",
        "deviceclass",
        "DeviceClass",
        false,
        &[],
        &[],
    ),
    named(
        "resource.k8s.io",
        "resourceslices",
        "resourceslice",
        "ResourceSlice",
        false,
        &[],
        &[],
    ),
    beta(
        "certificates.k8s.io",
        "clustertrustbundles",
        "clustertrustbundle",
        "ClusterTrustBundle",
        false,
        &[],
    ),
    beta(
        "certificates.k8s.io",
        "podcertificaterequests",
        "podcertificaterequest",
        "PodCertificateRequest",
        true,
        &["status"],
    ),
];

/// The group of the usage of nodes and pods.
#[cfg(feature = "tls")]
pub(crate) const METRICS_GROUP: &str = "metrics.k8s.io";

/// The resources that metrics-server serves. Their objects are not stored.
#[cfg(feature = "tls")]
static METRICS: &[Resource] = &[
    beta(METRICS_GROUP, "nodes", "", "NodeMetrics", false, &[]),
    beta(METRICS_GROUP, "pods", "", "PodMetrics", true, &[]),
];

/// The resources that a server serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Served {
    /// Whether the usage of nodes and pods is among them.
    #[cfg(feature = "tls")]
    pub(crate) metrics: bool,
}

impl Served {
    pub(crate) fn resources(self) -> impl Iterator<Item = &'static Resource> {
        #[cfg(feature = "tls")]
        let metrics = METRICS.iter().filter(move |_| self.metrics);
        #[cfg(not(feature = "tls"))]
        let metrics = std::iter::empty();
        RESOURCES.iter().chain(metrics)
    }

    /// The resource served at `/apis/<group>/<version>/<plural>`, or `/api/<version>/<plural>`.
    pub(crate) fn find(self, group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
        self.resources()
            .find(|r| r.group == group && r.version == version && r.plural == plural)
    }
}

const fn core(
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    namespaced: bool,
    short_names: &'static [&'static str],
    subresources: &'static [&'static str],
) -> Resource {
    named("", plural, singular, kind, namespaced, short_names, subresources)
}

const fn named(
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    namespaced: bool,
    short_names: &'static [&'static str],
    subresources: &'static [&'static str],
) -> Resource {
    Resource {
        group,
        version: "v1",
        plural,
        singular,
        kind,
        namespaced,
        short_names,
        subresources,
    }
}

/// A resource of the version `v1beta1`.
const fn beta(
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    namespaced: bool,
    subresources: &'static [&'static str],
) -> Resource {
    Resource {
        version: "v1beta1",
        ..named(group, plural, singular, kind, namespaced, &[], subresources)
    }
}

impl Resource {
    /// The stored resource at `/apis/<group>/<version>/<plural>`, or `/api/<version>/<plural>`.
    pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
        Served::default().find(group, version, plural)
    }

    /// `v1`, `coordination.k8s.io/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The name in messages: `pods`, `leases.coordination.k8s.io`.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_string()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// The name in messages about invalid objects: `Pod`, `Lease.coordination.k8s.io`.
    pub(crate) fn qualified_kind(&self) -> String {
        if self.group.is_empty() {
            self.kind.to_string()
        } else {
            format!("{}.{}", self.kind, self.group)
        }
    }

    /// `Status.details` about one object, or about the resource when `name` is empty.
    pub(crate) fn details(&self, name: &str) -> Value {
        let mut details = json!({"kind": self.plural});
        if !name.is_empty() {
            details["name"] = json!(name);
        }
        if !self.group.is_empty() {
            details["group"] = json!(self.group);
        }
        details
    }
}
