//! The claims of containers in the pod-resources API.

use k8s_openapi::api::core::v1::{Container, Pod};

use super::DraManagerHandle;
use super::claim::{ClaimState, Device};
use crate::pod_resources::DynamicResourcesProvider;
use crate::pod_resources::v1::{CdiDevice, ClaimResource, DynamicResource};

impl DynamicResourcesProvider for DraManagerHandle {
    /// `GetDynamicResources`; none if a claim of the container is not known.
    fn of_container(&self, pod: &Pod, container: &Container) -> Vec<DynamicResource> {
        match self.claims_of(pod, container) {
            Ok(claims) => claims.into_iter().map(resource).collect(),
            Err(error) => {
                let uid = pod.metadata.uid.as_deref();
                tracing::error!(pod_uid = uid, container = container.name, %error, "Unable to get container claim info state");
                Vec::new()
            }
        }
    }
}

fn resource(claim: ClaimState) -> DynamicResource {
    let devices = claim.devices();
    DynamicResource {
        claim_resources: devices
            .map(|(driver, device)| of_device(driver, device))
            .collect(),
        claim_name: claim.claim_name,
        claim_namespace: claim.namespace,
    }
}

fn of_device(driver: &str, device: &Device) -> ClaimResource {
    let ids = device.cdi_device_ids.iter().flatten();
    ClaimResource {
        cdi_devices: ids.map(|name| CdiDevice { name: name.clone() }).collect(),
        driver_name: driver.to_owned(),
        pool_name: device.pool_name.clone(),
        device_name: device.device_name.clone(),
        share_id: device.share_id.clone(),
    }
}
