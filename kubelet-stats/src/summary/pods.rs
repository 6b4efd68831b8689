//! The pods, with a runtime: some numbers are the runtime's, most the cgroups' (`listPodStatsPartiallyFromCRI`).

use std::collections::BTreeMap;
use std::time::Duration;

use kubelet_core::stats::{
    ContainerStats, CpuStats, IoStats, MemoryStats, PodReference, PodStats, ProcessStats, RuntimeContainer,
    RuntimeContainerUsage, RuntimeSandbox, RuntimeUsages, SwapStats,
};

use super::matching::{Listed, Readings};
use super::storage::Storage;
use super::{NodeSummary, cgroup, time};
use crate::Result;
use crate::collector::DEFAULT_AGE;
use crate::reading::{FileSystem, Reading, Snapshot};

impl NodeSummary {
    /// (`ListPodStats`, `ListPodStatsAndUpdateCPUNanoCoreUsage`)
    pub(super) async fn pods(
        &self,
        snapshot: &Snapshot,
        root_fs: &FileSystem,
        update: bool,
    ) -> Result<Vec<PodStats>> {
        let Some(runtime) = &self.inner.config.runtime else {
            return Ok(self.pods_of_cgroups(snapshot));
        };
        let listed = Listed::of(runtime.list().await?);
        if self.inner.config.pod_and_container_stats_from_cri
            && let Some(usages) = runtime.pod_usages().await?
        {
            return Ok(self.strict_pods(usages, &listed, root_fs, update).await);
        }
        self.partial_pods(runtime.as_ref(), &listed, snapshot, root_fs, update)
            .await
    }

    /// (`ListPodCPUAndMemoryStats`)
    pub(super) async fn pods_cpu_and_memory(&self, snapshot: &Snapshot) -> Result<Vec<PodStats>> {
        let Some(runtime) = &self.inner.config.runtime else {
            let mut pods = self.pods_of_cgroups(snapshot);
            for pod in &mut pods {
                pod.io = None;
                pod.containers
                    .iter_mut()
                    .flatten()
                    .for_each(|container| container.io = None);
            }
            return Ok(pods);
        };
        let listed = Listed::of(runtime.list().await?);
        if self.inner.config.pod_and_container_stats_from_cri
            && let Some(usages) = runtime.pod_usages().await?
        {
            return Ok(self.strict_cpu_and_memory(usages, &listed));
        }
        let readings = Readings::of(snapshot);
        let psi = self.inner.config.psi;
        let usages = if listed.running().all(|pair| readings.show_cpu_and_memory(pair)) {
            listed
                .running()
                .map(|(container, _)| unmeasured(container))
                .collect()
        } else {
            runtime.container_usages().await?
        };
        let mut pods: BTreeMap<&str, PodStats> = BTreeMap::new();
        for usage in usages {
            let Some((container, sandbox)) = listed.find(&usage.id) else {
                continue;
            };
            let pod = pods.entry(&sandbox.id).or_insert_with(|| pod_of(sandbox));
            let mut stats = self.runtime_cpu_and_memory(&usage, container);
            let pod_reading = readings.pods.get(&sandbox.uid).copied();
            add_cpu_and_memory(pod, pod_reading.map(AsRef::as_ref), &stats, psi);
            if let Some(reading) = readings.containers.get(usage.id.as_str()) {
                replace(&mut stats, reading, psi);
                stats.io = None;
            }
            pod.containers.get_or_insert_default().push(stats);
        }
        self.inner
            .cpu_rates
            .clean_up(self.inner.collector.config().clock.now());
        Ok(pods.into_values().collect())
    }

    async fn partial_pods(
        &self,
        runtime: &dyn RuntimeUsages,
        listed: &Listed,
        snapshot: &Snapshot,
        root_fs: &FileSystem,
        update: bool,
    ) -> Result<Vec<PodStats>> {
        let readings = Readings::of(snapshot);
        let psi = self.inner.config.psi;
        let mut storage = Storage::new(self, root_fs);
        let mut pods: BTreeMap<&str, PodStats> = BTreeMap::new();
        let age = if update { Duration::ZERO } else { DEFAULT_AGE };
        let usages = self.inner.usages.within(runtime, listed, age).await?;
        for usage in usages.iter() {
            let Some((container, sandbox)) = listed.find(&usage.id) else {
                continue;
            };
            let pod = pods.entry(&sandbox.id).or_insert_with(|| pod_of(sandbox));
            let mut stats = self.runtime_container(usage, container, update);
            storage.add_rootfs_capacity(&mut stats, usage).await;
            if let Some(network) = readings.containers.get(sandbox.id.as_str()) {
                pod.network = cgroup::network(network).or(pod.network.take());
            }
            let pod_reading = readings.pods.get(&sandbox.uid).copied();
            add_cpu_and_memory(pod, pod_reading.map(AsRef::as_ref), &stats, psi);
            add_io(pod, pod_reading.map(AsRef::as_ref), &stats, psi);
            if let Some(reading) = readings.containers.get(usage.id.as_str()) {
                replace(&mut stats, reading, psi);
                let processes = cgroup::processes(reading).and_then(|processes| processes.process_count);
                if let Some(more) = processes {
                    let sum = pod.process_stats.get_or_insert_default();
                    *sum = ProcessStats {
                        process_count: Some(sum.process_count.unwrap_or(0).saturating_add(more)),
                    };
                }
            }
            pod.containers.get_or_insert_default().push(stats);
        }
        self.inner
            .cpu_rates
            .clean_up(self.inner.collector.config().clock.now());
        let mut pods: Vec<PodStats> = pods.into_values().collect();
        storage.finish(&mut pods).await;
        Ok(pods)
    }
}

/// A container of which the cgroups show everything. To measure many containers takes a runtime long.
fn unmeasured(container: &RuntimeContainer) -> RuntimeContainerUsage {
    RuntimeContainerUsage {
        id: container.id.clone(),
        name: container.name.clone(),
        ..Default::default()
    }
}

/// (`buildPodStats`)
pub(super) fn pod_of(sandbox: &RuntimeSandbox) -> PodStats {
    PodStats {
        pod_ref: PodReference {
            name: sandbox.pod.clone(),
            namespace: sandbox.namespace.clone(),
            uid: sandbox.uid.clone(),
        },
        start_time: sandbox.created_at.and_then(time),
        ..Default::default()
    }
}

/// The cgroup shows more than the runtime (`addCadvisorContainerStats`).
fn replace(stats: &mut ContainerStats, reading: &Reading, psi: bool) {
    stats.cpu = Some(cgroup::cpu(reading, psi));
    stats.memory = Some(cgroup::memory(reading, psi));
    stats.swap = cgroup::swap(reading).or(stats.swap.take());
    stats.io = cgroup::io(reading, psi).or(stats.io.take());
}

/// The numbers of the pod's cgroup. Without one, the sum of its containers (`addPodCPUMemoryStats`, `addSwapStats`).
fn add_cpu_and_memory(pod: &mut PodStats, reading: Option<&Reading>, container: &ContainerStats, psi: bool) {
    if let Some(reading) = reading {
        pod.cpu = Some(cgroup::cpu(reading, psi));
        pod.memory = Some(cgroup::memory(reading, psi));
        pod.swap = cgroup::swap(reading);
        return;
    }
    let sum = |a: Option<u64>, b: Option<u64>| Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0)));
    if let Some(more) = &container.cpu {
        let cpu = pod.cpu.take().unwrap_or_default();
        pod.cpu = Some(CpuStats {
            time: more.time.clone(),
            usage_nano_cores: sum(cpu.usage_nano_cores, more.usage_nano_cores),
            usage_core_nano_seconds: sum(cpu.usage_core_nano_seconds, more.usage_core_nano_seconds),
            psi: None,
        });
    }
    if let Some(more) = &container.memory {
        let memory = pod.memory.take().unwrap_or_default();
        pod.memory = Some(MemoryStats {
            time: more.time.clone(),
            available_bytes: sum(memory.available_bytes, more.available_bytes),
            usage_bytes: sum(memory.usage_bytes, more.usage_bytes),
            working_set_bytes: sum(memory.working_set_bytes, more.working_set_bytes),
            rss_bytes: sum(memory.rss_bytes, more.rss_bytes),
            page_faults: sum(memory.page_faults, more.page_faults),
            major_page_faults: sum(memory.major_page_faults, more.major_page_faults),
            psi: None,
        });
    }
    if let Some(more) = &container.swap {
        let swap = pod.swap.take();
        pod.swap = Some(SwapStats {
            time: swap
                .as_ref()
                .map_or_else(|| more.time.clone(), |swap| swap.time.clone()),
            swap_available_bytes: sum(
                swap.as_ref().and_then(|swap| swap.swap_available_bytes),
                more.swap_available_bytes,
            ),
            swap_usage_bytes: sum(
                swap.as_ref().and_then(|swap| swap.swap_usage_bytes),
                more.swap_usage_bytes,
            ),
        });
    }
}

/// Stalls of a pod are not the sum of its containers' (`addIOStats`).
fn add_io(pod: &mut PodStats, reading: Option<&Reading>, container: &ContainerStats, psi: bool) {
    match (reading, &container.io) {
        (Some(reading), _) => pod.io = cgroup::io(reading, psi),
        (None, Some(io)) if pod.io.is_none() => {
            pod.io = Some(IoStats {
                time: io.time.clone(),
                psi: None,
            });
        }
        _ => {}
    }
}
