//! Who a pod is: its UID, its key, and what its annotations say of where it came from.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};

use crate::annotations;

/// A pod's UID: what everything that is kept of a pod is keyed by.
///
/// For a static pod it is the UID its source gave it, not that of its mirror on the API server.
/// Cloning is cheap.
#[derive(Clone, Eq, PartialOrd, Ord)]
pub struct PodUid(Arc<str>);

impl PodUid {
    /// The UID with this text.
    pub fn new(uid: impl AsRef<str>) -> Self {
        Self(Arc::from(uid.as_ref()))
    }

    /// The UID's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the pod has no UID. No pod that came through a source is without one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// UIDs that share their text need no look at it.
impl PartialEq for PodUid {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

/// As the text does: [`Borrow`] promises it.
impl Hash for PodUid {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl From<&str> for PodUid {
    fn from(uid: &str) -> Self {
        Self::new(uid)
    }
}

impl From<String> for PodUid {
    fn from(uid: String) -> Self {
        Self(Arc::from(uid))
    }
}

impl Borrow<str> for PodUid {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// A pod's namespace and name. Two pods may bear one key one after the other: a key is a turn to wait for,
/// never an identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodKey {
    /// The pod's namespace.
    pub namespace: Arc<str>,
    /// The pod's name.
    pub name: Arc<str>,
}

impl PodKey {
    /// The key of the pod `name` in `namespace`.
    pub fn new(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        Self {
            namespace: Arc::from(namespace.as_ref()),
            name: Arc::from(name.as_ref()),
        }
    }

    /// The kubelet's *pod full name*, `<name>_<namespace>` (`container.GetPodFullName`).
    pub fn full_name(&self) -> String {
        format!("{}_{}", self.name, self.namespace)
    }
}

/// `<namespace>/<name>`, as the kubelet logs pods.
impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A pod's quality of service class (`v1helper/qos.GetPodQOS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QosClass {
    /// Every container bounds its CPU and memory by equal requests and limits.
    Guaranteed,
    /// Some container requests or limits CPU or memory.
    Burstable,
    /// No container asks for anything.
    BestEffort,
}

impl QosClass {
    /// The API's word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            QosClass::Guaranteed => "Guaranteed",
            QosClass::Burstable => "Burstable",
            QosClass::BestEffort => "BestEffort",
        }
    }
}

/// What the kubelet's `types` and `container` packages ask of a pod, as methods of the API type.
pub trait PodExt {
    /// The pod's UID; empty if it has none.
    fn uid(&self) -> PodUid;
    /// The pod's UID as text, without allocating; empty if it has none.
    fn uid_str(&self) -> &str;
    /// The pod's namespace and name.
    fn key(&self) -> PodKey;
    /// The value of an annotation.
    fn annotation(&self, key: &str) -> Option<&str>;
    /// The name of the source it came from (annotation `kubernetes.io/config.source`).
    fn source(&self) -> Option<&str>;
    /// Whether this is a static pod: its source is known and is not the API server (`types.IsStaticPod`).
    fn is_static(&self) -> bool;
    /// Whether this is the API server's image of a static pod (`types.IsMirrorPod`).
    fn is_mirror(&self) -> bool;
    /// Whether it is to be deleted (`metadata.deletionTimestamp`).
    fn is_deleting(&self) -> bool;
    /// The phase that its status tells is one that never leaves: `Succeeded` or `Failed`.
    fn is_terminal_phase(&self) -> bool;
    /// Whether it shares the host's network.
    fn host_network(&self) -> bool;
    /// `spec.restartPolicy`, `Always` where unset.
    fn restart_policy(&self) -> &str;
    /// Init containers, then regular ones, as the kubelet visits them; not the ephemeral ones.
    fn all_containers(&self) -> Box<dyn Iterator<Item = &Container> + '_>;
    /// `spec.terminationGracePeriodSeconds`, 30 where unset.
    fn termination_grace_period_seconds(&self) -> i64;
}

impl PodExt for Pod {
    fn uid(&self) -> PodUid {
        PodUid::new(self.uid_str())
    }

    fn uid_str(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    fn key(&self) -> PodKey {
        PodKey::new(
            self.metadata.namespace.as_deref().unwrap_or_default(),
            self.metadata.name.as_deref().unwrap_or_default(),
        )
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    fn source(&self) -> Option<&str> {
        self.annotation(annotations::CONFIG_SOURCE)
    }

    fn is_static(&self) -> bool {
        self.source()
            .is_some_and(|source| source != annotations::API_SOURCE)
    }

    fn is_mirror(&self) -> bool {
        self.annotation(annotations::CONFIG_MIRROR).is_some()
    }

    fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    fn is_terminal_phase(&self) -> bool {
        self.status.as_ref().is_some_and(has_terminal_phase)
    }

    fn host_network(&self) -> bool {
        self.spec
            .as_ref()
            .and_then(|spec| spec.host_network)
            .unwrap_or(false)
    }

    fn restart_policy(&self) -> &str {
        self.spec
            .as_ref()
            .and_then(|spec| spec.restart_policy.as_deref())
            .unwrap_or("Always")
    }

    fn all_containers(&self) -> Box<dyn Iterator<Item = &Container> + '_> {
        Box::new(
            self.spec
                .iter()
                .flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers)),
        )
    }

    fn termination_grace_period_seconds(&self) -> i64 {
        self.spec
            .as_ref()
            .and_then(|spec| spec.termination_grace_period_seconds)
            .unwrap_or(30)
    }
}

/// Whether the status says that the pod has ended for good.
pub(crate) fn has_terminal_phase(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// Whether all its containers are being removed, to start over in place.
pub(crate) fn restarts_all_containers(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|condition| condition.type_ == "AllContainersRestarting" && condition.status == "True")
}
