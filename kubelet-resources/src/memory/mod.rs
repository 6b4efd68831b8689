//! The memory manager: from which NUMA nodes a container's memory comes.
//!
//! Answers to `pkg/kubelet/cm/memorymanager`.

pub(crate) mod checkpoint;
mod hints;
mod nodes;
mod pods;
mod policy;
mod reserved;
mod state;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use self::policy::{Outcome, StaticPolicy};
pub use self::reserved::MemoryReservation;
use self::reserved::reserved_memory;
pub use self::state::{ContainerBlocks, MemoryBlock, MemoryState, MemoryTable, NodeMap, NodeMemory};
use crate::active::ActiveContainers;
use crate::machine::Machine;
use crate::metrics::{self, Assignment, Resource};
use crate::requests::{Gates, init_containers, is_sidecar};
use crate::topology::{HintProvider, ResourceHints, TopologyHint};
use crate::{BoxError, Error, Result};

/// The file of the memory manager's state in the kubelet's root folder (`memoryManagerStateFileName`).
pub const MEMORY_MANAGER_STATE: &str = "memory_manager_state";

/// The name of a policy (`memoryManagerPolicy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryPolicy {
    /// `None`: memory comes from any NUMA node.
    #[default]
    None,
    /// `Static`: the memory of guaranteed pods comes from NUMA nodes that have room for it.
    Static,
}

impl MemoryPolicy {
    /// The policy of this name.
    ///
    /// # Errors
    ///
    /// If there is none on Linux.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "None" => Ok(Self::None),
            "Static" => Ok(Self::Static),
            "BestEffort" => Err(Error::Refused(format!(
                "policy {name:?} is not available for platform \"linux\""
            ))),
            _ => Err(Error::Refused(format!("unknown policy: {name:?}"))),
        }
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Static => "Static",
        }
    }
}

/// The settings of the memory manager.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct MemoryConfig {
    /// `memoryManagerPolicy`
    pub policy: MemoryPolicy,
    /// `reservedMemory`
    pub reserved: Vec<MemoryReservation>,
    /// What the node reserves as a whole (`GetNodeAllocatableReservation`): `reserved` must add up to it.
    pub node_reserved: BTreeMap<String, Quantity>,
}

/// The policy with its state (`memorymanager.manager`).
#[derive(Clone, Debug)]
pub(crate) struct MemoryManager {
    /// `None` for the policy `None`.
    policy: Option<StaticPolicy>,
    state: MemoryState,
}

impl MemoryManager {
    /// Checks the settings (`NewManager`).
    pub(crate) fn new(machine: &Machine, config: &MemoryConfig, gates: Gates) -> Result<Self> {
        let policy = match config.policy {
            MemoryPolicy::None => None,
            MemoryPolicy::Static => {
                let reserved = reserved_memory(machine, &config.node_reserved, &config.reserved)?;
                Some(StaticPolicy::new(machine, &reserved, gates))
            }
        };
        Ok(Self {
            policy,
            state: MemoryState::default(),
        })
    }

    /// Takes over a state that was read, or starts with an empty one (`Start`).
    ///
    /// # Errors
    ///
    /// If the state does not suit the machine or the configuration.
    pub(crate) fn start(&mut self, state: MemoryState) -> Result<()> {
        self.state = state;
        match &self.policy {
            Some(policy) => policy.check_state(&mut self.state).inspect_err(|error| {
                tracing::error!(%error, "invalid state, please drain node and remove policy state file");
            }),
            None => Ok(()),
        }
    }

    pub(crate) fn policy(&self) -> MemoryPolicy {
        match self.policy {
            Some(_) => MemoryPolicy::Static,
            None => MemoryPolicy::None,
        }
    }

    pub(crate) fn state(&self) -> &MemoryState {
        &self.state
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
        !stale.is_empty()
    }

    /// A container starts: the init containers before it have ended, and their memory is free (`AddContainer`). Returns whether
    /// something changed.
    pub(crate) fn container_starts(&mut self, pod: &Pod, pod_uid: &str, container: &str) -> bool {
        let Some(policy) = &mut self.policy else {
            return false;
        };
        let mut changed = false;
        let ended = init_containers(pod)
            .take_while(|init| init.name != container)
            .filter(|init| !is_sidecar(init));
        for init in ended {
            changed |= self.state.blocks(pod_uid, &init.name).is_some();
            policy.release(&mut self.state, pod_uid, &init.name);
        }
        changed
    }
}

impl HintProvider for MemoryManager {
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
        if matches!(result, Ok(Outcome::Allocated)) {
            metrics::count_assignment(Resource::Memory, Assignment::NodeExclusive);
        }
        count(result, false)
    }

    fn allocate_pod(&mut self, pod: &Arc<Pod>, hint: TopologyHint) -> Result<(), BoxError> {
        let Some(policy) = &mut self.policy else {
            return Ok(());
        };
        count(policy.allocate_pod(&mut self.state, pod, hint), true)
    }
}

fn count(result: Result<Outcome>, of_pod: bool) -> Result<(), BoxError> {
    if !matches!(result, Ok(Outcome::Unmanaged)) {
        metrics::count_memory_pinning();
    }
    match result {
        Ok(_) => Ok(()),
        Err(error) => {
            metrics::count_memory_error(of_pod);
            Err(error.into())
        }
    }
}
