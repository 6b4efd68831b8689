//! All readings of one time.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::source::Detail;

use super::{ContainerRecord, Machine, PodRef, Spec, SystemVersion, Usage};

/// The machine and all its cgroups, read at about the same time. Immutable.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// When the reading began.
    pub timestamp: Timestamp,
    /// How much was read of each cgroup.
    pub detail: Detail,
    /// The machine.
    pub machine: Arc<Machine>,
    /// The versions of kernel and system.
    pub version: Arc<SystemVersion>,
    /// Each cgroup, by its name; `/` is the root.
    pub cgroups: BTreeMap<Arc<str>, Arc<Reading>>,
    /// Some cgroups could not be read, and their last readings are shown, or none (`container_scrape_error`).
    pub incomplete: bool,
}

impl Snapshot {
    /// The reading of a cgroup.
    pub fn cgroup(&self, name: &str) -> Option<&Arc<Reading>> {
        self.cgroups.get(name)
    }
}

/// A cgroup: what it was given, and what it uses (`info.ContainerInfo`).
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Its name, e.g. `/kubepods/pod1234`: the label `id`.
    pub name: Arc<str>,
    /// What it was given.
    pub spec: Arc<Spec>,
    /// What it uses.
    pub usage: Usage,
    /// The CPU time it used in the last window, in nanocores (`CpuInst.Usage.Total`). `None` at the first reading, and
    /// after the counter went back. A window has 10 to 20 s if somebody reads that often, otherwise the time since the reading
    /// before; after a pause of more than 90 s, it is `None`.
    pub cpu_rate: Option<u64>,
    /// Its container in the runtime. `None` for other cgroups, and if the runtime's containers are unknown.
    pub container: Option<Arc<ContainerRecord>>,
    /// The processes whose open files `usage` counts, in the order of the kernel. Empty if one of them could not be counted.
    pub counted: Box<[u32]>,
    /// Its pod: of the cgroup of a pod, of its sandbox and of its containers (`GetPodByCgroupfs` and the labels of
    /// `container`).
    pub pod: Option<Arc<PodRef>>,
}
