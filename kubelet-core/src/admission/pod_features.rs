//! Features of pods that the node has switched off.

use async_trait::async_trait;

use super::{PodAdmitAttributes, PodAdmitHandler, Rejection};
use crate::has_pod_level_resources;

/// Rejects pods that use a feature that this node has switched off. Answers to `lifecycle.NewPodFeaturesAdmitHandler`.
///
/// Without this handler in the chain, all features are on.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PodFeaturesAdmitHandler {
    /// `PodLevelResources`, on by default: pods may have requests and limits of their own, beside those of their containers.
    pub pod_level_resources: bool,
}

impl Default for PodFeaturesAdmitHandler {
    fn default() -> Self {
        Self {
            pod_level_resources: true,
        }
    }
}

#[async_trait]
impl PodAdmitHandler for PodFeaturesAdmitHandler {
    async fn admit(&self, attributes: &PodAdmitAttributes<'_>) -> Result<(), Rejection> {
        match !self.pod_level_resources && has_pod_level_resources(attributes.pod) {
            true => Err(Rejection::new(
                "PodLevelResourcesNotSupported",
                "PodLevelResources feature gate is disabled",
            )),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::{Pod, PodSpec, ResourceRequirements};
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

    use super::*;

    fn pod(resource: &str) -> Arc<Pod> {
        let limits = [(resource.to_owned(), Quantity("1".to_owned()))].into();
        Arc::new(Pod {
            spec: Some(PodSpec {
                resources: Some(ResourceRequirements {
                    limits: Some(limits),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        })
    }

    #[tokio::test]
    async fn pods_with_resources_of_their_own_need_the_gate() {
        for (pod_level_resources, pod, admitted) in [
            (true, pod("cpu"), true),
            (false, pod("cpu"), false),
            (false, pod("hugepages-2Mi"), false),
            (false, pod("example.com/gpu"), true),
            (false, Arc::default(), true),
        ] {
            let handler = PodFeaturesAdmitHandler { pod_level_resources };
            let result = handler.admit(&PodAdmitAttributes::new(&pod, &[])).await;
            assert_eq!(result.is_ok(), admitted, "{pod_level_resources} {:?}", pod.spec);
            if let Err(rejection) = result {
                assert_eq!(rejection.reason, "PodLevelResourcesNotSupported");
                assert_eq!(rejection.message, "PodLevelResources feature gate is disabled");
            }
        }
    }
}
