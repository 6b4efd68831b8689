//! Which cgroup belongs to which container, and which pods and containers count.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kubelet_core::stats::{RuntimeContainer, RuntimeList, RuntimeSandbox};

use crate::cgroup_name::pod_uid;
use crate::reading::{PodRef, Reading, Snapshot};

/// The readings of containers and pods.
pub(super) struct Readings<'a> {
    /// By the id of the container or sandbox. Containers that have ended are missing.
    pub(super) containers: HashMap<&'a str, &'a Arc<Reading>>,
    /// By the UID of the pod.
    pub(super) pods: HashMap<String, &'a Arc<Reading>>,
}

/// The id of a container, and its reading.
type OfContainer<'a> = (&'a str, &'a Arc<Reading>);

impl<'a> Readings<'a> {
    /// (`getCRICadvisorStats`)
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        let mut pods = HashMap::new();
        let mut same: BTreeMap<(&PodRef, &str), Vec<OfContainer<'a>>> = BTreeMap::new();
        for (name, reading) in &snapshot.cgroups {
            if let (Some(container), Some(pod)) = (&reading.container, &reading.pod) {
                let readings = same.entry((pod, &container.name)).or_default();
                readings.push((&container.id, reading));
            } else if let Some(uid) = pod_uid(name) {
                pods.insert(uid, reading);
            }
        }
        let mut containers = HashMap::new();
        for (_, mut readings) in same {
            // Of several containers of one name, only the youngest one that runs counts
            // (`filterTerminatedContainerInfoAndAssembleByPodCgroupKey`).
            readings.sort_by_key(|(_, reading)| (reading.spec.creation_time, runs(reading)));
            let chosen = match readings.as_slice() {
                [only] => Some(*only).filter(|(_, reading)| !has_ended(reading)),
                several => several.iter().rev().find(|(_, reading)| runs(reading)).copied(),
            };
            containers.extend(chosen);
        }
        Self { containers, pods }
    }
}

/// It uses CPU time now, and memory (`hasMemoryAndCPUInstUsage`).
fn runs(reading: &Reading) -> bool {
    reading.spec.memory.is_some()
        && reading.cpu_rate.is_some_and(|rate| rate != 0)
        && reading.usage.memory.rss != 0
}

/// It uses neither CPU time nor memory nor network: a container that ended, whose cgroup remains (`isContainerTerminated`).
fn has_ended(reading: &Reading) -> bool {
    if reading.spec.cpu.is_none() && reading.spec.memory.is_none() && !reading.spec.has_network {
        return true;
    }
    let has_traffic = reading.usage.network.interfaces.iter().any(|interface| {
        [
            interface.rx_bytes,
            interface.tx_bytes,
            interface.rx_errors,
            interface.tx_errors,
        ] != [0; 4]
    });
    if reading.spec.has_network && has_traffic {
        return false;
    }
    match reading.cpu_rate {
        Some(rate) => rate == 0 && reading.usage.memory.rss == 0,
        // The first reading. The kubelet takes such a container for ended, and shows what the runtime reports.
        None => true,
    }
}

/// The sandboxes and containers that count, by id (`getPodAndContainerMaps`).
pub(super) struct Listed {
    pub(super) sandboxes: BTreeMap<String, RuntimeSandbox>,
    pub(super) containers: HashMap<String, RuntimeContainer>,
}

impl Listed {
    pub(super) fn of(list: RuntimeList) -> Self {
        let mut by_pod: BTreeMap<(String, String), Vec<RuntimeSandbox>> = BTreeMap::new();
        for sandbox in list.sandboxes {
            let pod = (sandbox.namespace.clone(), sandbox.pod.clone());
            by_pod.entry(pod).or_default().push(sandbox);
        }
        let mut sandboxes = BTreeMap::new();
        for (_, mut of_pod) in by_pod {
            // A pod may have been created anew, or its sandbox (`removeTerminatedPods`).
            if of_pod.len() > 1 && of_pod.iter().any(|sandbox| sandbox.ready) {
                of_pod.retain(|sandbox| sandbox.ready);
            } else if of_pod.len() > 1 {
                of_pod.sort_by_key(|sandbox| std::cmp::Reverse(sandbox.created_at));
                of_pod.truncate(1);
            }
            sandboxes.extend(of_pod.into_iter().map(|sandbox| (sandbox.id.clone(), sandbox)));
        }
        let containers = list.containers.into_iter().filter(|container| container.running);
        Self {
            sandboxes,
            containers: containers
                .map(|container| (container.id.clone(), container))
                .collect(),
        }
    }
}
