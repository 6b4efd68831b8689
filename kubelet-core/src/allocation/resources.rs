//! The resources of a pod that can be resized in place, and what one pod was allocated of them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceClaim, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

use super::InPlaceResize;
use crate::PodExt;
use crate::quantity::Amount;
use crate::restart_rules::is_restartable_init_container;

/// What one pod was allocated (`PodResourceInfo`), in memory and on disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Allocation {
    /// For the pod as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pod: Option<ResourceRequirements>,
    #[serde(default)]
    containers: Vec<ContainerAllocation>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ContainerAllocation {
    name: String,
    #[serde(default)]
    resources: ResourceRequirements,
}

impl Allocation {
    /// `allocationFromPod`
    pub(super) fn of(pod: &Pod, settings: &InPlaceResize) -> Self {
        let of_container = |container: &Container| ContainerAllocation {
            name: container.name.clone(),
            resources: container.resources.clone().unwrap_or_default(),
        };
        Self {
            pod: of_pod(pod).filter(|_| settings.pod_level_resources).cloned(),
            containers: resizable_containers(pod, settings).map(of_container).collect(),
        }
    }

    /// Whether the pod's spec asks for exactly this. A container without an allocation has what it asks for.
    pub(super) fn is_of(&self, pod: &Pod, settings: &InPlaceResize) -> bool {
        let same_pod = !settings.pod_level_resources || same_requirements(self.pod.as_ref(), of_pod(pod));
        let mut containers = pod.all_containers();
        same_pod
            && containers.all(|container| match self.of_container(&container.name) {
                Some(allocated) => same_requirements(Some(allocated), container.resources.as_ref()),
                None => true,
            })
    }

    /// The pod with this allocation in the place of what its spec asks for.
    pub(super) fn applied_to(&self, pod: &Pod, settings: &InPlaceResize) -> Pod {
        let mut pod = pod.clone();
        let Some(spec) = &mut pod.spec else {
            return pod;
        };
        let init = spec.init_containers.iter_mut().flatten();
        for container in init.chain(&mut spec.containers) {
            if let Some(allocated) = self.of_container(&container.name) {
                container.resources = Some(allocated.clone());
            }
        }
        if settings.pod_level_resources {
            spec.resources.clone_from(&self.pod);
        }
        pod
    }

    fn of_container(&self, name: &str) -> Option<&ResourceRequirements> {
        let found = self.containers.iter().find(|container| container.name == name);
        found.map(|container| &container.resources)
    }
}

fn of_pod(pod: &Pod) -> Option<&ResourceRequirements> {
    pod.spec.as_ref().and_then(|spec| spec.resources.as_ref())
}

/// The containers whose resources may change while their pod runs (`IsResizableContainer`).
pub(super) fn resizable_containers<'a>(
    pod: &'a Pod,
    settings: &InPlaceResize,
) -> impl Iterator<Item = &'a Container> {
    let spec = pod.spec.as_ref();
    let init = spec
        .into_iter()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    let all = settings.init_containers;
    let init = init.filter(move |container| all || is_restartable_init_container(container));
    init.chain(spec.into_iter().flat_map(|spec| &spec.containers))
}

/// As `apiequality.Semantic` has it: nothing is as good as empty, and amounts are compared, not texts.
pub(crate) fn same_requirements(a: Option<&ResourceRequirements>, b: Option<&ResourceRequirements>) -> bool {
    fn claims(of: Option<&ResourceRequirements>) -> &[ResourceClaim] {
        of.and_then(|of| of.claims.as_deref()).unwrap_or_default()
    }
    fn requests(of: Option<&ResourceRequirements>) -> Option<&List> {
        of.and_then(|of| of.requests.as_ref())
    }
    fn limits(of: Option<&ResourceRequirements>) -> Option<&List> {
        of.and_then(|of| of.limits.as_ref())
    }
    same_lists(requests(a), requests(b)) && same_lists(limits(a), limits(b)) && claims(a) == claims(b)
}

type List = BTreeMap<String, Quantity>;

fn same_lists(a: Option<&List>, b: Option<&List>) -> bool {
    let len = |list: Option<&List>| list.map_or(0, BTreeMap::len);
    let (pairs_of_a, pairs_of_b) = (a.into_iter().flatten(), b.into_iter().flatten());
    len(a) == len(b)
        && pairs_of_a
            .zip(pairs_of_b)
            .all(|((name, quantity), (other, of_other))| name == other && same_quantity(quantity, of_other))
}

fn same_quantity(a: &Quantity, b: &Quantity) -> bool {
    a == b
        || match (Amount::try_from(a), Amount::try_from(b)) {
            (Ok(a), Ok(b)) => a == b,
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_recorded_is_what_is_kept() {
        let settings = InPlaceResize::default();
        let list = json!({"cpu": "100m", "memory": "64Mi"});
        let spec = json!({
            "initContainers": [{"name": "s", "restartPolicy": "Always"}],
            "containers": [{"name": "c", "resources": {"limits": list, "requests": list, "claims": [{"name": "gpu"}]}}],
            "resources": {"limits": {"memory": "1Gi"}},
        });
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
        let allocation = Allocation::of(&pod, &settings);
        assert!(allocation.is_of(&pod, &settings));
        assert_eq!(
            allocation.applied_to(&pod, &settings).spec.unwrap().containers,
            pod.spec.clone().unwrap().containers
        );

        let recorded = json!({
            "pod": {"limits": {"memory": "1Gi"}},
            "containers": [
                {"name": "s", "resources": {}},
                {"name": "c", "resources": {"claims": [{"name": "gpu"}], "limits": list, "requests": list}},
            ],
        });
        assert_eq!(json!(allocation), recorded);
        assert_eq!(
            serde_json::from_value::<Allocation>(recorded).unwrap(),
            allocation
        );
        // A field that the record leaves out is empty.
        let short = json!({"containers": [{"name": "s"}]});
        let short: Allocation = serde_json::from_value(short).unwrap();
        assert!(short.pod.is_none() && short.of_container("s").is_some());
    }
}
