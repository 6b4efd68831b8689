//! How the devices of containers are, for the statuses of their pods.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Pod, PodStatus, ResourceHealth, ResourceStatus};
use kubelet_core::PodExt;

use super::{AllocatedDevices, Device, DeviceState};

impl DeviceState {
    /// Sets the health of the devices of each regular container in the status (`UpdateAllocatedResourcesStatus`).
    ///
    /// The health is what the plugin reported last, also after it is gone. A device that it never reported, e.g. because the plugin has
    /// not come back after a restart, or that is no longer in its report, is healthy.
    pub fn update_allocated_resources_status(&self, pod: &Pod, status: &mut PodStatus) {
        let Some(of_pod) = self.pods.get(pod.uid_str()) else {
            return;
        };
        for container in status.container_statuses.iter_mut().flatten() {
            for (resource, devices) in of_pod.get(&container.name).into_iter().flatten() {
                let health = self.health_of(resource, devices);
                let all = container.allocated_resources_status.get_or_insert_default();
                match all.iter_mut().find(|known| known.name == *resource) {
                    Some(known) => *known = health,
                    None => all.push(health),
                }
            }
        }
    }

    fn health_of(&self, resource: &str, devices: &AllocatedDevices) -> ResourceStatus {
        let reported = self.reported.get(resource);
        let resources = devices.ids().into_iter().map(|id| {
            let healthy = reported.and_then(|reported| reported.get(&id));
            let health = match healthy.copied().unwrap_or(true) {
                true => "Healthy",
                false => "Unhealthy",
            };
            ResourceHealth {
                resource_id: id,
                health: Some(health.to_owned()),
                ..ResourceHealth::default()
            }
        });
        ResourceStatus {
            name: resource.to_owned(),
            resources: Some(resources.collect()),
        }
    }

    /// Notes what a plugin reports. Returns the pods with a device whose health changed.
    pub(super) fn note_health(
        &mut self,
        resource: &str,
        devices: &BTreeMap<String, Device>,
    ) -> BTreeSet<String> {
        let now = devices.iter().map(|(id, device)| (id.clone(), device.healthy));
        let now: BTreeMap<String, bool> = now.collect();
        let before = self.reported.insert(resource.to_owned(), now.clone());
        let before = before.unwrap_or_default();
        let healthy = |report: &BTreeMap<String, bool>, id| report.get(id).copied().unwrap_or(true);
        let all = before.keys().chain(now.keys());
        let changed: BTreeSet<&String> = all
            .filter(|id| healthy(&before, *id) != healthy(&now, *id))
            .collect();
        match changed.is_empty() {
            true => BTreeSet::new(),
            false => self.pods_with(resource, &changed),
        }
    }

    fn pods_with(&self, resource: &str, ids: &BTreeSet<&String>) -> BTreeSet<String> {
        let has = |devices: &AllocatedDevices| devices.by_node.values().flatten().any(|id| ids.contains(id));
        let pods = self.pods.iter().filter(|(_, containers)| {
            let mut devices = containers
                .values()
                .filter_map(|container| container.get(resource));
            devices.any(has)
        });
        pods.map(|(uid, _)| uid.clone()).collect()
    }
}
