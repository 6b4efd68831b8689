//! The admission handler that checks whether the pod fits the node.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Node, Pod};

use super::failure::PredicateFailure;
use super::fit::general_filter;
use super::{PodAdmitAttributes, PodAdmitHandler, Rejection};
use crate::deadline::within;
use crate::{NodeGetter, PodExt};

/// Tries to free resources for a pod that does not fit (`lifecycle.AdmissionFailureHandler`).
#[async_trait]
pub trait AdmissionFailureHandler: Send + Sync {
    /// Returns the remaining reasons; if there are none, the pod is admitted.
    ///
    /// # Errors
    ///
    /// Why no resources could be freed; the pod is rejected with `UnexpectedAdmissionError`.
    async fn handle_admission_failure(
        &self,
        attributes: &PodAdmitAttributes<'_>,
        failures: Vec<PredicateFailure>,
    ) -> Result<Vec<PredicateFailure>, String>;
}

/// Rejects pods that do not match the node or do not fit: operating system, supplemental groups, resources, node
/// affinity, node name, host ports, taints. Answers to `lifecycle.NewPredicateAdmitHandler`.
pub struct PredicateAdmitHandler {
    node: Arc<dyn NodeGetter>,
    on_failure: Option<Arc<dyn AdmissionFailureHandler>>,
}

/// The time limit for reading the node.
const NODE_DEADLINE: Duration = Duration::from_secs(5);

/// This agent's operating system, as Go names it (`runtime.GOOS`).
const OS: &str = match std::env::consts::OS.as_bytes() {
    b"macos" => "darwin",
    _ => std::env::consts::OS,
};

/// `kubernetes.io/os`
const OS_LABEL: &str = "kubernetes.io/os";

impl PredicateAdmitHandler {
    /// Checks pods against this node.
    pub fn new(node: Arc<dyn NodeGetter>) -> Self {
        Self {
            node,
            on_failure: None,
        }
    }

    /// Calls this handler for a pod that does not fit, before it is rejected.
    pub fn with_failure_handler(mut self, handler: Arc<dyn AdmissionFailureHandler>) -> Self {
        self.on_failure = Some(handler);
        self
    }

    /// Checks the predicates. If only labels of the cached node reject the pod, it checks again with the current node.
    async fn filter(
        &self,
        attributes: &PodAdmitAttributes<'_>,
        node: &Node,
    ) -> Result<Vec<PredicateFailure>, Rejection> {
        let PodAdmitAttributes { pod, other_pods, .. } = *attributes;
        let failures = general_filter(pod, other_pods, node).map_err(Rejection::unexpected)?;
        if failures != [PredicateFailure::NODE_AFFINITY] {
            return Ok(failures);
        }
        match within(
            "get node",
            Some(&pod.uid()),
            NODE_DEADLINE,
            self.node.fresh_node(),
        )
        .await
        {
            Ok(node) => general_filter(pod, other_pods, &node).map_err(Rejection::unexpected),
            Err(error) => {
                tracing::error!(pod = %pod.key(), uid = pod.uid_str(), %error, "Failed to synchronously fetch node info");
                Ok(failures)
            }
        }
    }
}

#[async_trait]
impl PodAdmitHandler for PredicateAdmitHandler {
    async fn admit(&self, attributes: &PodAdmitAttributes<'_>) -> Result<(), Rejection> {
        let pod = attributes.pod;
        let node = within("get node", Some(&pod.uid()), NODE_DEADLINE, self.node.node()).await;
        let node = node.map_err(|error| {
            tracing::error!(pod = %pod.key(), uid = pod.uid_str(), %error, "Cannot get Node info");
            Rejection::new("InvalidNodeInfo", "Kubelet cannot get node info.")
        })?;
        // Reasons that preemption cannot fix come first.
        check_os(pod)?;
        check_supplemental_groups(pod, &node)?;
        let mut failures = self.filter(attributes, &node).await?;
        if let (false, Some(handler)) = (failures.is_empty(), &self.on_failure) {
            let remaining = handler.handle_admission_failure(attributes, failures).await;
            failures = remaining.map_err(|error| {
                let what = "Unexpected error while attempting to recover from admission failure";
                Rejection::unexpected(format!("{what}: {error}"))
            })?;
        }
        // Of several reasons, the first is reported.
        failures
            .first()
            .map_or(Ok(()), |failure| Err(failure.rejection()))
    }
}

/// The pod's OS label and its `spec.os` must match this agent's operating system, whatever label the node has.
fn check_os(pod: &Pod) -> Result<(), Rejection> {
    let label = pod
        .metadata
        .labels
        .as_ref()
        .and_then(|labels| labels.get(OS_LABEL));
    if label.is_some_and(|label| label != OS) {
        return Err(Rejection::new(
            "PodOSSelectorNodeLabelDoesNotMatch",
            format!("Failed to admit pod as the `{OS_LABEL}` label doesn't match node label"),
        ));
    }
    let os = pod.spec.as_ref().and_then(|spec| spec.os.as_ref());
    if os.is_some_and(|os| os.name != OS) {
        return Err(Rejection::new(
            "PodOSNotSupported",
            "Failed to admit pod as the OS field doesn't match node OS",
        ));
    }
    Ok(())
}

/// `Strict` requires a node that declares support for it.
fn check_supplemental_groups(pod: &Pod, node: &Node) -> Result<(), Rejection> {
    let context = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let policy = context.and_then(|context| context.supplemental_groups_policy.as_deref());
    let features = node.status.as_ref().and_then(|status| status.features.as_ref());
    let supported = features
        .and_then(|features| features.supplemental_groups_policy)
        .unwrap_or(false);
    match policy == Some("Strict") && !supported {
        true => Err(Rejection::new(
            "SupplementalGroupsPolicyNotSupported",
            "SupplementalGroupsPolicy=Strict is not supported in this node",
        )),
        false => Ok(()),
    }
}

crate::impl_debug!(PredicateAdmitHandler);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Result;
    use serde_json::{Value, json};

    /// What is known of the node, and what is true; `None`: nobody answers.
    struct Known {
        cached: Option<Value>,
        fresh: Option<Value>,
    }

    async fn answer(node: &Option<Value>) -> Result<Arc<Node>> {
        match node {
            Some(node) => Ok(Arc::new(serde_json::from_value(node.clone()).unwrap())),
            None => std::future::pending().await,
        }
    }

    #[async_trait]
    impl NodeGetter for Known {
        async fn node(&self) -> Result<Arc<Node>> {
            answer(&self.cached).await
        }
        async fn fresh_node(&self) -> Result<Arc<Node>> {
            answer(&self.fresh).await
        }
    }

    fn node(labels: Value) -> Option<Value> {
        let status = json!({"allocatable": {"pods": "10", "cpu": "1"}});
        Some(json!({"metadata": {"name": "n", "labels": labels}, "status": status}))
    }

    fn pod(metadata: Value, mut spec: Value) -> Arc<Pod> {
        spec["containers"] = json!([]);
        Arc::new(serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap())
    }

    async fn reason(known: Known, pod: Arc<Pod>) -> Option<String> {
        let handler = PredicateAdmitHandler::new(Arc::new(known));
        let admitted = handler.admit(&PodAdmitAttributes::new(&pod, &[])).await;
        admitted.err().map(|rejection| rejection.reason)
    }

    #[tokio::test(start_paused = true)]
    async fn the_operating_system_must_be_this_ones() {
        let cases = [
            (json!({}), json!({}), None),
            (
                json!({"labels": {OS_LABEL: OS}}),
                json!({"os": {"name": OS}}),
                None,
            ),
            (
                json!({"labels": {OS_LABEL: "plan9"}}),
                json!({}),
                Some("PodOSSelectorNodeLabelDoesNotMatch"),
            ),
            (
                json!({}),
                json!({"os": {"name": "plan9"}}),
                Some("PodOSNotSupported"),
            ),
        ];
        for (metadata, spec, expected) in cases {
            let known = Known {
                cached: node(json!({})),
                fresh: None,
            };
            let got = reason(known, pod(metadata, spec)).await;
            assert_eq!(got.as_deref(), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn strict_supplemental_groups_need_a_node_that_can() {
        for (policy, supported, expected) in [
            ("Strict", false, Some("SupplementalGroupsPolicyNotSupported")),
            ("Strict", true, None),
            ("Merge", false, None),
        ] {
            let mut cached = node(json!({})).unwrap();
            cached["status"]["features"] = json!({"supplementalGroupsPolicy": supported});
            let known = Known {
                cached: Some(cached),
                fresh: None,
            };
            let spec = json!({"securityContext": {"supplementalGroupsPolicy": policy}});
            assert_eq!(reason(known, pod(json!({}), spec)).await.as_deref(), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn labels_that_do_not_match_are_asked_for_once_more() {
        let wanting = || pod(json!({}), json!({"nodeSelector": {"zone": "a"}}));
        let (old, new) = (|| node(json!({})), || node(json!({"zone": "a"})));
        let known = |cached, fresh| Known { cached, fresh };
        assert_eq!(reason(known(old(), new()), wanting()).await, None);
        assert_eq!(reason(known(new(), old()), wanting()).await, None);
        let affinity = Some("NodeAffinity".to_owned());
        assert_eq!(reason(known(old(), old()), wanting()).await, affinity);
        assert_eq!(reason(known(old(), None), wanting()).await, affinity);
        // Something else is in the way as well: newer labels would not help.
        let named = pod(
            json!({}),
            json!({"nodeSelector": {"zone": "a"}, "nodeName": "other"}),
        );
        assert_eq!(reason(known(old(), new()), named).await, affinity);
        let unknown = reason(known(None, None), wanting()).await;
        assert_eq!(unknown.as_deref(), Some("InvalidNodeInfo"));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_done_about_a_failure_decides() {
        struct Answers(Result<Vec<PredicateFailure>, String>);
        #[async_trait]
        impl AdmissionFailureHandler for Answers {
            async fn handle_admission_failure(
                &self,
                _: &PodAdmitAttributes<'_>,
                failures: Vec<PredicateFailure>,
            ) -> Result<Vec<PredicateFailure>, String> {
                assert_eq!(failures, [PredicateFailure::NODE_NAME]);
                self.0.clone()
            }
        }
        for (answer, expected) in [
            (Ok(vec![]), None),
            (Ok(vec![PredicateFailure::NODE_PORTS]), Some("NodePorts")),
            (Err("no".to_owned()), Some("UnexpectedAdmissionError")),
        ] {
            let known = Known {
                cached: node(json!({})),
                fresh: None,
            };
            let handler = PredicateAdmitHandler::new(Arc::new(known));
            let handler = handler.with_failure_handler(Arc::new(Answers(answer)));
            let other = pod(json!({}), json!({"nodeName": "other"}));
            let admitted = handler.admit(&PodAdmitAttributes::new(&other, &[])).await;
            assert_eq!(
                admitted.err().map(|rejection| rejection.reason).as_deref(),
                expected
            );
        }
    }
}
