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

    /// The CPU and memory of the container and of its pod are among the readings.
    pub(super) fn show_cpu_and_memory(
        &self,
        (container, sandbox): (&RuntimeContainer, &RuntimeSandbox),
    ) -> bool {
        let reading = self.containers.get(container.id.as_str());
        reading.is_some_and(|reading| reading.spec.memory.is_some()) && self.pods.contains_key(&sandbox.uid)
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
    pub(super) containers: BTreeMap<String, RuntimeContainer>,
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

    /// A container that runs, and its sandbox.
    pub(super) fn find(&self, id: &str) -> Option<(&RuntimeContainer, &RuntimeSandbox)> {
        let container = self.containers.get(id)?;
        Some((container, self.sandboxes.get(&container.sandbox_id)?))
    }

    /// All of them, by id.
    pub(super) fn running(&self) -> impl Iterator<Item = (&RuntimeContainer, &RuntimeSandbox)> {
        self.containers.keys().filter_map(|id| self.find(id))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::reading::{ContainerRecord, CpuSpec, Interface, MemorySpec, Spec};

    /// A container `main` of the pod `web`.
    fn reading(id: &str, created: i64, rate: Option<u64>, rss: u64) -> (Arc<str>, Arc<Reading>) {
        let name: Arc<str> = format!("/kubepods/poda/{id}").into();
        let mut reading = Reading {
            name: name.clone(),
            spec: Arc::new(Spec {
                creation_time: Timestamp::from_second(created).ok(),
                cpu: Some(CpuSpec::default()),
                memory: Some(MemorySpec::default()),
                ..Default::default()
            }),
            cpu_rate: rate,
            container: Some(Arc::new(ContainerRecord {
                id: id.to_owned(),
                name: "main".to_owned(),
                ..Default::default()
            })),
            pod: Some(Arc::new(PodRef {
                namespace: "default".to_owned(),
                name: "web".to_owned(),
                uid: "a".to_owned(),
            })),
            ..Default::default()
        };
        reading.usage.memory.rss = rss;
        (name, Arc::new(reading))
    }

    fn chosen(readings: Vec<(Arc<str>, Arc<Reading>)>) -> Vec<String> {
        let snapshot = Snapshot {
            cgroups: readings.into_iter().collect(),
            ..Default::default()
        };
        let readings = Readings::of(&snapshot);
        let mut chosen: Vec<String> = readings.containers.keys().map(|id| (*id).to_owned()).collect();
        chosen.sort();
        chosen
    }

    #[test]
    fn of_a_container_that_restarted_the_one_that_runs_counts() {
        let old = || reading("old", 10, Some(5), 5);
        let young = || reading("young", 20, Some(5), 5);
        assert_eq!(chosen(vec![old(), young()]), ["young"]);
        // The young one has ended, or was never read before.
        assert_eq!(chosen(vec![old(), reading("young", 20, Some(0), 5)]), ["old"]);
        assert_eq!(chosen(vec![old(), reading("young", 20, None, 5)]), ["old"]);
        assert_eq!(chosen(vec![old(), reading("young", 20, Some(5), 0)]), ["old"]);
        let ended = reading("old", 10, Some(0), 0);
        assert_eq!(chosen(vec![ended.clone(), young()]), ["young"]);
        assert_eq!(chosen(vec![ended, reading("young", 20, Some(0), 0)]), [""; 0]);
        // At the same time: the one that runs.
        assert_eq!(
            chosen(vec![reading("a", 10, Some(5), 5), reading("b", 10, Some(0), 5)]),
            ["a"]
        );
    }

    #[test]
    fn a_cgroup_that_uses_nothing_is_of_a_container_that_ended() {
        assert_eq!(chosen(vec![reading("a", 10, Some(0), 5)]), ["a"], "it is idle");
        assert_eq!(chosen(vec![reading("a", 10, Some(5), 0)]), ["a"]);
        assert_eq!(chosen(vec![reading("a", 10, Some(0), 0)]), [""; 0]);
        assert_eq!(
            chosen(vec![reading("a", 10, None, 5)]),
            [""; 0],
            "the runtime's numbers are shown"
        );
        let (name, mut sandbox) = reading("a", 10, Some(0), 0);
        let reading = Arc::make_mut(&mut sandbox);
        Arc::make_mut(&mut reading.spec).has_network = true;
        reading.usage.network.interfaces.push(Interface {
            rx_bytes: 1,
            ..Default::default()
        });
        assert_eq!(chosen(vec![(name, sandbox)]), ["a"], "it has traffic");
    }

    #[test]
    fn of_several_sandboxes_those_that_are_ready_count() {
        let sandbox = |id: &str, second, ready| RuntimeSandbox {
            id: id.to_owned(),
            pod: "web".to_owned(),
            created_at: Timestamp::from_second(second).ok(),
            ready,
            ..Default::default()
        };
        let ids = |sandboxes: Vec<RuntimeSandbox>| -> Vec<String> {
            let list = RuntimeList {
                sandboxes,
                ..Default::default()
            };
            Listed::of(list).sandboxes.into_keys().collect()
        };
        assert_eq!(ids(vec![sandbox("a", 1, false)]), ["a"]);
        assert_eq!(ids(vec![sandbox("a", 1, true), sandbox("b", 2, false)]), ["a"]);
        assert_eq!(ids(vec![sandbox("a", 1, false), sandbox("b", 2, false)]), ["b"]);
        assert_eq!(
            ids(vec![sandbox("a", 1, true), sandbox("b", 2, true)]),
            ["a", "b"]
        );
    }
}
