//! What the managers have allocated, as messages of the API.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::PodExt;
use kubelet_core::restart_rules::is_restartable_init_container;

use super::DynamicResourcesProvider;
use super::v1::{
    ContainerDevices, ContainerMemory, ContainerResources, NumaNode, PodResources, TopologyInfo,
};
use crate::cpu::CpuState;
use crate::cpu_set::CpuSet;
use crate::devices::{AllocatedDevices, Device, DevicesOfPods, NODE_WITHOUT_TOPOLOGY};
use crate::memory::MemoryState;

/// The states at one moment.
pub(super) struct Snapshot<'a> {
    pub(super) cpus: &'a CpuState,
    pub(super) memory: &'a MemoryState,
    pub(super) devices: Option<&'a DevicesOfPods>,
    pub(super) dynamic: Option<&'a dyn DynamicResourcesProvider>,
}

impl Snapshot<'_> {
    /// The sidecars and containers of the pod. Init containers have ended, or their resources are those of containers.
    pub(super) fn of_pod(&self, pod: &Pod) -> PodResources {
        let spec = pod.spec.as_ref();
        let init = spec
            .into_iter()
            .flat_map(|spec| spec.init_containers.iter().flatten());
        let sidecars = init.filter(|container| is_restartable_init_container(container));
        let containers = spec.into_iter().flat_map(|spec| &spec.containers);
        let containers = sidecars.chain(containers);
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        PodResources {
            name: text(&pod.metadata.name),
            namespace: text(&pod.metadata.namespace),
            containers: containers
                .map(|container| self.of_container(pod, container))
                .collect(),
        }
    }

    fn of_container(&self, pod: &Pod, container: &Container) -> ContainerResources {
        let (uid, name) = (pod.uid_str(), container.name.as_str());
        let cpus = self.cpus.allocated(uid, name);
        let blocks = self.memory.blocks(uid, name).unwrap_or_default().iter();
        let devices = self.devices.and_then(|devices| devices.get(uid)?.get(name));
        ContainerResources {
            name: name.to_owned(),
            devices: devices.map(allocated_devices).unwrap_or_default(),
            cpu_ids: cpus.map(ids).unwrap_or_default(),
            memory: blocks
                .map(|block| memory(&block.resource, block.size, block.nodes.iter().copied()))
                .collect(),
            dynamic_resources: self
                .dynamic
                .map(|dynamic| dynamic.of_container(pod, container))
                .unwrap_or_default(),
        }
    }
}

pub(super) fn ids(cpus: &CpuSet) -> Vec<i64> {
    cpus.iter().map(signed).collect()
}

/// One entry for each device and node.
fn allocated_devices(resources: &BTreeMap<String, AllocatedDevices>) -> Vec<ContainerDevices> {
    let of_resource = |(resource, devices): (&String, &AllocatedDevices)| {
        let entries = devices.by_node.iter().flat_map(|(node, ids)| {
            let node = Some(*node).filter(|node| *node != NODE_WITHOUT_TOPOLOGY);
            ids.iter().map(move |id| (id.clone(), node))
        });
        let mut entries: Vec<_> = entries.collect();
        entries.sort();
        entries
            .into_iter()
            .map(|(id, node)| entry(resource, id, node))
            .collect::<Vec<_>>()
    };
    resources.iter().flat_map(of_resource).collect()
}

/// One entry for each device and node. A device whose plugin reports that it is close to no node has none.
pub(super) fn allocatable_devices(
    resources: BTreeMap<String, BTreeMap<String, Device>>,
) -> Vec<ContainerDevices> {
    let mut entries = Vec::new();
    for (resource, devices) in resources {
        for (id, device) in devices {
            match device.nodes {
                None => entries.push(entry(&resource, id, None)),
                Some(nodes) => {
                    let nodes = nodes.into_iter();
                    entries.extend(nodes.map(|node| entry(&resource, id.clone(), Some(node))));
                }
            }
        }
    }
    entries
}

pub(super) fn allocatable_memory(state: &MemoryState) -> Vec<ContainerMemory> {
    let mut all = Vec::new();
    for (node, of_node) in &state.nodes {
        for (resource, table) in &of_node.memory {
            if table.allocatable > 0 {
                all.push(memory(resource, table.allocatable, [*node]));
            }
        }
    }
    all
}

fn memory(resource: &str, size: u64, nodes: impl IntoIterator<Item = usize>) -> ContainerMemory {
    let nodes = nodes.into_iter().map(|node| NumaNode { id: signed(node) });
    ContainerMemory {
        memory_type: resource.to_owned(),
        size,
        topology: Some(TopologyInfo {
            nodes: nodes.collect(),
        }),
    }
}

fn entry(resource: &str, id: String, node: Option<i64>) -> ContainerDevices {
    ContainerDevices {
        resource_name: resource.to_owned(),
        device_ids: vec![id],
        topology: node.map(|id| TopologyInfo {
            nodes: vec![NumaNode { id }],
        }),
    }
}

fn signed(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
