//! CPUs for a pod with pod-level resources: one set for the pod, divided among its containers.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::PodExt;

use super::policy::{Outcome, StaticPolicy};
use super::state::CpuState;
use super::take::take_cpus;
use crate::cpu_set::CpuSet;
use crate::metrics::{Assignment, Resource, count_allocation, count_assignment, count_cpu_pinning};
use crate::requests::{
    Gates, app_containers, exclusive_cpus, exclusive_cpus_of_pod, init_containers, is_sidecar,
};
use crate::topology::TopologyHint;
use crate::{Error, Result};

impl StaticPolicy {
    /// Allocates for the whole pod, and divides the CPUs (`AllocatePod`).
    pub(super) fn allocate_pod(
        &self,
        state: &mut CpuState,
        pod: &Arc<Pod>,
        hint: TopologyHint,
    ) -> Result<Outcome> {
        let requested = exclusive_cpus_of_pod(self.gates, pod);
        if requested == 0 {
            return Ok(Outcome::Shared);
        }
        // The kubelet would allocate a second time when it admits the pod again after a restart.
        if state.pods.contains_key(pod.uid_str()) {
            return Ok(Outcome::Present);
        }
        check_shared_pool(self.gates, pod).map_err(Error::EmptyPodSharedPool)?;
        self.check_whole_cores(state, requested)?;
        let cpus = self.choose(state, requested, hint.nodes, &CpuSet::new())?;
        let parts = self.divide(pod, &cpus)?;
        state.shared = state.shared.difference(&cpus);
        for (container, cpus) in parts {
            state.set(pod.uid_str(), container, cpus);
            count_allocation(Resource::Cpu, true);
        }
        let aligned = self.topology.share_a_cache(&cpus);
        state.pods.insert(pod.uid_str().to_owned(), cpus);
        Ok(Outcome::Exclusive { one_cache: aligned })
    }

    /// The CPUs of each container.
    fn divide<'a>(&self, pod: &'a Pod, of_pod: &CpuSet) -> Result<BTreeMap<&'a str, CpuSet>> {
        let take = |pool: &CpuSet, count| {
            count_cpu_pinning();
            let cpus = take_cpus(&self.topology, self.options, pool, count)?;
            count_assignment(Resource::Cpu, Assignment::PodExclusive);
            Ok::<_, Error>(cpus)
        };
        let mut parts = BTreeMap::new();
        let mut of_sidecars = CpuSet::new();
        for container in init_containers(pod) {
            let pool = of_pod.difference(&of_sidecars);
            match exclusive_cpus(self.gates, pod, container) {
                0 if is_sidecar(container) => {}
                0 => {
                    count_assignment(Resource::Cpu, Assignment::PodShared);
                    parts.insert(container.name.as_str(), pool);
                }
                count => {
                    let cpus = take(&pool, count)?;
                    if is_sidecar(container) {
                        of_sidecars = of_sidecars.union(&cpus);
                    }
                    parts.insert(container.name.as_str(), cpus);
                }
            }
        }
        let mut shared = of_pod.difference(&of_sidecars);
        for container in app_containers(pod) {
            let count = exclusive_cpus(self.gates, pod, container);
            if count > 0 {
                let cpus = take(&shared, count)?;
                shared = shared.difference(&cpus);
                parts.insert(container.name.as_str(), cpus);
            }
        }
        for container in pod.all_containers() {
            parts.entry(container.name.as_str()).or_insert_with(|| {
                count_assignment(Resource::Cpu, Assignment::PodShared);
                shared.clone()
            });
        }
        Ok(parts)
    }
}

/// Checks that CPUs are left for each container that shares those of the pod (`validatePodScopeResources`).
pub(super) fn check_shared_pool(gates: Gates, pod: &Pod) -> Result<(), String> {
    let of_pod = exclusive_cpus_of_pod(gates, pod);
    let (mut exclusive, mut some_share) = (0, false);
    for container in init_containers(pod) {
        let cpus = exclusive_cpus(gates, pod, container);
        if is_sidecar(container) {
            exclusive += cpus;
            some_share |= cpus == 0;
        } else if cpus == 0 && exclusive >= of_pod {
            return Err(
                "pod rejected, pod has shared init containers but no cpus available for them".to_owned(),
            );
        }
    }
    for container in app_containers(pod) {
        let cpus = exclusive_cpus(gates, pod, container);
        exclusive += cpus;
        some_share |= cpus == 0;
    }
    match some_share && exclusive >= of_pod {
        true => Err(
            "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared \
             containers"
                .to_owned(),
        ),
        false => Ok(()),
    }
}
