//! What the kernel knows of this process, by the names that Prometheus' Go library has for it.

use std::fs;

use super::Selection;
use super::definition::Kind;
use super::text::Writer;

/// Writes the metrics of this process. What cannot be read is left out.
pub(super) fn write(selection: Selection, writer: &mut Writer<'_>) {
    let mut show = |name, kind, help, value: Option<f64>| {
        if let Some(value) = value {
            writer.header(name, kind, help);
            writer.sample(name, "", value);
        }
    };
    let stat = Stat::read();
    const START_TIME: &str = "process_start_time_seconds";
    let start_time = stat.as_ref().and_then(Stat::start_time);
    match selection {
        Selection::Probes => return,
        Selection::Slis => {
            let help = "[ALPHA] Start time of the process since unix epoch in seconds.";
            return show(START_TIME, Kind::Gauge, help, start_time);
        }
        Selection::Main => (),
    }
    let (received, sent) = network_bytes().unzip();
    show(
        "process_cpu_seconds_total",
        Kind::Counter,
        "Total user and system CPU time spent in seconds.",
        stat.as_ref().map(|stat| stat.cpu_ticks / ticks_per_second()),
    );
    show(
        "process_max_fds",
        Kind::Gauge,
        "Maximum number of open file descriptors.",
        limit("Max open files"),
    );
    show(
        "process_network_receive_bytes_total",
        Kind::Counter,
        "Number of bytes received by the process over the network.",
        received,
    );
    show(
        "process_network_transmit_bytes_total",
        Kind::Counter,
        "Number of bytes sent by the process over the network.",
        sent,
    );
    show(
        "process_open_fds",
        Kind::Gauge,
        "Number of open file descriptors.",
        fs::read_dir("/proc/self/fd")
            .ok()
            .map(|files| files.count() as f64),
    );
    show(
        "process_resident_memory_bytes",
        Kind::Gauge,
        "Resident memory size in bytes.",
        stat.as_ref()
            .map(|stat| stat.resident_pages * rustix::param::page_size() as f64),
    );
    show(
        START_TIME,
        Kind::Gauge,
        "Start time of the process since unix epoch in seconds.",
        start_time,
    );
    show(
        "process_virtual_memory_bytes",
        Kind::Gauge,
        "Virtual memory size in bytes.",
        stat.as_ref().map(|stat| stat.virtual_bytes),
    );
    show(
        "process_virtual_memory_max_bytes",
        Kind::Gauge,
        "Maximum amount of virtual memory available in bytes.",
        limit("Max address space"),
    );
}

/// The part of `/proc/self/stat` that is shown.
struct Stat {
    cpu_ticks: f64,
    started_ticks: f64,
    virtual_bytes: f64,
    resident_pages: f64,
}

impl Stat {
    fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // The program's name may have spaces and parentheses. The third field comes after the last one.
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?,
            started_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }

    fn start_time(&self) -> Option<f64> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let boot = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
        Some(boot.trim().parse::<f64>().ok()? + self.started_ticks / ticks_per_second())
    }
}

fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// The soft limit.
fn limit(name: &str) -> Option<f64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let limit = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match limit.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX as f64),
        number => number.parse().ok(),
    }
}

/// Received and sent in the network namespace of the process.
fn network_bytes() -> Option<(f64, f64)> {
    let counters = fs::read_to_string("/proc/self/net/netstat").ok()?;
    let mut lines = counters.lines().filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let counter = |wanted| {
        let mut pairs = names.split_whitespace().zip(values.split_whitespace());
        pairs.find(|(name, _)| *name == wanted)?.1.parse().ok()
    };
    Some((counter("InOctets")?, counter("OutOctets")?))
}
