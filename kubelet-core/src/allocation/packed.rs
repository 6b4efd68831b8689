//! What one pod was allocated, as it is kept and recorded.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::InPlaceResize;
use super::state::{resizable_containers, same_requirements};
use crate::{PodExt, packed_json};

/// What one pod was allocated (`PodResourceInfo`), in one short row of bytes. Cloning is cheap.
///
/// The maps that the API has for it take ten times as much: each has room for eleven entries, and there are two of them for
/// each container.
#[derive(Clone, PartialEq)]
pub(crate) struct Allocation(Arc<[u8]>);

impl Allocation {
    /// `allocationFromPod`
    pub(super) fn of(pod: &Pod, settings: &InPlaceResize) -> Self {
        Self::pack(&Resources::of(pod, settings))
    }

    /// Whether the pod's spec says the same. A container that nothing is known of has what it asks for.
    pub(super) fn is_of(&self, pod: &Pod, settings: &InPlaceResize) -> bool {
        // Mostly it does so in the same words.
        packed_json::unpack(&self.0) == Resources::of(pod, settings).to_json()
            || self.unpack().are_of(pod, settings)
    }

    pub(super) fn applied_to(&self, pod: &Pod, settings: &InPlaceResize) -> Pod {
        let (resources, mut pod) = (self.unpack(), pod.clone());
        let Some(spec) = &mut pod.spec else {
            return pod;
        };
        let init = spec.init_containers.iter_mut().flatten();
        for container in init.chain(&mut spec.containers) {
            if let Some(allocated) = resources.of_container(&container.name) {
                container.resources = Some(allocated.clone());
            }
        }
        if settings.pod_level_resources {
            spec.resources = resources.pod.map(Cow::into_owned);
        }
        pod
    }

    fn pack(resources: &Resources<'_>) -> Self {
        Self(packed_json::pack(&resources.to_json()))
    }

    fn unpack(&self) -> Resources<'static> {
        // It was written here.
        serde_json::from_slice(&packed_json::unpack(&self.0)).unwrap_or_default()
    }
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.unpack().fmt(f)
    }
}

impl Serialize for Allocation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.unpack().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Allocation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Resources::deserialize(deserializer).map(|resources| Self::pack(&resources))
    }
}

/// What of a pod can be resized.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Resources<'a> {
    /// For the pod as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pod: Option<Cow<'a, ResourceRequirements>>,
    #[serde(default)]
    containers: Vec<ContainerResources<'a>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ContainerResources<'a> {
    name: Cow<'a, str>,
    #[serde(default)]
    resources: Cow<'a, ResourceRequirements>,
}

impl<'a> Resources<'a> {
    fn of(pod: &'a Pod, settings: &InPlaceResize) -> Self {
        let of_pod = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref());
        let of_container = |container: &'a Container| ContainerResources {
            name: Cow::Borrowed(&container.name),
            resources: container
                .resources
                .as_ref()
                .map(Cow::Borrowed)
                .unwrap_or_default(),
        };
        Self {
            pod: of_pod.filter(|_| settings.pod_level_resources).map(Cow::Borrowed),
            containers: resizable_containers(pod, settings).map(of_container).collect(),
        }
    }

    /// Texts, and maps of texts: there is nothing in it that could not be written.
    fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    fn are_of(&self, pod: &Pod, settings: &InPlaceResize) -> bool {
        let of_pod = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref());
        let same_pod = !settings.pod_level_resources || same_requirements(self.pod.as_deref(), of_pod);
        let mut containers = pod.all_containers();
        same_pod
            && containers.all(|container| match self.of_container(&container.name) {
                Some(allocated) => same_requirements(Some(allocated), container.resources.as_ref()),
                None => true,
            })
    }

    fn of_container(&self, name: &str) -> Option<&ResourceRequirements> {
        let found = self.containers.iter().find(|container| container.name == name);
        found.map(|container| &*container.resources)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn it_is_short_and_what_was_recorded_is_what_is_kept() {
        let settings = InPlaceResize::default();
        let list = json!({"cpu": "100m", "memory": "64Mi"});
        let spec = json!({
            "initContainers": [{"name": "s", "restartPolicy": "Always"}],
            "containers": [{"name": "c", "resources": {"limits": list, "requests": list, "claims": [{"name": "gpu"}]}}],
            "resources": {"limits": {"memory": "1Gi"}},
        });
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
        let allocation = Allocation::of(&pod, &settings);
        assert!(allocation.0.len() < 150, "{}", allocation.0.len());
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
        // What an agent of another mind leaves out is nothing.
        let short = json!({"containers": [{"name": "s"}]});
        let short: Allocation = serde_json::from_value(short).unwrap();
        assert!(short.unpack().pod.is_none() && short.unpack().of_container("s").is_some());
    }
}
