//! Memory for a pod with pod-level resources: blocks for the pod, of which its containers get parts.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::{PodExt, QosClass, qos_class};

use super::nodes::take;
use super::policy::{Outcome, StaticPolicy};
use super::state::{MemoryBlock, MemoryState};
use crate::metrics::{Assignment, Resource, count_allocation, count_assignment, count_memory_pinning};
use crate::requests::{
    Gates, MemoryRequests, app_containers, container_memory, init_containers, is_sidecar, pod_memory,
};
use crate::topology::TopologyHint;
use crate::{Error, Result};

impl StaticPolicy {
    /// Allocates for the whole pod, and divides the memory (`AllocatePod`).
    pub(super) fn allocate_pod(
        &self,
        state: &mut MemoryState,
        pod: &Arc<Pod>,
        hint: TopologyHint,
    ) -> Result<Outcome> {
        if qos_class(pod) != QosClass::Guaranteed {
            return Ok(Outcome::Unmanaged);
        }
        let requests = match pod_memory(self.gates, pod) {
            Ok(requests) => requests,
            Err(error) => {
                tracing::error!(pod = %pod.key(), %error, "memory is not allocated");
                return Ok(Outcome::Unmanaged);
            }
        };
        // The kubelet would allocate a second time when it admits the pod again after a restart.
        if state.pods.contains_key(pod.uid_str()) {
            return Ok(Outcome::Present);
        }
        check_shared_pool(self.gates, pod).map_err(Error::EmptyPodSharedPool)?;
        let chosen = self.choose(&state.nodes, pod.uid_str(), &requests, hint)?;
        let nodes: Vec<usize> = chosen.iter().collect();
        for (container, sizes) in self.divide(pod, &requests)? {
            state.set(pod.uid_str(), container, blocks(&nodes, sizes));
            count_allocation(Resource::Memory, true);
        }
        for (resource, size) in &requests {
            take(&mut state.nodes, &nodes, resource, *size);
        }
        state
            .pods
            .insert(pod.uid_str().to_owned(), blocks(&nodes, requests));
        Ok(Outcome::Allocated)
    }

    /// The memory of each container.
    fn divide<'a>(&self, pod: &'a Pod, of_pod: &MemoryRequests) -> Result<BTreeMap<&'a str, MemoryRequests>> {
        let mut parts = BTreeMap::new();
        let mut left = of_pod.clone();
        for container in init_containers(pod) {
            let requests = container_memory(self.gates, pod, container)?;
            count_memory_pinning();
            if requests.is_empty() {
                if !is_sidecar(container) {
                    count_assignment(Resource::Memory, Assignment::PodShared);
                    parts.insert(container.name.as_str(), left.clone());
                }
                continue;
            }
            count_assignment(Resource::Memory, Assignment::PodExclusive);
            if is_sidecar(container) {
                subtract(&mut left, &requests);
            }
            parts.insert(container.name.as_str(), requests);
        }
        for container in app_containers(pod) {
            let requests = container_memory(self.gates, pod, container)?;
            if !requests.is_empty() {
                count_memory_pinning();
                count_assignment(Resource::Memory, Assignment::PodExclusive);
                subtract(&mut left, &requests);
                parts.insert(container.name.as_str(), requests);
            }
        }
        for container in pod.all_containers() {
            parts.entry(container.name.as_str()).or_insert_with(|| {
                count_assignment(Resource::Memory, Assignment::PodShared);
                left.clone()
            });
        }
        Ok(parts)
    }
}

/// Blocks of these sizes; none for zero bytes.
fn blocks(nodes: &[usize], sizes: MemoryRequests) -> Vec<MemoryBlock> {
    let sizes = sizes.into_iter().filter(|(_, size)| *size > 0);
    sizes
        .map(|(resource, size)| MemoryBlock {
            nodes: nodes.to_vec(),
            resource,
            size,
        })
        .collect()
}

fn subtract(left: &mut MemoryRequests, requests: &MemoryRequests) {
    for (resource, size) in requests {
        if let Some(left) = left.get_mut(resource) {
            *left = left.saturating_sub(*size);
        }
    }
}

/// Checks that memory is left for each container that shares that of the pod (`validatePodScopeResources`).
pub(super) fn check_shared_pool(gates: Gates, pod: &Pod) -> Result<(), String> {
    let sizes = |container| container_memory(gates, pod, container).map_err(|error| error.to_string());
    let of_pod = pod_memory(gates, pod).map_err(|error| error.to_string())?;
    let mut exclusive = MemoryRequests::new();
    let add = |exclusive: &mut MemoryRequests, requests: MemoryRequests| {
        for (resource, size) in requests {
            *exclusive.entry(resource).or_default() += size;
        }
    };
    let used_up = |exclusive: &MemoryRequests| {
        let mut resources = of_pod.iter();
        let used = resources
            .find(|(resource, size)| exclusive.get(*resource).copied().unwrap_or_default() >= **size);
        used.map(|(resource, _)| resource.clone())
    };
    let mut some_share = false;
    for container in init_containers(pod) {
        let requests = sizes(container)?;
        if is_sidecar(container) {
            some_share |= requests.is_empty();
            add(&mut exclusive, requests);
        } else if requests.is_empty()
            && let Some(resource) = used_up(&exclusive)
        {
            return Err(format!(
                "pod rejected, pod has shared init containers but no {resource} available for them"
            ));
        }
    }
    for container in app_containers(pod) {
        let requests = sizes(container)?;
        some_share |= requests.is_empty();
        add(&mut exclusive, requests);
    }
    match used_up(&exclusive).filter(|_| some_share) {
        Some(resource) => Err(format!(
            "pod rejected, sum of exclusive container {resource} requests equals pod budget, leaving no memory for shared \
             containers"
        )),
        None => Ok(()),
    }
}
