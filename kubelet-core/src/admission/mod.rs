//! Admission: whether a new pod may run on this node.
//!
//! A chain of small handlers is called once for each pod, in the order of creation. If a handler rejects the pod, its
//! status becomes `Failed` with the handler's reason and message. Answers to `pkg/kubelet/lifecycle`.

mod app_armor;
mod declared_features;
mod failure;
mod fit;
mod host_ports;
mod node_affinity;
mod pod_features;
mod predicates;
mod preemption;
mod requests;
mod sysctls;
mod taints;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodStatus as ApiPodStatus};

use crate::{Event, EventRecorder, EventType, PodExt, PodStatusReporter};

pub use app_armor::AppArmorAdmitHandler;
pub use declared_features::DeclaredFeatures;
pub use failure::{InsufficientResource, PredicateFailure};
pub use pod_features::PodFeaturesAdmitHandler;
pub use predicates::{AdmissionFailureHandler, PredicateAdmitHandler};
pub use preemption::CriticalPodAdmissionHandler;
pub(crate) use requests::{held_by, pod_requests};
pub use requests::{is_backed_by_claim, is_extended_resource};
pub use sysctls::{SysctlAllowlist, SysctlPatternError, normalize_sysctl_name, safe_sysctls};
pub use taints::tolerates;

/// Decides whether a pod may run (`lifecycle.PodAdmitHandler`).
#[async_trait]
pub trait PodAdmitHandler: Send + Sync {
    /// Admits the pod, or returns why not. The sync loop waits for it: it must be fast, or have its own time limit.
    ///
    /// # Cancel safety
    ///
    /// May be dropped when the agent stops.
    async fn admit(&self, attributes: &PodAdmitAttributes<'_>) -> Result<(), Rejection>;
}

/// The input of an admission (`PodAdmitAttributes`).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PodAdmitAttributes<'a> {
    /// The pod to admit.
    pub pod: &'a Arc<Pod>,
    /// The pods that were admitted before and have not ended, with their allocated resources.
    pub other_pods: &'a [Arc<Pod>],
    /// The purpose of the admission.
    pub operation: Operation,
}

/// The purpose of an admission (`lifecycle.Operation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// The pod is new.
    Add,
    /// A running pod is to get the resources that its spec requests now. If it is rejected, the resize waits.
    Resize,
}

impl<'a> PodAdmitAttributes<'a> {
    /// Admission of this new pod beside these others.
    pub fn new(pod: &'a Arc<Pod>, other_pods: &'a [Arc<Pod>]) -> Self {
        Self {
            pod,
            other_pods,
            operation: Operation::Add,
        }
    }

    /// The same for another operation.
    pub fn with_operation(mut self, operation: Operation) -> Self {
        self.operation = operation;
        self
    }
}

/// Why a pod is rejected (`PodAdmitResult`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The reason, e.g. `OutOfcpu`, `NodeAffinity`.
    pub reason: String,
    /// The message.
    pub message: String,
}

impl Rejection {
    /// A rejection with this reason and message.
    pub fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            message: message.into(),
        }
    }

    /// A rejection because of an unexpected error.
    pub fn unexpected(message: impl Into<String>) -> Self {
        Self::new(UNEXPECTED_ADMISSION_ERROR, message)
    }

    /// The status of the rejected pod (`rejectPod`).
    pub fn pod_status(&self, pod: &Pod) -> ApiPodStatus {
        ApiPodStatus {
            phase: Some("Failed".to_owned()),
            reason: Some(self.reason.clone()),
            message: Some(format!("Pod was rejected: {}", self.message)),
            qos_class: Some(crate::qos_class(pod).as_str().to_owned()),
            ..ApiPodStatus::default()
        }
    }

    /// Rejects the pod: counts, records and reports it.
    pub(crate) fn tell(
        &self,
        pod: &Arc<Pod>,
        recorder: &dyn EventRecorder,
        statuses: &dyn PodStatusReporter,
    ) {
        let Self { reason, message } = self;
        tracing::info!(pod = %pod.key(), uid = pod.uid_str(), reason, "Pod admission denied: {message}");
        self.count();
        recorder.record(Event::about(pod, EventType::Warning, reason, message.clone()));
        statuses.set_pod_status(pod, self.pod_status(pod));
    }

    /// Counts the rejection. Unknown reasons are counted together, to bound the number of labels.
    fn count(&self) {
        metrics::counter!("kubelet_admission_rejections_total", "reason" => counted_as(&self.reason))
            .increment(1);
    }
}

/// `recordAdmissionRejection`
fn counted_as(reason: &str) -> &'static str {
    let known = KNOWN_REASONS.into_iter().find(|known| *known == reason);
    known.unwrap_or(match reason.starts_with(OUT_OF) {
        true => "OutOfExtendedResources",
        false => "Other",
    })
}

/// `UnexpectedAdmissionError`
const UNEXPECTED_ADMISSION_ERROR: &str = "UnexpectedAdmissionError";
/// `InsufficientResourcePrefix`
const OUT_OF: &str = "OutOf";

/// `admissionRejectionReasons`
const KNOWN_REASONS: [&str; 21] = [
    "AppArmor",
    "PodOSSelectorNodeLabelDoesNotMatch",
    "PodOSNotSupported",
    "InvalidNodeInfo",
    "InitContainerRestartPolicyForbidden",
    "SupplementalGroupsPolicyNotSupported",
    UNEXPECTED_ADMISSION_ERROR,
    "UnknownReason",
    "UnexpectedPredicateFailureType",
    "OutOfcpu",
    "OutOfmemory",
    "OutOfephemeral-storage",
    "OutOfpods",
    "PodLevelResourcesNotSupported",
    "PodFeatureUnsupported",
    "node(s) had taints that the pod didn't tolerate",
    "Evicted",
    "SysctlForbidden",
    "TopologyAffinityError",
    "NodeShutdown",
    "VolumeAttachmentLimitExceeded",
];

/// The chain of handlers. Empty, it admits every pod. Cheap to clone.
#[derive(Clone, Default)]
pub struct Admission {
    handlers: Vec<Arc<dyn PodAdmitHandler>>,
}

impl Admission {
    /// An empty chain: it admits every pod.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a handler at the end.
    pub fn with(mut self, handler: Arc<dyn PodAdmitHandler>) -> Self {
        self.handlers.push(handler);
        self
    }

    /// Whether the chain is empty.
    pub fn is_empty(&self) -> bool {
        self.handlers.is_empty()
    }

    /// Calls each handler until one rejects the pod.
    pub async fn admit(&self, attributes: &PodAdmitAttributes<'_>) -> Result<(), Rejection> {
        for handler in &self.handlers {
            handler.admit(attributes).await?;
        }
        Ok(())
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admission")
            .field("handlers", &self.handlers.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Refuses(&'static str);

    #[async_trait]
    impl PodAdmitHandler for Refuses {
        async fn admit(&self, attributes: &PodAdmitAttributes<'_>) -> Result<(), Rejection> {
            match attributes.pod.metadata.name.as_deref() == Some(self.0) {
                true => Err(Rejection::new(self.0, "not that one")),
                false => Ok(()),
            }
        }
    }

    fn pod(name: &str) -> Arc<Pod> {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.into());
        Arc::new(pod)
    }

    #[tokio::test]
    async fn the_first_that_refuses_is_heard() {
        let admission = Admission::new()
            .with(Arc::new(Refuses("a")))
            .with(Arc::new(Refuses("b")));
        for (name, expected) in [("a", Some("a")), ("b", Some("b")), ("c", None)] {
            let admitted = admission.admit(&PodAdmitAttributes::new(&pod(name), &[])).await;
            assert_eq!(
                admitted.err().map(|rejection| rejection.reason),
                expected.map(str::to_owned)
            );
        }
    }

    #[test]
    fn a_rejected_pod_has_failed_and_says_why() {
        let status = Rejection::new("OutOfcpu", "too much").pod_status(&pod("a"));
        assert_eq!(status.phase.as_deref(), Some("Failed"));
        assert_eq!(status.reason.as_deref(), Some("OutOfcpu"));
        assert_eq!(status.message.as_deref(), Some("Pod was rejected: too much"));
        assert_eq!(status.qos_class.as_deref(), Some("BestEffort"));
    }

    #[test]
    fn reasons_are_counted_under_a_few_names() {
        for (reason, counted) in [
            ("OutOfcpu", "OutOfcpu"),
            ("OutOfexample.com/gpu", "OutOfExtendedResources"),
            ("SysctlForbidden", "SysctlForbidden"),
            ("NodeAffinity", "Other"),
            ("", "Other"),
        ] {
            assert_eq!(counted_as(reason), counted);
        }
    }
}
