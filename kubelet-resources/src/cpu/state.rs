//! Which CPUs are whose (`cpumanager/state`).

use std::collections::BTreeMap;

use crate::cpu_set::CpuSet;

/// The shared pool and the CPUs that were allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuState {
    /// The CPUs of all containers without CPUs of their own (`defaultCpuSet`).
    pub shared: CpuSet,
    /// The CPUs of containers, by the pod's UID and the container's name.
    pub containers: BTreeMap<String, BTreeMap<String, CpuSet>>,
    /// The CPUs of pods with pod-level resources, by the pod's UID. Those of their containers are among them.
    pub pods: BTreeMap<String, CpuSet>,
}

impl CpuState {
    /// The CPUs that were allocated to the container.
    pub fn allocated(&self, pod_uid: &str, container: &str) -> Option<&CpuSet> {
        self.containers.get(pod_uid)?.get(container)
    }

    /// The CPUs on which the container runs: its own, or the shared ones.
    pub fn cpus(&self, pod_uid: &str, container: &str) -> &CpuSet {
        self.allocated(pod_uid, container).unwrap_or(&self.shared)
    }

    /// All CPUs that were allocated to containers.
    pub fn all_allocated(&self) -> CpuSet {
        let sets = self.containers.values().flat_map(BTreeMap::values);
        sets.fold(CpuSet::new(), |all, cpus| all.union(cpus))
    }

    pub(super) fn set(&mut self, pod_uid: &str, container: &str, cpus: CpuSet) {
        let of_pod = self.containers.entry(pod_uid.to_owned()).or_default();
        of_pod.insert(container.to_owned(), cpus);
    }

    pub(super) fn remove(&mut self, pod_uid: &str, container: &str) -> Option<CpuSet> {
        let of_pod = self.containers.get_mut(pod_uid)?;
        let cpus = of_pod.remove(container);
        if of_pod.is_empty() {
            self.containers.remove(pod_uid);
        }
        cpus
    }

    /// The CPUs of all containers of the pod.
    pub(super) fn of_pod(&self, pod_uid: &str) -> CpuSet {
        let sets = self
            .containers
            .get(pod_uid)
            .into_iter()
            .flat_map(BTreeMap::values);
        sets.fold(CpuSet::new(), |all, cpus| all.union(cpus))
    }
}
