//! The topology manager: whether and on which NUMA nodes the resources of a pod can be allocated together.
//!
//! Answers to `pkg/kubelet/cm/topologymanager`.

mod distances;
mod hint;
mod merge;
mod options;

use std::collections::BTreeMap;

use self::distances::NodeOrder;
pub use self::hint::{HintProvider, HintSource, ResourceHints, TopologyHint};
pub(crate) use self::hint::{HintsOnly, provider_error};
pub use self::options::TopologyOptions;
use crate::machine::Machine;
use crate::{Error, Result};

/// How resources must be aligned (`topologyManagerPolicy`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopologyPolicy {
    /// `none`: not at all. No provider is asked for hints.
    #[default]
    None,
    /// `best-effort`: if possible.
    BestEffort,
    /// `restricted`: as well as the machine could do it if it were empty.
    Restricted,
    /// `single-numa-node`: on one node.
    SingleNumaNode,
}

impl TopologyPolicy {
    /// The policy of this name.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn parse(name: &str) -> Result<Self> {
        Ok(match name {
            "none" => Self::None,
            "best-effort" => Self::BestEffort,
            "restricted" => Self::Restricted,
            "single-numa-node" => Self::SingleNumaNode,
            _ => return Err(Error::Refused(format!("unknown policy: \"{name}\""))),
        })
    }
}

/// Of what the resources are aligned (`topologyManagerScope`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopologyScope {
    /// `container`: of each container.
    #[default]
    Container,
    /// `pod`: of all containers of a pod together.
    Pod,
}

impl TopologyScope {
    /// The scope of this name.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "container" => Ok(Self::Container),
            "pod" => Ok(Self::Pod),
            _ => Err(Error::Refused(format!("unknown scope: \"{name}\""))),
        }
    }
}

/// Merges hints by a policy (`topologymanager.Policy`).
///
/// ```
/// # fn main() -> kubelet_resources::Result<()> {
/// use kubelet_resources::topology::{TopologyHint, TopologyMerger, TopologyOptions, TopologyPolicy};
/// use kubelet_resources::{Machine, NumaNode, NumaSet};
///
/// let machine = Machine { nodes: (0..2).map(|id| NumaNode { id, ..NumaNode::default() }).collect() };
/// let merger = TopologyMerger::new(&machine, TopologyPolicy::SingleNumaNode, TopologyOptions::default())?;
/// let hint = |nodes: u64, preferred| TopologyHint::new(NumaSet::from_bits(nodes), preferred);
/// let cpus = [("cpu".to_owned(), Some(vec![hint(0b01, true), hint(0b10, true), hint(0b11, false)]))];
/// let devices = [("example.com/gpu".to_owned(), Some(vec![hint(0b10, true)]))];
///
/// let (merged, admitted) = merger.merge(vec![cpus.into(), devices.into()]);
/// assert!(admitted);
/// assert_eq!(merged, hint(0b10, true));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TopologyMerger {
    policy: TopologyPolicy,
    order: NodeOrder,
}

impl TopologyMerger {
    /// A merger for this machine.
    ///
    /// # Errors
    ///
    /// If the machine has too many NUMA nodes, or does not know its distances and the options need them.
    pub fn new(machine: &Machine, policy: TopologyPolicy, options: TopologyOptions) -> Result<Self> {
        if policy == TopologyPolicy::None {
            let order = NodeOrder::default();
            return Ok(Self { policy, order });
        }
        let mut order = NodeOrder::new(machine, options.prefer_closest_numa)?;
        if machine.nodes.len() > options.max_allowable_numa_nodes {
            return Err(Error::Refused(format!(
                "unsupported on machines with more than {} NUMA Nodes",
                options.max_allowable_numa_nodes
            )));
        }
        if policy == TopologyPolicy::SingleNumaNode {
            order = order.without_distances();
        }
        Ok(Self { policy, order })
    }

    /// The policy.
    pub fn policy(&self) -> TopologyPolicy {
        self.policy
    }

    /// Merges the hints of all providers to the best one; the second value is whether the policy accepts it.
    ///
    /// The time grows with the number of sets of nodes, 2ⁿ, times the number of hints of each resource.
    pub fn merge(&self, providers: Vec<ResourceHints>) -> (TopologyHint, bool) {
        let mut lists = merge::lists_of(providers);
        match self.policy {
            TopologyPolicy::None => (TopologyHint::default(), true),
            TopologyPolicy::BestEffort => (merge::merge(&lists, &self.order), true),
            TopologyPolicy::Restricted => {
                let best = merge::merge(&lists, &self.order);
                (best, best.preferred)
            }
            TopologyPolicy::SingleNumaNode => {
                for list in &mut lists {
                    list.retain(|hint| hint.preferred && hint.nodes.is_none_or(|nodes| nodes.len() == 1));
                }
                let mut best = merge::merge(&lists, &self.order);
                // "All nodes" means that no resource has a preference.
                if best.nodes == Some(self.order.all) {
                    best.nodes = None;
                }
                (best, best.preferred)
            }
        }
    }
}

/// The merged hints of the containers, by the pod's UID and the container's name (`podTopologyHints`).
#[derive(Clone, Debug, Default)]
pub(crate) struct MergedHints {
    hints: BTreeMap<String, BTreeMap<String, TopologyHint>>,
}

impl MergedHints {
    /// The container's hint; without preference if it has none.
    pub(crate) fn get(&self, pod_uid: &str, container: &str) -> TopologyHint {
        let of_pod = self.hints.get(pod_uid);
        let hint = of_pod.and_then(|containers| containers.get(container));
        hint.copied().unwrap_or_default()
    }

    pub(crate) fn set(&mut self, pod_uid: &str, container: &str, hint: TopologyHint) {
        let of_pod = self.hints.entry(pod_uid.to_owned()).or_default();
        of_pod.insert(container.to_owned(), hint);
    }

    /// Forgets pods that are gone.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&str) -> bool) {
        self.hints.retain(|pod_uid, _| keep(pod_uid));
    }
}
