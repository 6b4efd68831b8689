//! How much of each resource a summary reports as available.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use kubelet_core::quantity::{Amount, Format};
use kubelet_core::stats::{FsStats, MemoryStats, PodStats, SYSTEM_CONTAINER_PODS, Summary};

use crate::Signal;

/// What was observed of a signal (`signalObservation`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// How much is available.
    pub available: Amount,
    /// How much there is.
    pub capacity: Amount,
    /// When it was measured.
    pub time: Option<Timestamp>,
    format: Format,
}

impl Observation {
    fn new(
        (available, capacity): (i64, i64),
        format: Format,
        time: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
    ) -> Self {
        Self {
            available: Amount::from_units(available),
            capacity: Amount::from_units(capacity),
            time: time.map(|time| time.0),
            format,
        }
    }

    /// What is available, as messages have it.
    pub(crate) fn available_text(&self) -> String {
        self.available.write(self.format)
    }
}

/// What was observed, by signal (`makeSignalObservations`). A signal without a complete measurement is absent.
pub type Observations = BTreeMap<Signal, Observation>;

/// Reads the observations of a summary.
pub fn observe(summary: &Summary) -> Observations {
    let mut observations = Observations::new();
    let node = &summary.node;
    let pods = summary.system_container(SYSTEM_CONTAINER_PODS);
    // An agent without cgroups has no system container at all.
    if pods.is_none() && !node.system_containers.is_empty() {
        tracing::error!(
            signal = Signal::AllocatableMemoryAvailable.as_str(),
            "Eviction manager: failed to construct signal: the summary has no system container \"pods\""
        );
    }
    let memory = [
        (Signal::MemoryAvailable, node.memory.as_ref()),
        (
            Signal::AllocatableMemoryAvailable,
            pods.and_then(|pods| pods.memory.as_ref()),
        ),
    ];
    for (signal, memory) in memory {
        let observed = memory.and_then(of_memory);
        observations.extend(observed.map(|observed| (signal, observed)));
    }
    let runtime = node.runtime.as_ref();
    let file_systems = [
        (
            Signal::NodeFsAvailable,
            Signal::NodeFsInodesFree,
            node.fs.as_ref(),
        ),
        (
            Signal::ImageFsAvailable,
            Signal::ImageFsInodesFree,
            runtime.and_then(|runtime| runtime.image_fs.as_ref()),
        ),
        (
            Signal::ContainerFsAvailable,
            Signal::ContainerFsInodesFree,
            runtime.and_then(|runtime| runtime.container_fs.as_ref()),
        ),
    ];
    for (bytes, inodes, fs) in file_systems {
        let Some(fs) = fs else { continue };
        observations.extend(bytes_of(fs).map(|observed| (bytes, observed)));
        observations.extend(inodes_of(fs).map(|observed| (inodes, observed)));
    }
    if let Some(rlimit) = &node.rlimit
        && let (Some(max), Some(running)) = (rlimit.max_pid, rlimit.num_of_running_processes)
    {
        let counts = (max.saturating_sub(running), max);
        let observed = Observation::new(counts, Format::DecimalSi, rlimit.time.as_ref());
        observations.insert(Signal::PidAvailable, observed);
    }
    observations
}

fn of_memory(memory: &MemoryStats) -> Option<Observation> {
    let available = memory.available_bytes?;
    let capacity = available.saturating_add(memory.working_set_bytes?);
    let bytes = (signed(available), signed(capacity));
    Some(Observation::new(bytes, Format::BinarySi, memory.time.as_ref()))
}

fn bytes_of(fs: &FsStats) -> Option<Observation> {
    let bytes = (signed(fs.available_bytes?), signed(fs.capacity_bytes?));
    Some(Observation::new(bytes, Format::BinarySi, fs.time.as_ref()))
}

fn inodes_of(fs: &FsStats) -> Option<Observation> {
    let inodes = (signed(fs.inodes_free?), signed(fs.inodes?));
    Some(Observation::new(inodes, Format::DecimalSi, fs.time.as_ref()))
}

/// As a quantity has it.
pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The usage of each pod, by UID (`cachedStatsFunc`).
pub(crate) struct Usages<'a> {
    by_uid: BTreeMap<&'a str, &'a PodStats>,
}

impl<'a> Usages<'a> {
    pub(crate) fn new(summary: &'a Summary) -> Self {
        let pods = summary.pods.iter().flatten();
        Self {
            by_uid: pods.map(|pod| (pod.pod_ref.uid.as_str(), pod)).collect(),
        }
    }

    pub(crate) fn of(&self, uid: &str) -> Option<&'a PodStats> {
        self.by_uid.get(uid).copied()
    }
}
