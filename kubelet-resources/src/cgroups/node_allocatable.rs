//! The limits of all pods together, and of the daemons of the node (`enforceNodeAllocatableCgroups`).

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::{EventType, NodeEventRecorder};
use tokio::time::sleep;

use super::driver::Cgroups;
use super::limits::of_resources;
use super::pods::PodCgroups;
use crate::{Error, Result};

/// The wait before limits that the kernel refused are tried again.
const TRY_AGAIN: Duration = Duration::from_secs(60);
/// `SuccessfulNodeAllocatableEnforcement`
const ENFORCED: &str = "NodeAllocatableEnforced";
/// `FailedNodeAllocatableEnforcement`
const FAILED: &str = "FailedNodeAllocatableEnforcement";

/// Whom resources are reserved for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReservedFor {
    /// The daemons of the system: `systemReserved`.
    System,
    /// The daemons of Kubernetes: `kubeReserved`.
    Kube,
}

/// Resources that are reserved for the daemons in a cgroup, which may use no more than these.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Reserved {
    /// For whom.
    pub reserved_for: ReservedFor,
    /// Their cgroup, which exists: `systemReservedCgroup`, `kubeReservedCgroup`. With the driver systemd, the name of a slice.
    pub cgroup: String,
    /// `systemReserved`, `kubeReserved`
    pub resources: BTreeMap<String, Quantity>,
    /// Whether only the CPU is limited (`system-reserved-compressible`, `kube-reserved-compressible`).
    pub only_compressible: bool,
}

impl Reserved {
    /// All of these resources, for the daemons in this cgroup.
    pub fn new(
        reserved_for: ReservedFor,
        cgroup: impl Into<String>,
        resources: BTreeMap<String, Quantity>,
    ) -> Self {
        Self {
            reserved_for,
            cgroup: cgroup.into(),
            resources,
            only_compressible: false,
        }
    }

    /// Limits only the CPU.
    #[must_use]
    pub fn only_compressible(mut self) -> Self {
        self.only_compressible = true;
        self
    }
}

impl fmt::Display for ReservedFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::System => "system",
            Self::Kube => "kube",
        })
    }
}

impl PodCgroups {
    /// Limits what all pods may use together: CPU shares (`cpu`), `memory`, huge pages (`hugepages-2Mi`…) and processes
    /// (`pid`). Emits the event `NodeAllocatableEnforced` and returns when this is done.
    ///
    /// The kernel refuses a memory limit below the present usage. Then it emits the event
    /// `FailedNodeAllocatableEnforcement` and tries again every minute. Without `cgroupsPerQOS` it does nothing and emits no
    /// event.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn enforce_node_allocatable(
        &self,
        resources: &BTreeMap<String, Quantity>,
        events: &dyn NodeEventRecorder,
    ) {
        let Some(cgroups) = &self.cgroups else { return };
        let Some(name) = cgroups.driver.all_pods() else {
            return;
        };
        loop {
            let limited = async {
                let mut limits = of_resources(&self.settings.huge_page_sizes, resources, false)
                    .map_err(io::Error::other)?;
                limits.cpus.clone_from(&self.all_cpus);
                cgroups.update(&name, limits).await
            };
            let Err(error) = limited.await else { break };
            let problem = format!("Failed to update Node Allocatable Limits {name}: {error}");
            events.record_node(EventType::Warning, FAILED, problem);
            sleep(TRY_AGAIN).await;
        }
        let done = "Updated Node Allocatable limit across pods".to_owned();
        events.record_node(EventType::Normal, ENFORCED, done);
    }

    /// Limits the daemons that resources are reserved for. Emits the event `NodeAllocatableEnforced`, or
    /// `FailedNodeAllocatableEnforcement` before it fails (`enforceExistingCgroup`).
    ///
    /// # Errors
    ///
    /// The cgroup does not exist, nothing is reserved, or the kernel refuses a limit. The kubelet does not start then. Without
    /// `cgroupsPerQOS` nothing can be enforced.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and called again.
    pub async fn enforce_reserved(&self, reserved: &Reserved, events: &dyn NodeEventRecorder) -> Result<()> {
        let whom = reserved.reserved_for;
        let enforced = match &self.cgroups {
            Some(cgroups) => self.limit_daemons(cgroups, reserved).await,
            None => Err("the runtime manages the cgroups".to_owned()),
        };
        if let Err(error) = enforced {
            let whom = match whom {
                ReservedFor::System => "System",
                ReservedFor::Kube => "Kube",
            };
            let compressible = if reserved.only_compressible {
                " Compressible"
            } else {
                ""
            };
            let problem = format!(
                "Failed to enforce {whom} Reserved{compressible} Cgroup Limits on {:?}: {error}",
                reserved.cgroup
            );
            events.record_node(EventType::Warning, FAILED, problem.clone());
            return Err(Error::Refused(problem));
        }
        let done = format!("Updated limits on {whom} reserved cgroup {}", reserved.cgroup);
        events.record_node(EventType::Normal, ENFORCED, done);
        Ok(())
    }

    async fn limit_daemons(&self, cgroups: &Cgroups, reserved: &Reserved) -> Result<(), String> {
        let name = cgroups.driver.parse(&reserved.cgroup);
        if reserved.resources.is_empty() {
            return Err(format!("{name} cgroup is not configured properly"));
        }
        let sizes = &self.settings.huge_page_sizes;
        let mut limits = of_resources(sizes, &reserved.resources, reserved.only_compressible)?;
        limits.cpus.clone_from(&self.all_cpus);
        if self.qos.has_memory_qos() {
            limits.memory_min = limits.memory;
        }
        cgroups.validate(&name)?;
        let updated = cgroups.update(&name, limits).await;
        updated.map_err(|error| error.to_string())
    }
}
