//! The health of the devices of claims, in the statuses of pods.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, Pod, PodStatus, ResourceHealth as DeviceStatus, ResourceStatus,
};
use kubelet_core::ResourceHealth;
use tokio::time::Instant;

use super::DraManagerHandle;
use super::claim::{ClaimState, Device};
use super::handle::Shared;
use super::health::HealthCache;
use super::names::{claim_name, entries};

impl ResourceHealth for DraManagerHandle {
    /// One element for each entry in the claims of a regular container: `claim:NAME`, or `claim:NAME/REQUEST`.
    fn update_allocated_resources_status(&self, pod: &Pod, status: &mut PodStatus) {
        let Some(spec) = pod.spec.as_ref() else { return };
        for status in status.container_statuses.iter_mut().flatten() {
            let mut specs = spec.containers.iter();
            if let Some(container) = specs.find(|container| container.name == status.name) {
                self.shared.set_health(pod, container, status);
            }
        }
    }
}

impl Shared {
    fn set_health(&self, pod: &Pod, container: &Container, status: &mut ContainerStatus) {
        let resources = container.resources.as_ref();
        let used = resources
            .and_then(|resources| resources.claims.as_deref())
            .unwrap_or_default();
        let Some(watch) = self.health.as_ref().filter(|_| !used.is_empty()) else {
            return;
        };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let mut all = status.allocated_resources_status.take().unwrap_or_default();
        {
            let (claims, health) = (self.claims.lock(), watch.cache.lock());
            for claim in used {
                let entry = entries(pod).iter().find(|entry| entry.name == claim.name);
                // A claim that is not known has no devices yet, or none any more.
                let name = entry.and_then(|entry| claim_name(pod, entry).ok().flatten());
                let info = name.and_then(|name| {
                    let key = (namespace.to_owned(), name.name.to_owned());
                    claims.by_key.get(&key)
                });
                let Some(info) = info else { continue };
                let request = claim.request.as_deref().filter(|request| !request.is_empty());
                let name = match request {
                    Some(request) => format!("claim:{}/{request}", claim.name),
                    None => format!("claim:{}", claim.name),
                };
                let devices = self.devices(&info.state, request, &health);
                all.retain(|known| known.name != name);
                all.push(ResourceStatus {
                    name,
                    resources: Some(devices),
                });
            }
        }
        all.retain(|status| {
            status
                .resources
                .as_ref()
                .is_some_and(|devices| !devices.is_empty())
        });
        status.allocated_resources_status = Some(all).filter(|all| !all.is_empty());
    }

    fn devices(&self, claim: &ClaimState, request: Option<&str>, health: &HealthCache) -> Vec<DeviceStatus> {
        // The requests of devices are without the names of subrequests (`BaseRequestRef`).
        let request = request.map(|request| request.split('/').next().unwrap_or_default());
        let now = Instant::now();
        let (mut shown, mut devices) = (BTreeSet::new(), Vec::new());
        for (driver, device) in claim.devices() {
            if request.is_some_and(|request| !device.is_for(request)) {
                continue;
            }
            let id = resource_id(driver, device);
            // Several devices may have the same id.
            if shown.insert(id.clone()) {
                let name = (device.pool_name.clone(), device.device_name.clone());
                let (health, message) = health.get(driver, &name, now);
                let message =
                    Some(message).filter(|message| self.gates.health_message && !message.is_empty());
                devices.push(DeviceStatus {
                    health: Some(health.as_str().to_owned()),
                    message: message.map(str::to_owned),
                    resource_id: id,
                });
            }
        }
        devices
    }
}

/// The first CDI id, or else the whole name of the device (`buildResourceHealth`).
fn resource_id(driver: &str, device: &Device) -> String {
    let mut ids = device.cdi_device_ids.iter().flatten();
    match ids.next() {
        Some(id) => id.clone(),
        None => format!("{driver}/{}/{}", device.pool_name, device.device_name),
    }
}
