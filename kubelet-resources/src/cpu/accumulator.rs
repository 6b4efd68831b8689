//! Takes CPUs from those that are free, group by group (`cpuAccumulator`).

use super::topology::{CpuTopology, Groups};
use crate::cpu_set::CpuSet;

/// The CPUs that are still free, and those that were taken.
pub(super) struct Accumulator<'a> {
    pub(super) topology: &'a CpuTopology,
    pub(super) free: CpuSet,
    pub(super) taken: CpuSet,
    /// How many CPUs are still to be taken.
    pub(super) needed: usize,
    /// Whether single CPUs are taken from different cores (`CPUSortingStrategySpread`).
    pub(super) spread: bool,
}

impl<'a> Accumulator<'a> {
    pub(super) fn new(topology: &'a CpuTopology, available: &CpuSet, count: usize, spread: bool) -> Self {
        Self {
            topology,
            free: available.intersection(&topology.cpus),
            taken: CpuSet::new(),
            needed: count,
            spread,
        }
    }

    pub(super) fn take(&mut self, cpus: &CpuSet) {
        self.free = self.free.difference(cpus);
        self.taken = self.taken.union(cpus);
        self.needed = self.needed.saturating_sub(cpus.len());
    }

    /// Takes whole groups that are free: sockets, then NUMA nodes; the larger ones first.
    pub(super) fn take_sockets_and_nodes(&mut self) {
        if self.nodes_contain_sockets() {
            self.take_nodes();
            self.take_sockets();
        } else {
            self.take_sockets();
            self.take_nodes();
        }
    }

    /// Takes whole caches while as many CPUs are needed, then the rest from one cache (`takeUncoreCache`).
    pub(super) fn take_caches(&mut self) {
        for cache in self.sorted_caches() {
            if self.needed >= self.topology.cpus_per_cache() {
                self.take_whole_caches();
            }
            if self.needed == 0 {
                return;
            }
            self.take_part_of_cache(cache);
            if self.needed == 0 {
                return;
            }
        }
    }

    /// Takes whole cores that are free.
    pub(super) fn take_cores(&mut self) {
        let topology = self.topology;
        let per_core = topology.cpus_per_core();
        let cores = self.sorted_cores().into_iter();
        let free: Vec<usize> = cores
            .filter(|core| self.is_free(&topology.cores, *core, per_core))
            .collect();
        self.take_groups(&topology.cores, free);
    }

    /// Takes single CPUs.
    pub(super) fn take_cpus(&mut self) {
        for cpu in self.sorted_cpus() {
            if self.needed == 0 {
                return;
            }
            self.take(&CpuSet::from_iter([cpu]));
        }
    }

    /// The NUMA nodes with free CPUs: those with few of them first, within their sockets if sockets contain nodes.
    pub(super) fn sorted_nodes(&self) -> Vec<usize> {
        let topology = self.topology;
        if self.nodes_contain_sockets() {
            return self.sorted(&topology.numa, &self.free);
        }
        let sockets = self.sorted_sockets().into_iter();
        let within = |socket| self.sorted(&topology.numa, &self.free_cpus(&topology.sockets, socket));
        sockets.flat_map(within).collect()
    }

    /// How many CPUs of the group are free.
    pub(super) fn free_in(&self, groups: &Groups, id: usize) -> usize {
        groups.cpus(id).intersection_len(&self.free)
    }

    /// Whether the whole group is free, and has the usual number of CPUs.
    ///
    /// The kubelet compares numbers only. On a machine with unequal groups, e.g. with CPUs that are offline, it takes CPUs that
    /// another container has.
    fn is_free(&self, groups: &Groups, id: usize, usual: usize) -> bool {
        let cpus = groups.cpus(id);
        cpus.len() == usual && cpus.is_subset(&self.free)
    }

    pub(super) fn free_cpus(&self, groups: &Groups, id: usize) -> CpuSet {
        groups.cpus(id).intersection(&self.free)
    }

    /// Whether a NUMA node has one or more whole sockets. Otherwise a socket has several nodes.
    fn nodes_contain_sockets(&self) -> bool {
        self.topology.sockets.len() >= self.topology.numa.len()
    }

    fn take_nodes(&mut self) {
        let topology = self.topology;
        let nodes = self.sorted_nodes().into_iter();
        let free: Vec<usize> = nodes
            .filter(|node| topology.numa.cpus(*node).is_subset(&self.free))
            .collect();
        self.take_groups(&topology.numa, free);
    }

    fn take_sockets(&mut self) {
        let topology = self.topology;
        let per_socket = topology.cpus_per_socket();
        let sockets = self.sorted_sockets().into_iter();
        let free: Vec<usize> = sockets
            .filter(|socket| self.is_free(&topology.sockets, *socket, per_socket))
            .collect();
        self.take_groups(&topology.sockets, free);
    }

    fn take_whole_caches(&mut self) {
        let topology = self.topology;
        let caches = self.sorted_caches().into_iter();
        let free: Vec<usize> = caches
            .filter(|cache| topology.caches.cpus(*cache).is_subset(&self.free))
            .collect();
        self.take_groups(&topology.caches, free);
    }

    /// Takes each group of which all CPUs are needed.
    fn take_groups(&mut self, groups: &Groups, ids: Vec<usize>) {
        for id in ids {
            let cpus = groups.cpus(id);
            if self.needed >= cpus.len() {
                self.take(cpus);
            }
        }
    }

    /// Takes all that is needed from this cache, or nothing (`takePartialUncore`).
    fn take_part_of_cache(&mut self, cache: usize) {
        let topology = self.topology;
        let per_core = topology.cpus_per_core();
        let in_cache = self.free_cpus(&topology.caches, cache);
        let cores: CpuSet = in_cache.iter().filter_map(|cpu| topology.cores.of(cpu)).collect();
        let enough = self.needed.div_ceil(per_core.max(1));
        let cpus = topology
            .cores
            .union(cores.iter().take(enough))
            .intersection(&self.free);
        // An odd number of CPUs leaves the other half of the last core.
        let odd = !self.needed.is_multiple_of(2) && per_core > 1 && cpus.len() > self.needed;
        let cpus: CpuSet = cpus.iter().take(cpus.len() - usize::from(odd)).collect();
        if cpus.len() == self.needed {
            self.take(&cpus);
        }
    }

    fn sorted_sockets(&self) -> Vec<usize> {
        let topology = self.topology;
        if !self.nodes_contain_sockets() {
            return self.sorted(&topology.sockets, &self.free);
        }
        let nodes = self.sorted(&topology.numa, &self.free).into_iter();
        let within = |node| self.sorted(&topology.sockets, &self.free_cpus(&topology.numa, node));
        nodes.flat_map(within).collect()
    }

    fn sorted_caches(&self) -> Vec<usize> {
        let topology = self.topology;
        let nodes = self.sorted_nodes().into_iter();
        let within = |node| self.sorted(&topology.caches, &self.free_cpus(&topology.numa, node));
        nodes.flat_map(within).collect()
    }

    fn sorted_cores(&self) -> Vec<usize> {
        let topology = self.topology;
        let (outer, groups) = match self.nodes_contain_sockets() {
            true => (self.sorted_sockets(), &topology.sockets),
            false => (self.sorted_nodes(), &topology.numa),
        };
        let within = |id| self.sorted(&topology.cores, &self.free_cpus(groups, id));
        outer.into_iter().flat_map(within).collect()
    }

    fn sorted_cpus(&self) -> Vec<usize> {
        let topology = self.topology;
        let (outer, groups) = match self.spread {
            true => (self.sorted_sockets(), &topology.sockets),
            false => (self.sorted_cores(), &topology.cores),
        };
        let within = |id| self.free_cpus(groups, id).iter().collect::<Vec<_>>();
        outer.into_iter().flat_map(within).collect()
    }

    /// The groups of these CPUs: those with few free CPUs first, then by id. A group counts with all its free CPUs, not just
    /// these.
    fn sorted(&self, groups: &Groups, cpus: &CpuSet) -> Vec<usize> {
        let ids: CpuSet = cpus.iter().filter_map(|cpu| groups.of(cpu)).collect();
        let mut ids: Vec<usize> = ids.iter().collect();
        ids.sort_by_key(|id| (self.free_in(groups, *id), *id));
        ids
    }
}
