//! From what the runtime reports of a container to the numbers of the summary.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubelet_core::stats::{
    ContainerStats, CpuStats, FsStats, IoStats, MemoryStats, PsiStats, RuntimeContainer,
    RuntimeContainerUsage, RuntimeCpu, RuntimeMemory, SwapStats,
};

use super::{NodeSummary, time};

impl NodeSummary {
    /// CPU, memory and swap; what is missing is 0 (`makeContainerCPUAndMemoryStats`).
    pub(super) fn runtime_cpu_and_memory(
        &self,
        usage: &RuntimeContainerUsage,
        container: &RuntimeContainer,
    ) -> ContainerStats {
        let zero = |value: Option<u64>| Some(value.unwrap_or(0));
        let mut stats = ContainerStats {
            name: usage.name.clone(),
            start_time: container.created_at.and_then(time),
            ..Default::default()
        };
        stats.cpu = Some(match &usage.cpu {
            Some(reported) => {
                let mut cpu = self.runtime_cpu(reported);
                cpu.usage_nano_cores = self.inner.cpu_rates.get(usage);
                cpu.usage_core_nano_seconds = zero(cpu.usage_core_nano_seconds);
                cpu
            }
            None => self.no_cpu(),
        });
        let memory = match &usage.memory {
            Some(reported) => self.runtime_memory(reported),
            None => MemoryStats {
                time: self.now(),
                ..Default::default()
            },
        };
        stats.memory = Some(MemoryStats {
            available_bytes: zero(memory.available_bytes),
            usage_bytes: zero(memory.usage_bytes),
            working_set_bytes: zero(memory.working_set_bytes),
            rss_bytes: zero(memory.rss_bytes),
            page_faults: zero(memory.page_faults),
            major_page_faults: zero(memory.major_page_faults),
            ..memory
        });
        let swap = self.runtime_swap(usage);
        stats.swap = Some(SwapStats {
            time: swap.time,
            swap_available_bytes: zero(swap.swap_available_bytes),
            swap_usage_bytes: zero(swap.swap_usage_bytes),
        });
        stats
    }

    /// Everything but its file systems (`makeContainerStats`).
    pub(super) fn runtime_container(
        &self,
        usage: &RuntimeContainerUsage,
        container: &RuntimeContainer,
        update: bool,
    ) -> ContainerStats {
        let mut stats = ContainerStats {
            name: usage.name.clone(),
            start_time: container.created_at.and_then(time),
            ..Default::default()
        };
        stats.cpu = Some(match &usage.cpu {
            Some(reported) => {
                let mut cpu = self.runtime_cpu(reported);
                cpu.usage_nano_cores = match update {
                    true => self.inner.cpu_rates.update(usage),
                    false => self.inner.cpu_rates.get(usage),
                };
                cpu
            }
            None => self.no_cpu(),
        });
        stats.memory = Some(match &usage.memory {
            Some(reported) => self.runtime_memory(reported),
            None => MemoryStats {
                time: self.now(),
                working_set_bytes: Some(0),
                usage_bytes: Some(0),
                rss_bytes: Some(0),
                ..Default::default()
            },
        });
        stats.swap = Some(self.runtime_swap(usage));
        if self.inner.config.psi {
            stats.io = Some(match &usage.io {
                Some(reported) => IoStats {
                    time: time(reported.timestamp),
                    psi: reported.psi,
                },
                None => IoStats {
                    time: self.now(),
                    psi: None,
                },
            });
        }
        let mut rootfs = FsStats::default();
        if let Some(layer) = &usage.writable_layer {
            rootfs.time = time(layer.timestamp);
            rootfs.used_bytes = layer.used_bytes;
            rootfs.inodes_used = layer.inodes_used;
        }
        stats.rootfs = Some(rootfs);
        stats
    }

    pub(super) fn runtime_cpu(&self, cpu: &RuntimeCpu) -> CpuStats {
        CpuStats {
            time: time(cpu.timestamp),
            usage_nano_cores: cpu.usage_nano_cores,
            usage_core_nano_seconds: cpu.usage_core_nano_seconds,
            psi: self.runtime_psi(cpu.psi),
        }
    }

    pub(super) fn runtime_memory(&self, memory: &RuntimeMemory) -> MemoryStats {
        MemoryStats {
            time: time(memory.timestamp),
            available_bytes: memory.available,
            usage_bytes: memory.usage,
            working_set_bytes: memory.working_set,
            rss_bytes: memory.rss,
            page_faults: memory.page_faults,
            major_page_faults: memory.major_page_faults,
            psi: self.runtime_psi(memory.psi),
        }
    }

    /// (`makePSIStats`)
    pub(super) fn runtime_psi(&self, psi: Option<PsiStats>) -> Option<PsiStats> {
        psi.filter(|_| self.inner.config.psi)
    }

    fn runtime_swap(&self, usage: &RuntimeContainerUsage) -> SwapStats {
        match &usage.swap {
            Some(swap) => SwapStats {
                time: time(swap.timestamp),
                swap_available_bytes: swap.available,
                swap_usage_bytes: swap.usage,
            },
            None => SwapStats {
                time: self.now(),
                swap_available_bytes: Some(0),
                swap_usage_bytes: Some(0),
            },
        }
    }

    fn no_cpu(&self) -> CpuStats {
        CpuStats {
            time: self.now(),
            usage_nano_cores: Some(0),
            usage_core_nano_seconds: Some(0),
            psi: None,
        }
    }

    pub(super) fn now(&self) -> Option<Time> {
        time(self.inner.collector.config().clock.now())
    }
}
