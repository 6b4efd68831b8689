//! On which NUMA nodes devices are available.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::{PodExt, pod_limit};

use super::DeviceState;
use crate::numa_set::NumaSet;
use crate::topology::{ResourceHints, TopologyHint};

impl DeviceState {
    /// The hints for a container (`GetTopologyHints`).
    pub fn container_hints(&self, pod: &Pod, container: &Container) -> ResourceHints {
        let uid = pod.uid_str();
        let hints = |(resource, requested): (String, usize)| {
            let allocated = self.of_container(uid, &container.name, &resource);
            let reusable = self.reusable(uid, &resource);
            let hints = self.hints(&resource, requested, allocated.unwrap_or_default(), reusable);
            (resource, hints)
        };
        self.requests(container).into_iter().map(hints).collect()
    }

    /// The hints for a whole pod (`GetPodTopologyHints`).
    pub fn pod_hints(&self, pod: &Pod) -> ResourceHints {
        let names = pod
            .all_containers()
            .flat_map(|container| self.requests(container).into_keys());
        let names: BTreeSet<String> = names.collect();
        let hints = |resource: String| {
            let limit = pod_limit(pod, &resource)?.amount;
            let requested = usize::try_from(limit.value()).unwrap_or_default();
            let allocated = self.of_pod(pod.uid_str(), &resource);
            let hints = self.hints(&resource, requested, allocated, BTreeSet::new());
            Some((resource, hints))
        };
        names.into_iter().filter_map(hints).collect()
    }

    /// `None`: no preference.
    fn hints(
        &self,
        resource: &str,
        requested: usize,
        allocated: BTreeSet<String>,
        reusable: BTreeSet<String>,
    ) -> Option<Vec<TopologyHint>> {
        if !self.has_topology(resource) {
            return None;
        }
        if !allocated.is_empty() {
            return Some(match allocated.len() == requested {
                true => self.possible_nodes(resource, &allocated, &BTreeSet::new(), requested),
                false => Vec::new(),
            });
        }
        let available = self.available(resource);
        Some(match available.union(&reusable).count() >= requested {
            true => self.possible_nodes(resource, &available, &reusable, requested),
            false => Vec::new(),
        })
    }

    /// Each set of nodes with enough devices (`generateDeviceTopologyHints`). Only nodes with devices count.
    fn possible_nodes(
        &self,
        resource: &str,
        available: &BTreeSet<String>,
        reusable: &BTreeSet<String>,
        requested: usize,
    ) -> Vec<TopologyHint> {
        let devices = self.resources.get(resource);
        // `None`: its plugin does not know its nodes.
        let nodes_of = |id: &String| {
            let device = devices.and_then(|devices| devices.get(id));
            device.and_then(|device| device.nodes.as_deref()).map(known)
        };
        let all: BTreeMap<&String, NumaSet> = devices
            .into_iter()
            .flat_map(BTreeMap::keys)
            .map(|id| (id, nodes_of(id).unwrap_or_default()))
            .collect();
        let with_devices = all.values().fold(0, |nodes, set| nodes | set.bits());
        let with_devices = NumaSet::from_bits(with_devices).and(self.nodes);
        let considered = match with_devices.is_empty() {
            true => self.nodes,
            false => with_devices,
        };
        let of = |ids: &BTreeSet<String>| -> Vec<NumaSet> {
            ids.iter().map(|id| nodes_of(id).unwrap_or_default()).collect()
        };
        let available = of(available);
        // Those without known nodes suit any.
        let reusable: Vec<NumaSet> = reusable.iter().filter_map(nodes_of).collect();

        let mut fewest = considered.len();
        let mut fitting = Vec::new();
        for set in considered.subsets() {
            let near = |nodes: &&NumaSet| !nodes.and(set).is_empty();
            if set.len() < fewest && all.values().filter(near).count() >= requested {
                fewest = set.len();
            }
            let all_reusable = reusable.iter().filter(near).count() == reusable.len();
            let matching = reusable.len() + available.iter().filter(near).count();
            if all_reusable && matching >= requested {
                fitting.push(set);
            }
        }
        let hints = fitting.into_iter();
        hints
            .map(|set| TopologyHint::new(set, set.len() == fewest))
            .collect()
    }
}

/// The nodes that a set can have.
fn known(nodes: &[i64]) -> NumaSet {
    let ids = nodes.iter().filter_map(|node| usize::try_from(*node).ok());
    NumaSet::of(ids.filter(|id| *id < NumaSet::MAX_NODES)).unwrap_or_default()
}
