//! What a collector reads.

use std::sync::Arc;

use kubelet_core::stats::{RuntimeUsages, StatsPods};
use kubelet_core::{Clock, Disk};

use crate::Result;
use crate::source::{
    Cgroups, FileSystems, HostFileSystems, HostMachine, HostStatFs, MachineSource, ProcFs, Processes,
    host_cgroups,
};

/// What a [`Collector`](crate::Collector) reads, and from where.
#[derive(Clone)]
pub struct CollectorConfig {
    /// The cgroups that are read, with all below them, besides `/`: the cgroup of all pods, and those of system daemons
    /// (`cgroupRoots`).
    pub cgroup_roots: Vec<String>,
    /// The cgroups.
    pub cgroups: Arc<dyn Cgroups>,
    /// The processes.
    pub processes: Arc<dyn Processes>,
    /// The machine.
    pub machine: Arc<dyn MachineSource>,
    /// The file systems.
    pub file_systems: Arc<dyn FileSystems>,
    /// Knows to which container a cgroup belongs. Without it, readings have no `container`, and pods no network.
    pub runtime: Option<Arc<dyn RuntimeUsages>>,
    /// Knows to which pod a cgroup belongs. Without it, only `runtime` does.
    pub pods: Option<Arc<dyn StatsPods>>,
    /// The time of readings.
    pub clock: Clock,
    /// Where files are read.
    pub disk: Disk,
}

impl CollectorConfig {
    /// Reads this host, without a runtime. `cgroup_roots`: the cgroups that are read besides `/`, with all below them, e.g.
    /// `/kubepods`.
    ///
    /// # Errors
    ///
    /// If no cgroups are mounted.
    pub fn host(cgroup_roots: impl IntoIterator<Item = impl Into<String>>) -> Result<Self> {
        let clock = Clock::system();
        Ok(Self {
            cgroup_roots: cgroup_roots.into_iter().map(Into::into).collect(),
            cgroups: host_cgroups(clock)?,
            processes: Arc::new(ProcFs::new("/proc")),
            machine: Arc::new(HostMachine::new("/", clock)),
            file_systems: Arc::new(HostFileSystems::new(
                "/proc",
                Vec::new(),
                Arc::new(HostStatFs),
                clock,
            )),
            runtime: None,
            pods: None,
            clock,
            disk: Disk::default(),
        })
    }
}
