//! The static policy: containers of guaranteed pods that request whole CPUs get them for themselves.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::PodExt;

use super::options::CpuPolicyOptions;
use super::state::CpuState;
use super::take::take_cpus;
use super::topology::CpuTopology;
use crate::cpu_set::CpuSet;
use crate::numa_set::NumaSet;
use crate::requests::{Gates, ends_before_next, exclusive_cpus};
use crate::topology::TopologyHint;
use crate::{Error, Result};

/// The policy (`staticPolicy`). It changes a [`CpuState`] and does no I/O.
#[derive(Clone, Debug)]
pub(crate) struct StaticPolicy {
    pub(super) topology: CpuTopology,
    pub(super) options: CpuPolicyOptions,
    pub(super) gates: Gates,
    pub(super) reserved: CpuSet,
    /// The reserved CPUs and the others of their cores.
    reserved_cores: CpuSet,
    /// The CPUs of the init containers of the pod that was admitted last, with its UID: its next containers may get them.
    reusable: Option<(String, CpuSet)>,
}

/// What an allocation did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The container shares CPUs.
    Shared,
    /// It has CPUs already.
    Present,
    /// It got CPUs.
    Exclusive {
        /// They share one cache.
        one_cache: bool,
    },
}

impl StaticPolicy {
    /// The policy for this machine (`NewStaticPolicy`). `reserved` are the CPUs that are never exclusive; if empty, they are
    /// chosen.
    ///
    /// # Errors
    ///
    /// If there are not `reserved_count` of them, or they do not exist.
    pub(super) fn new(
        topology: CpuTopology,
        options: CpuPolicyOptions,
        gates: Gates,
        reserved: CpuSet,
        reserved_count: usize,
    ) -> Result<Self> {
        let refused = |reason: String| Err(Error::Refused(reason));
        let reserved = match reserved.is_empty() {
            true => take_cpus(&topology, options, &topology.cpus, reserved_count).unwrap_or_default(),
            false => reserved,
        };
        if reserved.len() != reserved_count {
            return refused(format!(
                "[cpumanager] unable to reserve the required amount of CPUs (size of {reserved} did not equal \
                 {reserved_count})"
            ));
        }
        if let Some(unknown) = reserved.difference(&topology.cpus).iter().next() {
            return refused(format!(
                "[cpumanager] unable to build the reserved physical CPUs from the reserved set: unknown CPU ID: \
                 {unknown}"
            ));
        }
        let reserved_cores = topology.whole_cores(&reserved);
        tracing::info!(%reserved, cores = %reserved_cores, ?options, "static CPU policy");
        Ok(Self {
            topology,
            options,
            gates,
            reserved,
            reserved_cores,
            reusable: None,
        })
    }

    /// The CPUs that can be allocated at all (`GetAllocatableCPUs`).
    pub(super) fn allocatable(&self) -> CpuSet {
        self.topology.cpus.difference(&self.reserved)
    }

    /// The CPUs that can be allocated now (`GetAvailableCPUs`).
    pub(super) fn available(&self, state: &CpuState) -> CpuSet {
        state.shared.difference(&self.reserved)
    }

    /// The CPUs that the pod's next containers may get again.
    pub(super) fn reusable(&self, pod_uid: &str) -> CpuSet {
        match &self.reusable {
            Some((uid, cpus)) if uid == pod_uid => cpus.clone(),
            _ => CpuSet::new(),
        }
    }

    /// Fills an empty state, and checks one that was read (`validateState`).
    ///
    /// # Errors
    ///
    /// If the state does not suit the machine or the configuration.
    pub(super) fn check_state(&self, state: &mut CpuState) -> Result<()> {
        let refused = |reason: String| Err(Error::Refused(reason));
        let strict = self.options.strict_reservation;
        let reserved = &self.reserved;
        let available = match strict {
            true => self.topology.cpus.difference(reserved),
            false => self.topology.cpus.clone(),
        };
        if state.shared.is_empty() && state.containers.is_empty() {
            state.shared = available;
            return Ok(());
        }
        // Under a strict reservation all other CPUs can be exclusive. The kubelet refuses this state, too, although it has
        // written it.
        let known = self.known_cpus(state);
        if state.shared.is_empty() && !(strict && known == available) {
            return refused("default cpuset cannot be empty".to_owned());
        }
        let shared_and_reserved = reserved.intersection(&state.shared);
        if strict && !shared_and_reserved.is_empty() {
            return refused(format!(
                "some of strictly reserved cpus: \"{shared_and_reserved}\" are present in defaultCpuSet: \"{}\"",
                state.shared
            ));
        }
        if !strict && shared_and_reserved != *reserved {
            return refused(format!(
                "not all reserved cpus: \"{reserved}\" are present in defaultCpuSet: \"{}\"",
                state.shared
            ));
        }
        for (pod, containers) in &state.containers {
            for (container, cpus) in containers {
                if !state.shared.is_disjoint(cpus) {
                    return refused(format!(
                        "pod: {pod}, container: {container} cpuset: \"{cpus}\" overlaps with default cpuset \"{}\"",
                        state.shared
                    ));
                }
            }
        }
        if known != available {
            return refused(format!(
                "current set of available CPUs \"{available}\" doesn't match with CPUs in state \"{known}\""
            ));
        }
        Ok(())
    }

    /// All CPUs of the state.
    fn known_cpus(&self, state: &CpuState) -> CpuSet {
        let known = state.shared.union(&state.all_allocated());
        match self.gates.pod_level_resource_managers {
            true => state.pods.values().fold(known, |known, cpus| known.union(cpus)),
            false => known,
        }
    }

    /// Allocates for a container (`Allocate`).
    ///
    /// # Errors
    ///
    /// If there are too few CPUs, or the request is no multiple of a core and must be.
    pub(super) fn allocate(
        &mut self,
        state: &mut CpuState,
        pod: &Arc<Pod>,
        container: &Container,
        hint: TopologyHint,
    ) -> Result<Outcome> {
        let requested = exclusive_cpus(self.gates, pod, container);
        if requested == 0 || self.gates.ignore_pod(pod) {
            return Ok(Outcome::Shared);
        }
        // The kubelet looks for free cores first, and so rejects a running pod after a restart if the node is full.
        if let Some(cpus) = state.allocated(pod.uid_str(), &container.name) {
            let cpus = cpus.clone();
            self.update_reusable(pod, container, &cpus);
            return Ok(Outcome::Present);
        }
        self.check_whole_cores(state, requested)?;
        let reusable = self.reusable(pod.uid_str());
        let cpus = self.choose(state, requested, hint.nodes, &reusable)?;
        state.shared = state.shared.difference(&cpus);
        self.update_reusable(pod, container, &cpus);
        let one_cache = self.topology.share_a_cache(&cpus);
        tracing::info!(pod = %pod.key(), container = container.name, %cpus, "allocated exclusive CPUs");
        state.set(pod.uid_str(), &container.name, cpus);
        Ok(Outcome::Exclusive { one_cache })
    }

    /// Frees what the container has (`RemoveContainer`). What its init containers share with others stays allocated.
    pub(super) fn release(&mut self, state: &mut CpuState, pod_uid: &str, container: &str) {
        let Some(cpus) = state.remove(pod_uid, container) else {
            return;
        };
        if self.gates.pod_level_resource_managers && state.pods.contains_key(pod_uid) {
            if !state.containers.contains_key(pod_uid)
                && let Some(of_pod) = state.pods.remove(pod_uid)
            {
                state.shared = state.shared.union(&of_pod);
            }
            return;
        }
        let freed = cpus.difference(&state.of_pod(pod_uid));
        state.shared = state.shared.union(&freed);
        tracing::info!(pod_uid, container, cpus = %freed, "released exclusive CPUs");
    }

    /// Under `full-pcpus-only`: whether whole cores are requested, and enough are free (`enforceSMTAlignment`).
    pub(super) fn check_whole_cores(&self, state: &CpuState, requested: usize) -> Result<()> {
        if !self.options.full_physical_cpus_only {
            return Ok(());
        }
        let cpus_per_core = self.topology.cpus_per_core();
        if !requested.is_multiple_of(cpus_per_core.max(1)) {
            return Err(Error::SmtAlignment {
                requested,
                cpus_per_core,
            });
        }
        let available = state.shared.difference(&self.reserved_cores).len();
        match requested > available {
            true => Err(Error::TooFewCores {
                available,
                requested,
                cpus_per_core,
            }),
            false => Ok(()),
        }
    }

    /// Chooses CPUs: on these nodes as far as possible, then on others (`allocateCPUs`).
    pub(super) fn choose(
        &self,
        state: &CpuState,
        count: usize,
        nodes: Option<NumaSet>,
        reusable: &CpuSet,
    ) -> Result<CpuSet> {
        let free = self.available(state).union(reusable);
        let mut cpus = CpuSet::new();
        if let Some(nodes) = nodes {
            let aligned = free.intersection(&self.aligned_with(nodes));
            let here = count.min(aligned.len());
            cpus = take_cpus(&self.topology, self.options, &aligned, here)?;
        }
        let others = free.difference(&cpus);
        let rest = take_cpus(&self.topology, self.options, &others, count - cpus.len())?;
        Ok(cpus.union(&rest))
    }

    /// The CPUs of these nodes, or of their sockets (`getAlignedCPUs`).
    fn aligned_with(&self, nodes: NumaSet) -> CpuSet {
        match self.options.align_by_socket {
            true => {
                let sockets = self.topology.sockets_of(nodes);
                self.topology.sockets.union(sockets.iter())
            }
            false => self.topology.numa.union(nodes.iter()),
        }
    }

    /// Notes what the next containers of the pod may get again: the CPUs of init containers that end before
    /// (`updateCPUsToReuse`).
    fn update_reusable(&mut self, pod: &Pod, container: &Container, cpus: &CpuSet) {
        let before = self.reusable(pod.uid_str());
        let after = match ends_before_next(pod, container) {
            true => before.union(cpus),
            false => before.difference(cpus),
        };
        self.reusable = Some((pod.uid_str().to_owned(), after));
    }
}
