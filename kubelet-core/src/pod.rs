//! The identity of a pod: its UID, its key, and the source in its annotations.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};

use crate::annotations;

/// A pod's UID: the key of all state that is kept of a pod.
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

    /// Whether the pod has no UID. A pod from a source always has one.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// UIDs that share their text are equal.
impl PartialEq for PodUid {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

/// Equal to the hash of the text, as [`Borrow`] requires.
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

/// A pod's namespace and name. Different pods can have the same key one after the other, so a key is not an identity.
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
    /// Every container has CPU and memory limits, and equal requests.
    Guaranteed,
    /// Some container requests or limits CPU or memory.
    Burstable,
    /// No container requests anything.
    BestEffort,
}

impl QosClass {
    /// The value in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            QosClass::Guaranteed => "Guaranteed",
            QosClass::Burstable => "Burstable",
            QosClass::BestEffort => "BestEffort",
        }
    }
}

/// The lowest priority of a system pod (`scheduling.SystemCriticalPriority`).
pub(crate) const SYSTEM_CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// Helpers of the kubelet's `types` and `container` packages, as methods of the API type.
pub trait PodExt {
    /// The pod's UID; empty if it has none.
    fn uid(&self) -> PodUid;
    /// The pod's UID as text, without allocating; empty if it has none.
    fn uid_str(&self) -> &str;
    /// The pod's namespace and name.
    fn key(&self) -> PodKey;
    /// The value of an annotation.
    fn annotation(&self, key: &str) -> Option<&str>;
    /// The name of its source (annotation `kubernetes.io/config.source`).
    fn source(&self) -> Option<&str>;
    /// Whether this is a static pod: it has a source other than the API server (`types.IsStaticPod`).
    fn is_static(&self) -> bool;
    /// Whether this is a mirror pod (`types.IsMirrorPod`).
    fn is_mirror(&self) -> bool;
    /// Whether the node needs this pod to work: a static pod, a mirror pod, or a pod with a system priority
    /// (`types.IsCriticalPod`).
    fn is_critical(&self) -> bool;
    /// Whether it is being deleted (`metadata.deletionTimestamp`).
    fn is_deleting(&self) -> bool;
    /// Whether the phase in its status is terminal: `Succeeded` or `Failed`.
    fn is_terminal_phase(&self) -> bool;
    /// Whether it shares the host's network.
    fn host_network(&self) -> bool;
    /// `spec.restartPolicy`, `Always` where unset.
    fn restart_policy(&self) -> &str;
    /// Init containers, then regular ones, in the kubelet's order; without ephemeral containers.
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

    fn is_critical(&self) -> bool {
        let priority = self.spec.as_ref().and_then(|spec| spec.priority);
        self.is_static()
            || self.is_mirror()
            || priority.is_some_and(|priority| priority >= SYSTEM_CRITICAL_PRIORITY)
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

/// Whether the status has a terminal phase.
pub(crate) fn has_terminal_phase(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// Whether all its containers are being removed, so that they restart in place.
pub(crate) fn restarts_all_containers(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|condition| condition.type_ == "AllContainersRestarting" && condition.status == "True")
}
