//! What a container needs to use its devices.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::{AddedDevice, AddedMount, ContainerAdditions, PodExt};
use prost::Message;

use super::{DeviceManagerHandle, Shared};
use crate::Result;
use crate::devices::AllocatedDevices;
use crate::devices::v1beta1::ContainerAllocateResponse;

impl DeviceManagerHandle {
    /// Frees what pods had that have ended.
    pub(crate) fn update_allocated(&self) {
        self.shared.update_allocated();
    }

    /// What the container needs to use its devices; first lets the plugins prepare these (`GetDeviceRunContainerOptions`).
    ///
    /// # Errors
    ///
    /// With the kubelet's texts: if a plugin is gone or fails. Also if the container has no devices yet, which can be after a restart
    /// of the node, and cannot get any.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn additions(&self, pod: &Pod, container: &Container) -> Result<ContainerAdditions> {
        let shared = &self.shared;
        let requests = shared.requests(pod, container);
        let mut reallocate = false;
        for (resource, _) in requests.into_iter().filter(|(_, count)| *count > 0) {
            shared.pre_start(pod, container, &resource).await?;
            reallocate |= shared.is_active(pod) && shared.devices(pod, container, &resource).is_none();
        }
        if reallocate {
            tracing::info!(pod = %pod.key(), container = container.name, "needs to re-allocate device plugin resources for pod");
            shared.update_allocated();
            let hint = shared.inner.lock().hint(pod, container);
            shared.allocate(pod, container, hint).await?;
        }
        let responses = shared.responses(pod, container);
        Ok(combine(&responses))
    }
}

impl Shared {
    /// `callPreStartContainerIfNeeded`
    async fn pre_start(&self, pod: &Pod, container: &Container, resource: &str) -> Result<()> {
        let endpoint = self.inner.lock().endpoints.get(resource).cloned();
        let Some(endpoint) = endpoint else {
            let text = format!("endpoint not found in cache for a registered resource: {resource}");
            return Err(Self::failed(text));
        };
        if !endpoint.options.pre_start_required {
            return Ok(());
        }
        let Some(ids) = self.devices(pod, container, resource) else {
            return Err(Self::failed(format!(
                "no devices found allocated in local cache for pod {}, container {}, resource {resource}",
                pod.uid_str(),
                container.name
            )));
        };
        endpoint.pre_start(resource, &ids).await.map_err(|error| {
            Self::failed(format!(
                "device plugin PreStartContainer rpc failed with err: {error}"
            ))
        })
    }

    fn devices(&self, pod: &Pod, container: &Container, resource: &str) -> Option<BTreeSet<String>> {
        let inner = self.inner.lock();
        let of_pod = inner.state.allocated().get(pod.uid_str())?;
        Some(of_pod.get(&container.name)?.get(resource)?.ids())
    }

    fn is_active(&self, pod: &Pod) -> bool {
        let active = self.pods().map(|pods| pods.active_pods());
        let mut active = active.iter().flatten();
        active.any(|active| active.uid_str() == pod.uid_str())
    }

    /// `UpdateAllocatedDevices`
    fn update_allocated(&self) {
        if let Some(pods) = self.pods().filter(|pods| pods.sources_ready()) {
            let mut inner = self.inner.lock();
            // The list is made under the lock: no pod gets devices between it and its use.
            inner.remove_stale(&pods.holding_pods());
        }
    }

    /// The answers of the plugins, in the order of the resources' names. Each was decoded before.
    fn responses(&self, pod: &Pod, container: &Container) -> Vec<ContainerAllocateResponse> {
        let inner = self.inner.lock();
        let of_pod = inner.state.allocated().get(pod.uid_str());
        let of_container = of_pod.and_then(|of_pod| of_pod.get(&container.name));
        let devices = of_container.into_iter().flat_map(BTreeMap::values);
        let decode =
            |devices: &AllocatedDevices| ContainerAllocateResponse::decode(devices.response.as_slice()).ok();
        devices.filter_map(decode).collect()
    }
}

/// The first of several equal names counts (`deviceRunContainerOptions`).
fn combine(responses: &[ContainerAllocateResponse]) -> ContainerAdditions {
    let mut additions = ContainerAdditions::default();
    for response in responses {
        for (name, value) in &response.envs {
            let known = additions.envs.iter().find(|(known, _)| known == name);
            match known {
                Some((_, known)) => conflict("environment variable", name, known, value),
                None => additions.envs.push((name.clone(), value.clone())),
            }
        }
        for device in &response.devices {
            let path = &device.container_path;
            let known = additions
                .devices
                .iter()
                .find(|known| known.container_path == *path);
            match known {
                Some(known) => conflict("container device", path, &known.host_path, &device.host_path),
                None => additions.devices.push(AddedDevice {
                    container_path: path.clone(),
                    host_path: device.host_path.clone(),
                    permissions: device.permissions.clone(),
                }),
            }
        }
        for mount in &response.mounts {
            let path = &mount.container_path;
            let known = additions
                .mounts
                .iter()
                .find(|known| known.container_path == *path);
            match known {
                Some(known) => conflict("container mount", path, &known.host_path, &mount.host_path),
                None => additions.mounts.push(AddedMount {
                    container_path: path.clone(),
                    host_path: mount.host_path.clone(),
                    read_only: mount.read_only,
                }),
            }
        }
        for (name, value) in &response.annotations {
            match additions.annotations.get(name) {
                Some(known) => conflict("annotation", name, known, value),
                None => drop(additions.annotations.insert(name.clone(), value.clone())),
            }
        }
        for device in &response.cdi_devices {
            if !additions.cdi_devices.contains(&device.name) {
                additions.cdi_devices.push(device.name.clone());
            }
        }
    }
    additions
}

fn conflict(what: &str, name: &str, first: &str, second: &str) {
    if first != second {
        tracing::error!(
            what,
            name,
            first,
            second,
            "device plugins have conflicting settings"
        );
    }
}
