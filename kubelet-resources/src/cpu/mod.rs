//! The CPU manager: which CPUs a container runs on.
//!
//! Answers to `pkg/kubelet/cm/cpumanager`.

mod accumulator;
pub(crate) mod checkpoint;
mod combinations;
mod hints;
mod options;
mod pods;
mod policy;
mod state;
mod take;
mod topology;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::PodExt;
use kubelet_core::quantity::Amount;

pub use self::options::CpuPolicyOptions;
use self::policy::{Outcome, StaticPolicy};
pub use self::state::CpuState;
pub use self::topology::CpuTopology;
use crate::active::ActiveContainers;
use crate::cpu_set::CpuSet;
use crate::machine::Machine;
use crate::metrics::{self, Aligned, Assignment, Boundary, Resource, Scope};
use crate::requests::Gates;
use crate::topology::{HintProvider, ResourceHints, TopologyHint, TopologyPolicy};
use crate::{BoxError, Error, Result};

/// The file of the CPU manager's state in the kubelet's root folder (`cpuManagerStateFileName`).
pub const CPU_MANAGER_STATE: &str = "cpu_manager_state";

/// The name of a policy (`cpuManagerPolicy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CpuPolicy {
    /// `none`: all containers share all CPUs.
    #[default]
    None,
    /// `static`: containers of guaranteed pods that request whole CPUs get them for themselves.
    Static,
}

impl CpuPolicy {
    /// The policy of this name.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "none" => Ok(Self::None),
            "static" => Ok(Self::Static),
            _ => Err(Error::Refused(format!("unknown policy: \"{name}\""))),
        }
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Static => "static",
        }
    }
}

/// The settings of the CPU manager.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CpuConfig {
    /// `cpuManagerPolicy`
    pub policy: CpuPolicy,
    /// `cpuManagerPolicyOptions`
    pub options: BTreeMap<String, String>,
    /// `reservedSystemCPUs`; empty: chosen.
    pub reserved_cpus: CpuSet,
    /// The CPU that is reserved for the system and the kubelet. Necessary for `static`.
    pub reserved: Option<Amount>,
}

/// The policy with its state (`cpumanager.manager` without its loop).
#[derive(Clone, Debug)]
pub(crate) struct CpuManager {
    /// `None` for the policy `none`.
    policy: Option<StaticPolicy>,
    state: CpuState,
    /// NUMA nodes whose number of allocated CPUs was reported.
    reported: Vec<usize>,
}

impl CpuManager {
    /// Checks the settings (`NewManager`).
    pub(crate) fn new(
        machine: &Machine,
        config: &CpuConfig,
        gates: Gates,
        topology_policy: TopologyPolicy,
    ) -> Result<Self> {
        let topology = CpuTopology::new(machine)?;
        let policy = match config.policy {
            CpuPolicy::None => {
                if !config.options.is_empty() {
                    return Err(Error::Refused(format!(
                        "new none policy error: None policy: received unsupported options={}",
                        go_map(&config.options)
                    )));
                }
                None
            }
            CpuPolicy::Static => {
                let policy = static_policy(topology, config, gates, topology_policy);
                Some(policy?)
            }
        };
        Ok(Self {
            policy,
            state: CpuState::default(),
            reported: Vec::new(),
        })
    }

    /// Takes over a state that was read, or starts with an empty one (`Start`).
    ///
    /// # Errors
    ///
    /// If the state does not suit the machine or the configuration.
    pub(crate) fn start(&mut self, state: CpuState) -> Result<()> {
        self.state = state;
        if let Some(policy) = &self.policy {
            policy.check_state(&mut self.state).inspect_err(|error| {
                tracing::error!(%error, "invalid state, please drain node and remove policy state file");
            })?;
            metrics::add_aligned(Scope::Container, Boundary::PhysicalCpu, Aligned::Failed, 0);
            metrics::add_aligned(Scope::Container, Boundary::PhysicalCpu, Aligned::Succeeded, 0);
            metrics::add_aligned(Scope::Container, Boundary::UncoreCache, Aligned::Succeeded, 0);
            self.report_gauges();
        }
        Ok(())
    }

    pub(crate) fn policy(&self) -> CpuPolicy {
        match self.policy {
            Some(_) => CpuPolicy::Static,
            None => CpuPolicy::None,
        }
    }

    pub(crate) fn state(&self) -> &CpuState {
        &self.state
    }

    /// The CPUs that can be exclusive; none under the policy `none`.
    pub(crate) fn allocatable(&self) -> CpuSet {
        self.policy
            .as_ref()
            .map(StaticPolicy::allocatable)
            .unwrap_or_default()
    }

    /// Frees what containers have that are not active (`removeStaleState`). Returns whether something changed.
    pub(crate) fn remove_stale(&mut self, active: &ActiveContainers) -> bool {
        let Some(policy) = &mut self.policy else {
            return false;
        };
        let stale = active.missing(&self.state.containers);
        for (pod_uid, container) in &stale {
            policy.release(&mut self.state, pod_uid, container);
        }
        if !stale.is_empty() {
            self.report_gauges();
        }
        !stale.is_empty()
    }

    fn report_gauges(&mut self) {
        let Some(policy) = &self.policy else { return };
        let allocated = self.state.all_allocated();
        metrics::set_cpus(policy.available(&self.state).len(), allocated.len());
        for (node, cpus) in policy.topology.numa.iter() {
            let count = cpus.intersection_len(&allocated);
            if count > 0 && !self.reported.contains(&node) {
                self.reported.push(node);
            }
            if self.reported.contains(&node) {
                metrics::set_cpus_of_node(node, count);
            }
        }
    }

    /// Counts what an allocation did.
    fn count(&mut self, result: Result<Outcome>, of_pod: bool) -> Result<(), BoxError> {
        let whole_cores = self
            .policy
            .as_ref()
            .is_some_and(|policy| policy.options.full_physical_cpus_only)
            && !of_pod;
        let aligned = |aligned| {
            if whole_cores {
                metrics::add_aligned(Scope::Container, Boundary::PhysicalCpu, aligned, 1);
            }
        };
        match result {
            Ok(Outcome::Shared) => return Ok(()),
            Err(error) => {
                metrics::count_cpu_error(of_pod);
                aligned(Aligned::Failed);
                return Err(error.into());
            }
            Ok(Outcome::Present) => aligned(Aligned::Succeeded),
            Ok(Outcome::Exclusive { one_cache }) => {
                aligned(Aligned::Succeeded);
                if one_cache {
                    metrics::add_aligned(Scope::Container, Boundary::UncoreCache, Aligned::Succeeded, 1);
                }
                if !of_pod {
                    metrics::count_allocation(Resource::Cpu, false);
                    metrics::count_assignment(Resource::Cpu, Assignment::NodeExclusive);
                }
                self.report_gauges();
            }
        }
        Ok(())
    }
}

impl HintProvider for CpuManager {
    fn container_hints(&mut self, pod: &Arc<Pod>, container: &Container) -> ResourceHints {
        let policy = self.policy.as_ref();
        policy
            .map(|policy| policy.container_hints(&self.state, pod, container))
            .unwrap_or_default()
    }

    fn pod_hints(&mut self, pod: &Arc<Pod>) -> ResourceHints {
        let policy = self.policy.as_ref();
        policy
            .map(|policy| policy.pod_hints(&self.state, pod))
            .unwrap_or_default()
    }

    fn allocate(
        &mut self,
        pod: &Arc<Pod>,
        container: &Container,
        hint: TopologyHint,
    ) -> Result<(), BoxError> {
        let Some(policy) = &mut self.policy else {
            return Ok(());
        };
        let result = policy.allocate(&mut self.state, pod, container, hint);
        if !matches!(result, Ok(Outcome::Shared)) {
            metrics::count_cpu_pinning();
        }
        self.count(result, false)
    }

    fn allocate_pod(&mut self, pod: &Arc<Pod>, hint: TopologyHint) -> Result<(), BoxError> {
        let Some(policy) = &mut self.policy else {
            return Ok(());
        };
        let result = policy.allocate_pod(&mut self.state, pod, hint);
        if result.is_ok() {
            tracing::debug!(pod = %pod.key(), "allocated the CPUs of a pod");
        }
        self.count(result, true)
    }
}

fn static_policy(
    topology: CpuTopology,
    config: &CpuConfig,
    gates: Gates,
    topology_policy: TopologyPolicy,
) -> Result<StaticPolicy> {
    let refused = |reason: &str| Err(Error::Refused(reason.to_owned()));
    let Some(reserved) = config.reserved else {
        return refused("[cpumanager] unable to determine reserved CPU resources for static policy");
    };
    if reserved.is_zero() {
        return refused(
            "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero",
        );
    }
    let count = usize::try_from(reserved.value()).unwrap_or_default();
    let new = || {
        let options = CpuPolicyOptions::parse(&config.options, gates)?;
        options.check(&topology, topology_policy)?;
        StaticPolicy::new(topology, options, gates, config.reserved_cpus.clone(), count)
    };
    new().map_err(|error| Error::Refused(format!("new static policy error: {error}")))
}

/// A map as Go prints it: `map[a:1 b:2]`.
fn go_map(map: &BTreeMap<String, String>) -> String {
    let items: Vec<String> = map.iter().map(|(key, value)| format!("{key}:{value}")).collect();
    format!("map[{}]", items.join(" "))
}
