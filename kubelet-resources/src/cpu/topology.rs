//! Which CPUs share a core, a cache, a socket and a NUMA node.

use std::collections::BTreeMap;

use crate::cpu_set::CpuSet;
use crate::machine::Machine;
use crate::numa_set::NumaSet;
use crate::{Error, Result};

/// The CPUs of a machine, grouped (`topology.CPUTopology`).
#[derive(Clone, Debug, Default)]
pub struct CpuTopology {
    pub(crate) cpus: CpuSet,
    pub(crate) numa: Groups,
    pub(crate) sockets: Groups,
    /// By the lowest CPU of the core: the machine's own ids are unique in a socket only.
    pub(crate) cores: Groups,
    pub(crate) caches: Groups,
    core_count: usize,
}

/// CPUs by the id of what they share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    members: BTreeMap<usize, CpuSet>,
    /// The group of each CPU.
    of_cpu: BTreeMap<usize, usize>,
}

impl Groups {
    fn add(&mut self, id: usize, cpu: usize) {
        self.members.entry(id).or_default().insert(cpu);
        self.of_cpu.insert(cpu, id);
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &CpuSet)> {
        self.members.iter().map(|(id, cpus)| (*id, cpus))
    }

    /// The CPUs of the group.
    pub(crate) fn cpus(&self, id: usize) -> &CpuSet {
        const NONE: &CpuSet = &CpuSet::EMPTY;
        self.members.get(&id).unwrap_or(NONE)
    }

    /// The group of the CPU.
    pub(crate) fn of(&self, cpu: usize) -> Option<usize> {
        self.of_cpu.get(&cpu).copied()
    }

    /// The CPUs of these groups.
    pub(crate) fn union(&self, ids: impl IntoIterator<Item = usize>) -> CpuSet {
        ids.into_iter()
            .fold(CpuSet::new(), |all, id| all.union(self.cpus(id)))
    }
}

impl CpuTopology {
    /// The topology of this machine (`topology.Discover`).
    ///
    /// # Errors
    ///
    /// If it has no CPUs, a core without CPUs or with one CPU twice, or too many NUMA nodes.
    pub fn new(machine: &Machine) -> Result<Self> {
        let refused = |reason: &str| Err(Error::Refused(reason.to_owned()));
        if machine.cpu_count() == 0 {
            return refused("could not detect number of cpus");
        }
        if machine.numa_nodes().is_none() {
            return refused("bit number must be in range 0-63");
        }
        let mut topology = Self::default();
        for (node, core) in machine.cores() {
            let threads: CpuSet = core.threads.iter().copied().collect();
            let Some(first) = threads.iter().next() else {
                return refused("no cpus provided");
            };
            if threads.len() != core.threads.len() {
                return refused("cpus provided are not unique");
            }
            topology.core_count += 1;
            for cpu in threads.iter() {
                topology.cpus.insert(cpu);
                topology.numa.add(node.id, cpu);
                topology.sockets.add(core.socket, cpu);
                topology.cores.add(first, cpu);
                topology.caches.add(core.uncore_cache.unwrap_or(core.socket), cpu);
            }
        }
        Ok(topology)
    }

    /// All CPUs.
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// The CPUs of a core.
    pub fn cpus_per_core(&self) -> usize {
        self.cpus.len().checked_div(self.core_count).unwrap_or_default()
    }

    /// The NUMA nodes that have CPUs.
    pub fn numa_nodes(&self) -> NumaSet {
        NumaSet::of(self.numa.iter().map(|(id, _)| id)).unwrap_or_default()
    }

    pub(crate) fn cpus_per_socket(&self) -> usize {
        self.cpus
            .len()
            .checked_div(self.sockets.len())
            .unwrap_or_default()
    }

    pub(crate) fn cpus_per_cache(&self) -> usize {
        self.cpus.len().checked_div(self.caches.len()).unwrap_or_default()
    }

    /// The CPUs of all cores that have one of these CPUs.
    pub(crate) fn whole_cores(&self, cpus: &CpuSet) -> CpuSet {
        self.cores.union(cpus.iter().filter_map(|cpu| self.cores.of(cpu)))
    }

    /// The sockets of the CPUs of these nodes.
    pub(crate) fn sockets_of(&self, nodes: NumaSet) -> CpuSet {
        let cpus = self.numa.union(nodes.iter());
        cpus.iter().filter_map(|cpu| self.sockets.of(cpu)).collect()
    }

    /// Whether all these CPUs share one cache.
    pub(crate) fn share_a_cache(&self, cpus: &CpuSet) -> bool {
        let mut caches = cpus.iter().map(|cpu| self.caches.of(cpu));
        match caches.next() {
            None => true,
            Some(first) => cpus.len() == 1 || (first.is_some() && caches.all(|cache| cache == first)),
        }
    }
}
