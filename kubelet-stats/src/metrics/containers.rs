//! The metrics of cgroups: a table of what is shown, and how it is read from a [`Reading`].
//!
//! The kubelet shows the sets `CpuUsageMetrics`, `MemoryUsageMetrics`, `CpuLoadMetrics`, `DiskIOMetrics`, `DiskUsageMetrics`,
//! `NetworkUsageMetrics`, `ProcessMetrics`, `OOMMetrics` and, where the kernel reports stalls, `PressureMetrics`.

use k8s_openapi::jiff::Timestamp;

use super::text::Kind::{self, Counter, Gauge};
use super::text::Number::{self, Microseconds, Nanoseconds, Signed, Whole};
use crate::reading::{DeviceIo, FileSystem, Interface, Reading};

/// A metric of each cgroup.
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    pub(super) values: Values,
}

/// Where the values of a metric come from, and which labels they have beside those of the cgroup.
pub(super) enum Values {
    /// A fact about the cgroup. It has no time.
    Fact(fn(&Reading) -> Option<Number>),
    /// One number.
    One(fn(&Reading) -> Option<Number>),
    /// The time of the request, in seconds.
    Now,
    /// The CPU time, with the label `cpu="total"`.
    CpuTotal,
    /// Page faults, with the labels `failure_type` and `scope`.
    Faults,
    /// Counters of disks and of file systems, with the label `device`.
    Devices(DeviceValues),
    /// Bytes of disks, with the labels `device`, `major`, `minor` and `operation`.
    BlkioUsage,
    /// With the label `interface`.
    Interfaces(fn(&Interface) -> u64),
    /// With the label `state`. The kubelet does not read it: 0.
    TaskStates,
    /// With the label `ulimit`.
    Ulimits,
}

/// The counters of disks come before those of file systems.
pub(super) struct DeviceValues {
    pub(super) disks: Option<DiskValues>,
    pub(super) file_systems: Option<fn(&FileSystem) -> Number>,
}

pub(super) struct DiskValues {
    pub(super) list: fn(&Reading) -> &[DeviceIo],
    pub(super) operation: &'static str,
    pub(super) unit: fn(u64) -> Number,
}

const fn metric(name: &'static str, kind: Kind, help: &'static str, values: Values) -> Metric {
    Metric {
        name,
        kind,
        help,
        values,
    }
}

const fn disks(
    list: fn(&Reading) -> &[DeviceIo],
    operation: &'static str,
    unit: fn(u64) -> Number,
    file_systems: Option<fn(&FileSystem) -> Number>,
) -> Values {
    Values::Devices(DeviceValues {
        disks: Some(DiskValues {
            list,
            operation,
            unit,
        }),
        file_systems,
    })
}

const fn file_systems(value: fn(&FileSystem) -> Number) -> Values {
    Values::Devices(DeviceValues {
        disks: None,
        file_systems: Some(value),
    })
}

/// A file system counts milliseconds. cAdvisor takes them for nanoseconds when it shows seconds.
fn as_cadvisor_shows(milliseconds: u64) -> Number {
    Nanoseconds(milliseconds)
}

/// Without a quota there is no throttling.
fn throttled(reading: &Reading, value: Number) -> Option<Number> {
    reading
        .spec
        .cpu
        .is_some_and(|cpu| cpu.quota != 0)
        .then_some(value)
}

/// A limit larger than this is none (`maxMemorySize`).
const MAX_MEMORY_SIZE: u64 = 1 << 62;

fn limit(bytes: u64) -> Number {
    Whole(if bytes > MAX_MEMORY_SIZE { 0 } else { bytes })
}

/// The zero time of Go, in seconds.
const GO_ZERO_TIME: i64 = -62_135_596_800;

/// All metrics of cgroups, sorted by name.
pub(super) static METRICS: &[Metric] = &[
    metric(
        "container_blkio_device_usage_total",
        Counter,
        "Blkio Device bytes usage",
        Values::BlkioUsage,
    ),
    metric(
        "container_cpu_cfs_burst_periods_total",
        Counter,
        "Number of periods when burst occurs.",
        Values::One(|r| throttled(r, Whole(r.usage.cpu.cfs.burst_periods))),
    ),
    metric(
        "container_cpu_cfs_burst_seconds_total",
        Counter,
        "Total time duration the container has been bursted.",
        Values::One(|r| throttled(r, Nanoseconds(r.usage.cpu.cfs.burst_time))),
    ),
    metric(
        "container_cpu_cfs_periods_total",
        Counter,
        "Number of elapsed enforcement period intervals.",
        Values::One(|r| throttled(r, Whole(r.usage.cpu.cfs.periods))),
    ),
    metric(
        "container_cpu_cfs_throttled_periods_total",
        Counter,
        "Number of throttled period intervals.",
        Values::One(|r| throttled(r, Whole(r.usage.cpu.cfs.throttled_periods))),
    ),
    metric(
        "container_cpu_cfs_throttled_seconds_total",
        Counter,
        "Total time duration the container has been throttled.",
        Values::One(|r| throttled(r, Nanoseconds(r.usage.cpu.cfs.throttled_time))),
    ),
    metric(
        "container_cpu_load_average_10s",
        Gauge,
        "Value of container cpu load average over the last 10 seconds.",
        Values::One(|r| Some(Signed(r.usage.cpu.load_average.into()))),
    ),
    metric(
        "container_cpu_load_d_average_10s",
        Gauge,
        "Value of container cpu load.d average over the last 10 seconds.",
        Values::One(|r| Some(Signed(r.usage.cpu.load_d_average.into()))),
    ),
    metric(
        "container_cpu_system_seconds_total",
        Counter,
        "Cumulative system cpu time consumed in seconds.",
        Values::One(|r| Some(Nanoseconds(r.usage.cpu.system))),
    ),
    metric(
        "container_cpu_usage_seconds_total",
        Counter,
        "Cumulative cpu time consumed in seconds.",
        Values::CpuTotal,
    ),
    metric(
        "container_cpu_user_seconds_total",
        Counter,
        "Cumulative user cpu time consumed in seconds.",
        Values::One(|r| Some(Nanoseconds(r.usage.cpu.user))),
    ),
    metric(
        "container_file_descriptors",
        Gauge,
        "Number of open file descriptors for the container.",
        Values::One(|r| Some(Whole(r.usage.processes.file_descriptors))),
    ),
    metric(
        "container_fs_inodes_free",
        Gauge,
        "Number of available Inodes",
        file_systems(|fs| Whole(fs.inodes_free.unwrap_or(0))),
    ),
    metric(
        "container_fs_inodes_total",
        Gauge,
        "Number of Inodes",
        file_systems(|fs| Whole(fs.inodes.unwrap_or(0))),
    ),
    metric(
        "container_fs_io_current",
        Gauge,
        "Number of I/Os currently in progress",
        disks(
            |r| &r.usage.disk_io.io_queued,
            "Total",
            Whole,
            Some(|fs| Whole(fs.io.io_in_progress)),
        ),
    ),
    metric(
        "container_fs_io_time_seconds_total",
        Counter,
        "Cumulative count of seconds spent doing I/Os",
        disks(
            |r| &r.usage.disk_io.io_service_time,
            "Total",
            Nanoseconds,
            Some(|fs| as_cadvisor_shows(fs.io.io_time)),
        ),
    ),
    metric(
        "container_fs_io_time_weighted_seconds_total",
        Counter,
        "Cumulative weighted I/O time in seconds",
        file_systems(|fs| as_cadvisor_shows(fs.io.weighted_io_time)),
    ),
    metric(
        "container_fs_limit_bytes",
        Gauge,
        "Number of bytes that can be consumed by the container on this filesystem.",
        file_systems(|fs| Whole(fs.capacity)),
    ),
    metric(
        "container_fs_read_seconds_total",
        Counter,
        "Cumulative count of seconds spent reading",
        disks(
            |r| &r.usage.disk_io.io_service_time,
            "Read",
            Nanoseconds,
            Some(|fs| as_cadvisor_shows(fs.io.read_time)),
        ),
    ),
    metric(
        "container_fs_reads_bytes_total",
        Counter,
        "Cumulative count of bytes read",
        disks(|r| &r.usage.disk_io.io_service_bytes, "Read", Whole, None),
    ),
    metric(
        "container_fs_reads_merged_total",
        Counter,
        "Cumulative count of reads merged",
        disks(
            |r| &r.usage.disk_io.io_merged,
            "Read",
            Whole,
            Some(|fs| Whole(fs.io.reads_merged)),
        ),
    ),
    metric(
        "container_fs_reads_total",
        Counter,
        "Cumulative count of reads completed",
        disks(
            |r| &r.usage.disk_io.io_serviced,
            "Read",
            Whole,
            Some(|fs| Whole(fs.io.reads_completed)),
        ),
    ),
    metric(
        "container_fs_sector_reads_total",
        Counter,
        "Cumulative count of sector reads completed",
        disks(
            |r| &r.usage.disk_io.sectors,
            "Read",
            Whole,
            Some(|fs| Whole(fs.io.sectors_read)),
        ),
    ),
    metric(
        "container_fs_sector_writes_total",
        Counter,
        "Cumulative count of sector writes completed",
        disks(
            |r| &r.usage.disk_io.sectors,
            "Write",
            Whole,
            Some(|fs| Whole(fs.io.sectors_written)),
        ),
    ),
    metric(
        "container_fs_usage_bytes",
        Gauge,
        "Number of bytes that are consumed by the container on this filesystem.",
        file_systems(|fs| Whole(fs.used())),
    ),
    metric(
        "container_fs_write_seconds_total",
        Counter,
        "Cumulative count of seconds spent writing",
        disks(
            |r| &r.usage.disk_io.io_service_time,
            "Write",
            Nanoseconds,
            Some(|fs| as_cadvisor_shows(fs.io.write_time)),
        ),
    ),
    metric(
        "container_fs_writes_bytes_total",
        Counter,
        "Cumulative count of bytes written",
        disks(|r| &r.usage.disk_io.io_service_bytes, "Write", Whole, None),
    ),
    metric(
        "container_fs_writes_merged_total",
        Counter,
        "Cumulative count of writes merged",
        disks(
            |r| &r.usage.disk_io.io_merged,
            "Write",
            Whole,
            Some(|fs| Whole(fs.io.writes_merged)),
        ),
    ),
    metric(
        "container_fs_writes_total",
        Counter,
        "Cumulative count of writes completed",
        disks(
            |r| &r.usage.disk_io.io_serviced,
            "Write",
            Whole,
            Some(|fs| Whole(fs.io.writes_completed)),
        ),
    ),
    metric(
        "container_health_state",
        Gauge,
        "The result of the container's health check",
        Values::One(|_| Some(Signed(-1))),
    ),
    metric(
        "container_last_seen",
        Gauge,
        "Last time a container was seen by the exporter",
        Values::Now,
    ),
    metric(
        "container_memory_cache",
        Gauge,
        "Number of bytes of page cache memory.",
        Values::One(|r| Some(Whole(r.usage.memory.cache))),
    ),
    metric(
        "container_memory_failcnt",
        Counter,
        "Number of memory usage hits limits",
        Values::One(|r| Some(Whole(r.usage.memory.failcnt))),
    ),
    metric(
        "container_memory_failures_total",
        Counter,
        "Cumulative count of memory allocation failures.",
        Values::Faults,
    ),
    metric(
        "container_memory_kernel_usage",
        Gauge,
        "Size of kernel memory allocated in bytes.",
        Values::One(|r| Some(Whole(r.usage.memory.kernel))),
    ),
    metric(
        "container_memory_mapped_file",
        Gauge,
        "Size of memory mapped files in bytes.",
        Values::One(|r| Some(Whole(r.usage.memory.mapped_file))),
    ),
    metric(
        "container_memory_max_usage_bytes",
        Gauge,
        "Maximum memory usage recorded in bytes",
        Values::One(|r| Some(Whole(r.usage.memory.max_usage))),
    ),
    metric(
        "container_memory_rss",
        Gauge,
        "Size of RSS in bytes.",
        Values::One(|r| Some(Whole(r.usage.memory.rss))),
    ),
    metric(
        "container_memory_swap",
        Gauge,
        "Container swap usage in bytes.",
        Values::One(|r| Some(Whole(r.usage.memory.swap))),
    ),
    metric(
        "container_memory_total_active_file_bytes",
        Gauge,
        "Current total active file in bytes.",
        Values::One(|r| Some(Whole(r.usage.memory.total_active_file))),
    ),
    metric(
        "container_memory_total_inactive_file_bytes",
        Gauge,
        "Current total inactive file in bytes.",
        Values::One(|r| Some(Whole(r.usage.memory.total_inactive_file))),
    ),
    metric(
        "container_memory_usage_bytes",
        Gauge,
        "Current memory usage in bytes, including all memory regardless of when it was accessed",
        Values::One(|r| Some(Whole(r.usage.memory.usage))),
    ),
    metric(
        "container_memory_working_set_bytes",
        Gauge,
        "Current working set in bytes.",
        Values::One(|r| Some(Whole(r.usage.memory.working_set))),
    ),
    metric(
        "container_network_receive_bytes_total",
        Counter,
        "Cumulative count of bytes received",
        Values::Interfaces(|i| i.rx_bytes),
    ),
    metric(
        "container_network_receive_errors_total",
        Counter,
        "Cumulative count of errors encountered while receiving",
        Values::Interfaces(|i| i.rx_errors),
    ),
    metric(
        "container_network_receive_packets_dropped_total",
        Counter,
        "Cumulative count of packets dropped while receiving",
        Values::Interfaces(|i| i.rx_dropped),
    ),
    metric(
        "container_network_receive_packets_total",
        Counter,
        "Cumulative count of packets received",
        Values::Interfaces(|i| i.rx_packets),
    ),
    metric(
        "container_network_transmit_bytes_total",
        Counter,
        "Cumulative count of bytes transmitted",
        Values::Interfaces(|i| i.tx_bytes),
    ),
    metric(
        "container_network_transmit_errors_total",
        Counter,
        "Cumulative count of errors encountered while transmitting",
        Values::Interfaces(|i| i.tx_errors),
    ),
    metric(
        "container_network_transmit_packets_dropped_total",
        Counter,
        "Cumulative count of packets dropped while transmitting",
        Values::Interfaces(|i| i.tx_dropped),
    ),
    metric(
        "container_network_transmit_packets_total",
        Counter,
        "Cumulative count of packets transmitted",
        Values::Interfaces(|i| i.tx_packets),
    ),
    metric(
        "container_oom_events_total",
        Counter,
        "Count of out of memory events observed for the container",
        Values::One(|r| Some(Whole(r.usage.oom_events))),
    ),
    metric(
        "container_pressure_cpu_stalled_seconds_total",
        Counter,
        "Total time duration no tasks in the container could make progress due to CPU congestion.",
        Values::One(|r| Some(Microseconds(r.usage.cpu.psi.full.total))),
    ),
    metric(
        "container_pressure_cpu_waiting_seconds_total",
        Counter,
        "Total time duration tasks in the container have waited due to CPU congestion.",
        Values::One(|r| Some(Microseconds(r.usage.cpu.psi.some.total))),
    ),
    metric(
        "container_pressure_io_stalled_seconds_total",
        Counter,
        "Total time duration no tasks in the container could make progress due to IO congestion.",
        Values::One(|r| Some(Microseconds(r.usage.disk_io.psi.full.total))),
    ),
    metric(
        "container_pressure_io_waiting_seconds_total",
        Counter,
        "Total time duration tasks in the container have waited due to IO congestion.",
        Values::One(|r| Some(Microseconds(r.usage.disk_io.psi.some.total))),
    ),
    metric(
        "container_pressure_memory_stalled_seconds_total",
        Counter,
        "Total time duration no tasks in the container could make progress due to memory congestion.",
        Values::One(|r| Some(Microseconds(r.usage.memory.psi.full.total))),
    ),
    metric(
        "container_pressure_memory_waiting_seconds_total",
        Counter,
        "Total time duration tasks in the container have waited due to memory congestion.",
        Values::One(|r| Some(Microseconds(r.usage.memory.psi.some.total))),
    ),
    metric(
        "container_processes",
        Gauge,
        "Number of processes running inside the container.",
        Values::One(|r| Some(Whole(r.usage.processes.processes))),
    ),
    metric(
        "container_sockets",
        Gauge,
        "Number of open sockets for the container.",
        Values::One(|r| Some(Whole(r.usage.processes.sockets))),
    ),
    metric(
        "container_spec_cpu_period",
        Gauge,
        "CPU period of the container.",
        Values::Fact(|r| Some(Whole(r.spec.cpu?.period))),
    ),
    metric(
        "container_spec_cpu_quota",
        Gauge,
        "CPU quota of the container.",
        Values::Fact(|r| throttled(r, Whole(r.spec.cpu?.quota))),
    ),
    metric(
        "container_spec_cpu_shares",
        Gauge,
        "CPU share of the container.",
        Values::Fact(|r| Some(Whole(r.spec.cpu?.shares))),
    ),
    metric(
        "container_spec_memory_limit_bytes",
        Gauge,
        "Memory limit for the container.",
        Values::Fact(|r| Some(limit(r.spec.memory?.limit))),
    ),
    metric(
        "container_spec_memory_reservation_limit_bytes",
        Gauge,
        "Memory reservation limit for the container.",
        Values::Fact(|r| Some(limit(r.spec.memory?.reservation))),
    ),
    metric(
        "container_spec_memory_swap_limit_bytes",
        Gauge,
        "Memory swap limit for the container.",
        Values::Fact(|r| Some(limit(r.spec.memory?.swap_limit))),
    ),
    metric(
        "container_start_time_seconds",
        Gauge,
        "Start time of the container since unix epoch in seconds.",
        Values::Fact(|r| {
            Some(Signed(
                r.spec.creation_time.map_or(GO_ZERO_TIME, Timestamp::as_second),
            ))
        }),
    ),
    metric(
        "container_tasks_state",
        Gauge,
        "Number of tasks in given state",
        Values::TaskStates,
    ),
    metric(
        "container_threads",
        Gauge,
        "Number of threads running inside the container",
        Values::One(|r| Some(Whole(r.usage.processes.threads))),
    ),
    metric(
        "container_threads_max",
        Gauge,
        "Maximum number of threads allowed inside the container, infinity if value is zero",
        Values::One(|r| Some(Whole(r.usage.processes.threads_max))),
    ),
    metric(
        "container_ulimits_soft",
        Gauge,
        "Soft ulimit values for the container root process. Unlimited if -1, except priority and nice",
        Values::Ulimits,
    ),
];
