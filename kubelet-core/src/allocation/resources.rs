//! The resources of a pod that can be resized in place, and their allocation.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceClaim, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

use crate::PodExt;
use crate::requirements::same_requirements;
use crate::restart_rules::is_restartable_init_container;

/// What can be resized in place: the kubelet's feature gates, and the settings that prevent a resize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InPlaceResize {
    /// Whether resizes are supported at all: on Linux (`IsInPlacePodVerticalScalingAllowed`).
    pub supported: bool,
    /// Pod-level resources: `InPlacePodLevelResourcesVerticalScaling`, on by default.
    pub pod_level_resources: bool,
    /// Init containers that are not sidecars: `InPlacePodVerticalScalingInitContainers`, on by default.
    pub init_containers: bool,
    /// `cpuManagerPolicy` is `static`: the CPU of guaranteed pods cannot change, unless
    /// `InPlacePodVerticalScalingExclusiveCPUs` is on.
    pub static_cpu_manager: bool,
    /// `memoryManagerPolicy` is `Static`: the memory of guaranteed pods cannot change, unless
    /// `InPlacePodVerticalScalingExclusiveMemory` is on.
    pub static_memory_manager: bool,
}

impl Default for InPlaceResize {
    fn default() -> Self {
        Self {
            supported: cfg!(target_os = "linux"),
            pod_level_resources: true,
            init_containers: true,
            static_cpu_manager: false,
            static_memory_manager: false,
        }
    }
}

/// The allocation of one pod (`PodResourceInfo`), in memory and on disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Allocation {
    /// For the pod as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pod: Option<Requirements>,
    #[serde(default)]
    containers: Vec<ContainerAllocation>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct ContainerAllocation {
    name: String,
    #[serde(default)]
    resources: Requirements,
}

/// [`ResourceRequirements`] with lists for its maps: a map takes half a kilobyte, however few entries it has, and there is an
/// allocation for each pod of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "ResourceRequirements", into = "ResourceRequirements")]
struct Requirements {
    limits: Option<Amounts>,
    requests: Option<Amounts>,
    claims: Option<Vec<ResourceClaim>>,
}

/// Sorted by resource.
type Amounts = Box<[(String, Quantity)]>;

impl From<ResourceRequirements> for Requirements {
    fn from(requirements: ResourceRequirements) -> Self {
        let amounts = |map: BTreeMap<String, Quantity>| map.into_iter().collect();
        Self {
            limits: requirements.limits.map(amounts),
            requests: requirements.requests.map(amounts),
            claims: requirements.claims,
        }
    }
}

impl From<Requirements> for ResourceRequirements {
    fn from(requirements: Requirements) -> Self {
        let map = |amounts: Amounts| amounts.into_iter().collect();
        Self {
            limits: requirements.limits.map(map),
            requests: requirements.requests.map(map),
            claims: requirements.claims,
        }
    }
}

impl Allocation {
    /// `allocationFromPod`
    pub(super) fn of(pod: &Pod, settings: &InPlaceResize) -> Self {
        let of_container = |container: &Container| ContainerAllocation {
            name: container.name.clone(),
            resources: container.resources.clone().unwrap_or_default().into(),
        };
        Self {
            pod: of_pod(pod)
                .filter(|_| settings.pod_level_resources)
                .cloned()
                .map(Requirements::from),
            containers: resizable_containers(pod, settings).map(of_container).collect(),
        }
    }

    /// Whether the pod's spec requests exactly this. A container without an allocation counts as equal.
    pub(super) fn is_of(&self, pod: &Pod, settings: &InPlaceResize) -> bool {
        let same_pod =
            !settings.pod_level_resources || same_requirements(self.of_pod().as_ref(), of_pod(pod));
        let mut containers = pod.all_containers();
        same_pod
            && containers.all(|container| match self.of_container(&container.name) {
                Some(allocated) => same_requirements(Some(&allocated), container.resources.as_ref()),
                None => true,
            })
    }

    /// The pod with this allocation instead of the resources of its spec.
    pub(super) fn applied_to(&self, pod: &Pod, settings: &InPlaceResize) -> Pod {
        let mut pod = pod.clone();
        let Some(spec) = &mut pod.spec else {
            return pod;
        };
        let init = spec.init_containers.iter_mut().flatten();
        for container in init.chain(&mut spec.containers) {
            if let Some(allocated) = self.of_container(&container.name) {
                container.resources = Some(allocated);
            }
        }
        if settings.pod_level_resources {
            spec.resources = self.of_pod();
        }
        pod
    }

    pub(crate) fn new(
        pod: Option<ResourceRequirements>,
        containers: impl IntoIterator<Item = (String, ResourceRequirements)>,
    ) -> Self {
        let of_container = |(name, resources): (String, ResourceRequirements)| ContainerAllocation {
            name,
            resources: resources.into(),
        };
        Self {
            pod: pod.map(Requirements::from),
            containers: containers.into_iter().map(of_container).collect(),
        }
    }

    /// For the pod as a whole.
    pub(crate) fn of_pod(&self) -> Option<ResourceRequirements> {
        self.pod.clone().map(ResourceRequirements::from)
    }

    /// The containers, by name.
    pub(crate) fn of_containers(&self) -> impl Iterator<Item = (String, ResourceRequirements)> {
        let containers = self.containers.iter();
        containers.map(|container| (container.name.clone(), container.resources.clone().into()))
    }

    fn of_container(&self, name: &str) -> Option<ResourceRequirements> {
        let found = self.containers.iter().find(|container| container.name == name);
        found.map(|container| container.resources.clone().into())
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
