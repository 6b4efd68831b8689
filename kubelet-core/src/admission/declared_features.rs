//! Features that a node declares: which pods and updates need them.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};

use super::{PodAdmitAttributes, PodAdmitHandler, Rejection};
use crate::requirements::same_requirements;
use crate::restart_rules::is_restartable_init_container;

/// The features that the node declares (`status.declaredFeatures`). A pod that needs another feature is rejected; a pod
/// update that needs another one causes an event. Answers to `lifecycle.NewDeclaredFeaturesAdmitHandler` and to the
/// kubelet's behaviour with the gate `NodeDeclaredFeatures`, which is on by default. Cheap to clone.
///
/// The rules are those of v1.36. `ExtendWebSocketsToKubelet` can be declared, but no pod needs it.
#[derive(Clone, Debug, Default)]
pub struct DeclaredFeatures {
    names: Arc<BTreeSet<String>>,
}

/// A feature that pods can require.
struct Feature {
    name: &'static str,
    /// Whether the pod needs it to run (`InferForScheduling`).
    runs_with: fn(&PodSpec) -> bool,
    /// Whether the update from the first pod to the second needs it (`InferForUpdate`).
    changes_with: fn(&PodSpec, &PodSpec) -> bool,
}

/// In the order of messages. None is so old that every supported node has it (`MaxVersion`).
const FEATURES: [Feature; 4] = [
    Feature {
        name: "InPlacePodLevelResourcesVerticalScaling",
        runs_with: |_| false,
        changes_with: resizes_whole,
    },
    Feature {
        name: "InPlacePodVerticalScalingInitContainers",
        runs_with: |_| false,
        changes_with: resizes_init_container,
    },
    Feature {
        name: "RestartAllContainersOnContainerExits",
        runs_with: may_restart_all,
        changes_with: |_, _| false,
    },
    Feature {
        name: "UserNamespacesHostNetworkSupport",
        runs_with: maps_users_on_host_network,
        changes_with: |_, _| false,
    },
];

impl DeclaredFeatures {
    /// Exactly these features.
    pub fn new<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self {
            names: Arc::new(names.into_iter().map(Into::into).collect()),
        }
    }

    /// The message for a pod update that needs undeclared features.
    pub(crate) fn missing_for_change(&self, before: &Pod, pod: &Pod) -> Option<String> {
        let (before, spec) = (before.spec.as_ref()?, pod.spec.as_ref()?);
        self.missing(|feature| (feature.changes_with)(before, spec))
    }

    fn missing(&self, is_needed: impl Fn(&Feature) -> bool) -> Option<String> {
        let needed = FEATURES.iter().filter(|feature| is_needed(feature));
        let missing: Vec<&str> = needed
            .map(|feature| feature.name)
            .filter(|name| !self.names.contains(*name))
            .collect();
        let told = missing.join(", ");
        (!missing.is_empty()).then(|| format!("Pod requires node features that are not available: {told}"))
    }
}

#[async_trait]
impl PodAdmitHandler for DeclaredFeatures {
    async fn admit(&self, attributes: &PodAdmitAttributes<'_>) -> Result<(), Rejection> {
        let Some(spec) = &attributes.pod.spec else {
            return Ok(());
        };
        match self.missing(|feature| (feature.runs_with)(spec)) {
            Some(message) => Err(Rejection::new("PodFeatureUnsupported", message)),
            None => Ok(()),
        }
    }
}

/// Absent and empty differ here.
fn resizes_whole(before: &PodSpec, after: &PodSpec) -> bool {
    let (before, after) = (before.resources.as_ref(), after.resources.as_ref());
    before.is_some() != after.is_some() || !same_requirements(before, after)
}

/// Compared as text, not as amounts.
fn resizes_init_container(before: &PodSpec, after: &PodSpec) -> bool {
    let resources = |container: &Container| container.resources.clone().unwrap_or_default();
    let before = before.init_containers.iter().flatten();
    before
        .zip(after.init_containers.iter().flatten())
        .any(|(before, after)| {
            !is_restartable_init_container(before) && resources(before) != resources(after)
        })
}

fn may_restart_all(spec: &PodSpec) -> bool {
    let init = spec.init_containers.iter().flatten();
    let mut rules = spec
        .containers
        .iter()
        .chain(init)
        .flat_map(|container| container.restart_policy_rules.iter().flatten());
    rules.any(|rule| rule.action == "RestartAllContainers")
}

fn maps_users_on_host_network(spec: &PodSpec) -> bool {
    spec.host_network == Some(true) && spec.host_users == Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const ALL: &str = "Pod requires node features that are not available: ";

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({"spec": spec})).unwrap()
    }

    #[tokio::test]
    async fn a_pod_runs_where_what_it_needs_is_declared() {
        let restarts = "RestartAllContainersOnContainerExits";
        let rules =
            |action: &str| json!([{"action": action, "exitCodes": {"operator": "In", "values": [1]}}]);
        let container = |action: &str| json!([{"name": "c", "restartPolicyRules": rules(action)}]);
        let both =
            json!({"containers": container("RestartAllContainers"), "hostNetwork": true, "hostUsers": false});
        for (declared, spec, expected) in [
            (&[][..], json!({"containers": []}), None),
            (&[], json!({"containers": container("Restart")}), None),
            (
                &[],
                json!({"containers": container("RestartAllContainers")}),
                Some(restarts),
            ),
            (
                &["Other"],
                json!({"containers": [], "initContainers": container("RestartAllContainers")}),
                Some(restarts),
            ),
            (
                &["Other", restarts],
                json!({"containers": container("RestartAllContainers")}),
                None,
            ),
            (&[], json!({"containers": [], "hostNetwork": true}), None),
            (&[], json!({"containers": [], "hostUsers": false}), None),
            (
                &[],
                json!({"containers": [], "hostNetwork": true, "hostUsers": true}),
                None,
            ),
            (
                &[],
                both.clone(),
                Some("RestartAllContainersOnContainerExits, UserNamespacesHostNetworkSupport"),
            ),
            (&[restarts], both, Some("UserNamespacesHostNetworkSupport")),
            // What it could only not change to.
            (
                &[],
                json!({"containers": [], "resources": {"limits": {"cpu": "1"}}}),
                None,
            ),
        ] {
            let features = DeclaredFeatures::new(declared.iter().copied());
            let pod = Arc::new(pod(spec));
            let admitted = features.admit(&PodAdmitAttributes::new(&pod, &[])).await;
            let expected =
                expected.map(|missing| Rejection::new("PodFeatureUnsupported", format!("{ALL}{missing}")));
            assert_eq!(admitted.err(), expected, "{declared:?}");
        }
    }

    #[test]
    fn a_pod_changes_where_what_that_needs_is_declared() {
        let (whole, init) = (
            "InPlacePodLevelResourcesVerticalScaling",
            "InPlacePodVerticalScalingInitContainers",
        );
        let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
        let of_pod = |resources: Value| json!({"containers": [], "resources": resources});
        let of_container = |resources: Value| json!({"containers": [{"name": "c", "resources": resources}]});
        let of_init = |resources: Value| json!({"containers": [], "initContainers": [{"name": "i", "resources": resources}]});
        let of_sidecar = |resources: Value| {
            let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": resources});
            json!({"containers": [], "initContainers": [sidecar]})
        };
        for (declared, before, after, expected) in [
            (&[][..], of_container(cpu("1")), of_container(cpu("2")), None),
            (&[], of_pod(json!(null)), of_pod(json!(null)), None),
            (&[], of_pod(cpu("1")), of_pod(cpu("1000m")), None),
            (&[], of_pod(cpu("1")), of_pod(cpu("2")), Some(whole)),
            (&[], of_pod(json!(null)), of_pod(json!({})), Some(whole)),
            (&[init], of_pod(cpu("1")), of_pod(json!(null)), Some(whole)),
            (&[whole], of_pod(cpu("1")), of_pod(cpu("2")), None),
            (&[], of_init(cpu("1")), of_init(cpu("1")), None),
            (&[], of_init(json!(null)), of_init(json!({})), None),
            (&[], of_init(cpu("1")), of_init(cpu("2")), Some(init)),
            (&[init], of_init(cpu("1")), of_init(cpu("2")), None),
            (&[], of_sidecar(cpu("1")), of_sidecar(cpu("2")), None),
        ] {
            let features = DeclaredFeatures::new(declared.iter().copied());
            let told = features.missing_for_change(&pod(before.clone()), &pod(after.clone()));
            let expected = expected.map(|missing| format!("{ALL}{missing}"));
            assert_eq!(told, expected, "{before} → {after} with {declared:?}");
        }
    }
}
