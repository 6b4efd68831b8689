//! The pods, with all numbers from the runtime (`listPodStatsStrictlyFromCRI`, gate `PodAndContainerStatsFromCRI`).

use kubelet_core::stats::{IoStats, NetworkStats, PodStats, ProcessStats, RuntimePodUsage, SwapStats};

use super::matching::Listed;
use super::pods::pod_of;
use super::storage::Storage;
use super::{NodeSummary, time};
use crate::reading::FileSystem;

impl NodeSummary {
    pub(super) async fn strict_pods(
        &self,
        usages: Vec<RuntimePodUsage>,
        listed: &Listed,
        root_fs: &FileSystem,
        update: bool,
    ) -> Vec<PodStats> {
        let mut storage = Storage::new(self, root_fs);
        let mut pods = Vec::new();
        for usage in usages {
            let Some(sandbox) = listed.sandboxes.get(&usage.sandbox_id) else {
                continue;
            };
            let mut pod = pod_of(sandbox);
            for of_container in &usage.containers {
                let Some(container) = listed.containers.get(&of_container.id) else {
                    continue;
                };
                let mut stats = self.runtime_container(of_container, container, update);
                storage.add_rootfs_capacity(&mut stats, of_container).await;
                pod.containers.get_or_insert_default().push(stats);
            }
            self.add_pod(&mut pod, &usage);
            pod.network = usage.network.map(|network| NetworkStats {
                time: time(network.timestamp),
                default_interface: network.default_interface,
                interfaces: network.interfaces,
            });
            pod.process_stats = usage.processes.map(|processes| ProcessStats {
                process_count: Some(processes),
            });
            pod.io = usage.io.filter(|_| self.inner.config.psi).map(|io| IoStats {
                time: time(io.timestamp),
                psi: io.psi,
            });
            pods.push(pod);
        }
        storage.finish(&mut pods).await;
        pods
    }

    pub(super) fn strict_cpu_and_memory(
        &self,
        usages: Vec<RuntimePodUsage>,
        listed: &Listed,
    ) -> Vec<PodStats> {
        let mut pods = Vec::new();
        for usage in usages {
            let Some(sandbox) = listed.sandboxes.get(&usage.sandbox_id) else {
                continue;
            };
            let mut pod = pod_of(sandbox);
            for of_container in &usage.containers {
                let Some(container) = listed.containers.get(&of_container.id) else {
                    continue;
                };
                let stats = self.runtime_cpu_and_memory(of_container, container);
                pod.containers.get_or_insert_default().push(stats);
            }
            self.add_pod(&mut pod, &usage);
            pod.swap = swap_of_containers(&pod);
            pods.push(pod);
        }
        pods
    }

    /// (`addCRIPodCPUStats`, `addCRIPodMemoryStats`)
    fn add_pod(&self, pod: &mut PodStats, usage: &RuntimePodUsage) {
        pod.cpu = usage.cpu.as_ref().map(|cpu| self.runtime_cpu(cpu));
        pod.memory = usage.memory.as_ref().map(|memory| self.runtime_memory(memory));
    }
}

/// The runtime reports no swap of pods (`aggregatePodSwapStats`).
fn swap_of_containers(pod: &PodStats) -> Option<SwapStats> {
    let containers = pod.containers.iter().flatten();
    let swaps: Vec<&SwapStats> = containers
        .filter_map(|container| container.swap.as_ref())
        .collect();
    let last = swaps.last()?;
    let sum = |of: fn(&SwapStats) -> Option<u64>| {
        Some(
            swaps
                .iter()
                .filter_map(|swap| of(swap))
                .fold(0, u64::saturating_add),
        )
    };
    Some(SwapStats {
        time: last.time.clone(),
        swap_available_bytes: sum(|swap| swap.swap_available_bytes),
        swap_usage_bytes: sum(|swap| swap.swap_usage_bytes),
    })
}
