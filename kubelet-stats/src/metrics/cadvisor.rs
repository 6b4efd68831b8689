//! `/metrics/cadvisor`: the machine and each cgroup (cAdvisor's `PrometheusCollector`).

use std::ops::Range;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::containers::{DeviceValues, METRICS, Metric, Values};
use super::machine;
use super::text::Kind::Gauge;
use super::text::Number::{self, Nanoseconds, Signed, Whole};
use super::text::{Text, push_label};
use crate::reading::{DeviceIo, Interface, Machine, MemoryUsage, Reading, Snapshot, SystemVersion};

/// A piece of the text ends with the metric that makes it this long.
const PIECE: usize = 64 * 1024;
/// About the size of a series.
const BYTES_OF_A_SERIES: usize = 400;
/// Metrics with this prefix are shown where the kernel reports stalls.
const OF_STALLS: &str = "container_pressure_";
/// The states of `container_tasks_state`. The kubelet does not count them.
const TASK_STATES: [&str; 5] = ["iowaiting", "running", "sleeping", "stopped", "uninterruptible"];

/// Writes the metrics of a machine and of its cgroups, piece by piece.
pub(super) struct Pieces {
    machine: Option<(Arc<Machine>, Arc<SystemVersion>)>,
    labels: Labels,
    with_psi: bool,
    now: Timestamp,
    /// Something could not be read.
    failed: bool,
    next: Part,
}

/// A part of the text.
#[derive(Clone, Copy)]
enum Part {
    Version,
    /// A metric before the one that reports errors, by its place in [`METRICS`].
    Before(usize),
    ScrapeError(usize),
    /// A metric after it.
    After(usize),
    Machine,
    End,
}

impl Pieces {
    /// Without a snapshot (`None`), there was an error. `with_psi`: show stalls. `now`: the time of `container_last_seen`.
    pub(super) fn new(
        machine: Option<(Arc<Machine>, Arc<SystemVersion>)>,
        snapshot: Option<&Snapshot>,
        with_psi: bool,
        now: Timestamp,
    ) -> Self {
        Self {
            machine,
            labels: Labels::new(snapshot),
            with_psi,
            now,
            failed: snapshot.is_none_or(|snapshot| snapshot.incomplete),
            next: Part::Version,
        }
    }

    /// The whole text.
    pub(super) fn whole(self) -> Vec<u8> {
        let mut text = Vec::new();
        self.for_each(|piece| text.extend(piece));
        text
    }

    /// Writes a part. Returns the next one.
    fn write(&self, part: Part, text: &mut Text) -> Part {
        let machine = self.machine.as_ref();
        match part {
            Part::Version => {
                if let Some((_, version)) = machine {
                    machine::write_version(version, text);
                }
                Part::Before(0)
            }
            Part::Before(place) => match METRICS.get(place).filter(|metric| metric.name < SCRAPE_ERROR) {
                Some(metric) => {
                    self.metric(metric, text);
                    Part::Before(place + 1)
                }
                None => Part::ScrapeError(place),
            },
            Part::ScrapeError(place) => {
                let help = "1 if there was an error while getting container metrics, 0 otherwise";
                text.single(SCRAPE_ERROR, Gauge, help, Whole(self.failed.into()), None);
                Part::After(place)
            }
            Part::After(place) => match METRICS.get(place) {
                Some(metric) => {
                    self.metric(metric, text);
                    Part::After(place + 1)
                }
                None => Part::Machine,
            },
            Part::Machine => {
                machine::write(machine.map(|(machine, _)| &**machine), text);
                Part::End
            }
            Part::End => Part::End,
        }
    }

    fn metric(&self, metric: &Metric, text: &mut Text) {
        if self.with_psi || !metric.name.starts_with(OF_STALLS) {
            self.labels.write(metric, self.now, text);
        }
    }
}

impl Iterator for Pieces {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        let mut text = Text::with_capacity(PIECE + self.labels.cgroups.len() * BYTES_OF_A_SERIES);
        while text.len() < PIECE && !matches!(self.next, Part::End) {
            self.next = self.write(self.next, &mut text);
        }
        let piece = text.into_bytes();
        (!piece.is_empty()).then_some(piece)
    }
}

const SCRAPE_ERROR: &str = "container_scrape_error";

/// The labels of all cgroups, written once. A cgroup's are `container="…",id="…",image="…",name="…",namespace="…",pod="…"`, and
/// metrics put labels of their own between them.
struct Labels {
    written: String,
    /// Sorted by the name of the container, then by cgroup, as Prometheus sorts series.
    cgroups: Vec<Labelled>,
}

struct Labelled {
    reading: Arc<Reading>,
    /// Of `written`: the label `container`; those up to `image`; those from `name` on.
    parts: [Range<usize>; 3],
    /// The length of the label `pod`, which is the last.
    pod_label: usize,
    /// In milliseconds.
    at: i64,
}

impl Labels {
    fn new(snapshot: Option<&Snapshot>) -> Self {
        let readings = snapshot
            .into_iter()
            .flat_map(|snapshot| snapshot.cgroups.values());
        let mut written = String::new();
        let mut cgroups: Vec<_> = readings
            .map(|reading| Labelled::new(reading, &mut written))
            .collect();
        // Cgroups are sorted by name already.
        cgroups.sort_by(|one, other| one.container().cmp(other.container()));
        Self { written, cgroups }
    }

    fn part(&self, labelled: &Labelled, part: usize) -> &str {
        let range = labelled.parts.get(part).cloned().unwrap_or_default();
        self.written.get(range).unwrap_or_default()
    }

    /// All labels of a cgroup.
    fn all(&self, labelled: &Labelled) -> &str {
        let [first, _, last] = &labelled.parts;
        self.written.get(first.start..last.end).unwrap_or_default()
    }

    /// The labels `name` and `namespace`, and the label `pod`.
    fn before_pod(&self, labelled: &Labelled) -> (&str, &str) {
        let last = self.part(labelled, 2);
        last.split_at(last.len() - labelled.pod_label)
    }

    /// The cgroups with the same label `container`.
    fn groups(&self) -> impl Iterator<Item = &[Labelled]> {
        self.cgroups
            .chunk_by(|one, other| one.container() == other.container())
    }

    fn write(&self, metric: &Metric, now: Timestamp, text: &mut Text) {
        let mut writer = Writer {
            labels: self,
            metric,
            text,
            begun: false,
        };
        match &metric.values {
            Values::Fact(value) => {
                for labelled in &self.cgroups {
                    if let Some(value) = value(&labelled.reading) {
                        writer.plain(labelled, value, None);
                    }
                }
            }
            Values::One(value) => {
                for labelled in &self.cgroups {
                    if let Some(value) = value(&labelled.reading) {
                        writer.plain(labelled, value, Some(labelled.at));
                    }
                }
            }
            Values::Now => {
                for labelled in &self.cgroups {
                    writer.plain(labelled, Signed(now.as_second()), Some(now.as_millisecond()));
                }
            }
            Values::CpuTotal => {
                for labelled in &self.cgroups {
                    let total = labelled.reading.usage.cpu.total;
                    if total > 0 {
                        writer.between(labelled, [",cpu=\"total\"", "", ""], Nanoseconds(total));
                    }
                }
            }
            Values::Faults => writer.faults(),
            Values::Devices(values) => writer.devices(values),
            Values::BlkioUsage => writer.blkio(),
            Values::Interfaces(value) => writer.interfaces(*value),
            Values::TaskStates => {
                for labelled in &self.cgroups {
                    for state in TASK_STATES {
                        writer.last(labelled, ["state", state], Whole(0));
                    }
                }
            }
            Values::Ulimits => {
                for labelled in &self.cgroups {
                    for ulimit in &labelled.reading.usage.processes.ulimits {
                        writer.last(labelled, ["ulimit", ulimit.name], Signed(ulimit.soft));
                    }
                }
            }
        }
    }
}

impl Labelled {
    fn new(reading: &Arc<Reading>, written: &mut String) -> Self {
        let record = reading.container.as_deref();
        let (namespace, pod) = reading
            .pod
            .as_deref()
            .map_or(("", ""), |pod| (&*pod.namespace, &*pod.name));
        let container = record.map_or("", |record| &*record.name);
        let start = written.len();
        push_label(written, "container", container);
        let second = written.len();
        push_label(written, ",id", &reading.name);
        push_label(written, ",image", record.map_or("", |record| &*record.image));
        let third = written.len();
        push_label(written, ",name", record.map_or("", |record| &*record.id));
        push_label(written, ",namespace", namespace);
        let fourth = written.len();
        push_label(written, ",pod", pod);
        Self {
            reading: reading.clone(),
            parts: [start..second, second..third, third..written.len()],
            pod_label: written.len() - fourth,
            at: reading.usage.timestamp.as_millisecond(),
        }
    }

    /// The name of the container; empty for other cgroups.
    fn container(&self) -> &str {
        self.reading
            .container
            .as_deref()
            .map_or("", |record| &*record.name)
    }
}

/// Writes one metric. The header comes with the first series: a metric without series is not shown.
struct Writer<'a> {
    labels: &'a Labels,
    metric: &'a Metric,
    text: &'a mut Text,
    begun: bool,
}

impl Writer<'_> {
    fn begin(&mut self) {
        if !self.begun {
            self.begun = true;
            let Metric { name, kind, help, .. } = self.metric;
            self.text.header(name, *kind, help);
        }
    }

    fn plain(&mut self, labelled: &Labelled, value: Number, at: Option<i64>) {
        self.begin();
        let all = self.labels.all(labelled);
        self.text.series(self.metric.name, [all], value, at);
    }

    /// With labels after `container`, after `image`, and at the end.
    fn between(&mut self, labelled: &Labelled, [first, second, last]: [&str; 3], value: Number) {
        self.begin();
        let part = |part| self.labels.part(labelled, part);
        let labels = [part(0), first, part(1), second, part(2), last];
        self.text
            .series(self.metric.name, labels, value, Some(labelled.at));
    }

    /// With one more label, whose name comes after `pod` and whose value needs no escapes.
    fn last(&mut self, labelled: &Labelled, [name, value]: [&str; 2], number: Number) {
        self.begin();
        let labels = [self.labels.all(labelled), ",", name, "=\"", value, "\""];
        self.text
            .series(self.metric.name, labels, number, Some(labelled.at));
    }

    /// Page faults. cAdvisor reads the same numbers for both scopes.
    fn faults(&mut self) {
        type Kind = (&'static str, fn(&MemoryUsage) -> u64);
        let kinds: [Kind; 2] = [
            (",failure_type=\"pgfault\"", |memory| memory.pgfault),
            (",failure_type=\"pgmajfault\"", |memory| memory.pgmajfault),
        ];
        for group in self.labels.groups() {
            for (kind, value) in kinds {
                for labelled in group {
                    let value = Whole(value(&labelled.reading.usage.memory));
                    for scope in [",scope=\"container\"", ",scope=\"hierarchy\""] {
                        self.between(labelled, [kind, "", scope], value);
                    }
                }
            }
        }
    }

    /// The series of one device come together. If a disk and a file system have the same device, the disk counts.
    fn devices(&mut self, values: &DeviceValues) {
        for group in self.labels.groups() {
            let mut series = Vec::new();
            for (at, labelled) in group.iter().enumerate() {
                let disks = values.disks.iter().flat_map(|disks| {
                    let list = (disks.list)(&labelled.reading).iter();
                    let value = |disk: &DeviceIo| (disks.unit)(disk.operation(disks.operation).unwrap_or(0));
                    list.map(move |disk| (disk.device.as_str(), value(disk)))
                });
                let file_systems = values.file_systems.iter().flat_map(|value| {
                    let list = labelled.reading.usage.file_systems.iter();
                    list.map(move |fs| (fs.device.as_str(), value(fs)))
                });
                series.extend(
                    disks
                        .chain(file_systems)
                        .map(|(device, value)| (device, at, value)),
                );
            }
            series.sort_by_key(|(device, at, _)| (*device, *at));
            series.dedup_by_key(|(device, at, _)| (*device, *at));
            for (device, at, value) in series {
                if let Some(labelled) = group.get(at) {
                    let mut label = String::new();
                    push_label(&mut label, ",device", device);
                    self.between(labelled, [&label, "", ""], value);
                }
            }
        }
    }

    fn blkio(&mut self) {
        for group in self.labels.groups() {
            let mut series = Vec::new();
            for (at, labelled) in group.iter().enumerate() {
                for disk in &labelled.reading.usage.disk_io.io_service_bytes {
                    let operations = disk.operations.iter();
                    series
                        .extend(operations.map(|(operation, value)| (disk, at, operation.as_str(), *value)));
                }
            }
            // Prometheus sorts by the labels in the order of their names: device, id, major, minor, operation.
            series.sort_by_key(|(disk, at, ..)| (&disk.device, *at));
            for (disk, at, operation, value) in series {
                let Some(labelled) = group.get(at) else { continue };
                let (mut device, mut numbers) = (String::new(), String::new());
                push_label(&mut device, ",device", &disk.device);
                push_label(&mut numbers, ",major", &disk.major.to_string());
                push_label(&mut numbers, ",minor", &disk.minor.to_string());
                self.blkio_series(labelled, &device, &numbers, operation, Whole(value));
            }
        }
    }

    /// `major` and `minor` come after `image`, `operation` comes before `pod`.
    fn blkio_series(
        &mut self,
        labelled: &Labelled,
        device: &str,
        numbers: &str,
        operation: &str,
        value: Number,
    ) {
        let (rest, pod) = self.labels.before_pod(labelled);
        let mut label = String::new();
        push_label(&mut label, ",operation", operation);
        self.begin();
        let part = |part| self.labels.part(labelled, part);
        let labels = [part(0), device, part(1), numbers, rest, &label, pod];
        self.text
            .series(self.metric.name, labels, value, Some(labelled.at));
    }

    fn interfaces(&mut self, value: fn(&Interface) -> u64) {
        for labelled in &self.labels.cgroups {
            let mut interfaces: Vec<&Interface> = labelled.reading.usage.network.interfaces.iter().collect();
            interfaces.sort_by_key(|interface| &interface.name);
            for interface in interfaces {
                let mut label = String::new();
                push_label(&mut label, ",interface", &interface.name);
                self.between(labelled, ["", &label, ""], Whole(value(interface)));
            }
        }
    }
}

#[cfg(test)]
mod tests;
