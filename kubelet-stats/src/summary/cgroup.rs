//! From the reading of a cgroup to the numbers of the summary (`cadvisorInfoTo…`).

use kubelet_core::stats::{
    CpuStats, InterfaceStats, IoStats, MemoryStats, NetworkStats, ProcessStats, SwapStats,
};

use super::time;
use crate::reading::Reading;

/// A limit above this is none (`isMemoryUnlimited`).
const UNLIMITED: u64 = 1 << 62;
/// The interface that stands for all (`defaultNetworkInterfaceName`).
const DEFAULT_INTERFACE: &str = "eth0";

/// (`cadvisorInfoToCPUandMemoryStats`)
pub(super) fn cpu(reading: &Reading, psi: bool) -> CpuStats {
    let cpu = &reading.usage.cpu;
    let has_cpu = reading.spec.cpu.is_some();
    CpuStats {
        time: time(reading.usage.timestamp),
        usage_nano_cores: Some(reading.cpu_rate.filter(|_| has_cpu).unwrap_or(0)),
        usage_core_nano_seconds: Some(if has_cpu { cpu.total } else { 0 }),
        psi: (has_cpu && psi).then_some(cpu.psi),
    }
}

/// (`cadvisorInfoToCPUandMemoryStats`)
pub(super) fn memory(reading: &Reading, psi: bool) -> MemoryStats {
    let memory = &reading.usage.memory;
    let Some(spec) = reading.spec.memory else {
        return MemoryStats {
            time: time(reading.usage.timestamp),
            working_set_bytes: Some(0),
            ..Default::default()
        };
    };
    MemoryStats {
        time: time(reading.usage.timestamp),
        available_bytes: available(spec.limit, memory.working_set),
        usage_bytes: Some(memory.usage),
        working_set_bytes: Some(memory.working_set),
        rss_bytes: Some(memory.rss),
        page_faults: Some(memory.pgfault),
        major_page_faults: Some(memory.pgmajfault),
        psi: psi.then_some(memory.psi),
    }
}

/// (`cadvisorInfoToSwapStats`)
pub(super) fn swap(reading: &Reading) -> Option<SwapStats> {
    let spec = reading.spec.memory?;
    let used = reading.usage.memory.swap;
    Some(SwapStats {
        time: time(reading.usage.timestamp),
        swap_available_bytes: available(spec.swap_limit, used),
        swap_usage_bytes: Some(used),
    })
}

/// (`cadvisorInfoToIOStats`)
pub(super) fn io(reading: &Reading, psi: bool) -> Option<IoStats> {
    (psi && reading.spec.has_disk_io).then(|| IoStats {
        time: time(reading.usage.timestamp),
        psi: Some(reading.usage.disk_io.psi),
    })
}

/// (`cadvisorInfoToNetworkStats`)
pub(super) fn network(reading: &Reading) -> Option<NetworkStats> {
    if !reading.spec.has_network {
        return None;
    }
    let mut stats = NetworkStats {
        time: time(reading.usage.timestamp),
        ..Default::default()
    };
    for interface in &reading.usage.network.interfaces {
        let interface = InterfaceStats {
            name: interface.name.clone(),
            rx_bytes: Some(interface.rx_bytes),
            rx_errors: Some(interface.rx_errors),
            tx_bytes: Some(interface.tx_bytes),
            tx_errors: Some(interface.tx_errors),
        };
        if interface.name == DEFAULT_INTERFACE {
            stats.default_interface = interface.clone();
        }
        stats.interfaces.push(interface);
    }
    Some(stats)
}

/// (`cadvisorInfoToProcessStats`)
pub(super) fn processes(reading: &Reading) -> Option<ProcessStats> {
    reading.spec.threads_max?;
    Some(ProcessStats {
        process_count: Some(reading.usage.processes.processes),
    })
}

/// What is left of a limit; `None` without a limit.
fn available(limit: u64, used: u64) -> Option<u64> {
    (limit <= UNLIMITED).then(|| limit.saturating_sub(used))
}
