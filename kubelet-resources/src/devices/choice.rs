//! Which devices a container gets.
//!
//! A plugin may have a preference, and must be asked for it (`GetPreferredAllocation`) in the middle of the choice. So the choice
//! stops there, and goes on with the answer.

use std::collections::BTreeSet;

use super::DeviceState;
use crate::numa_set::NumaSet;
use crate::topology::TopologyHint;
use crate::{Error, Result};

/// A choice of devices (`devicesToAllocate`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Choice {
    /// Nothing is to be allocated: the container has its devices.
    Nothing,
    /// These devices are to be allocated.
    Devices(BTreeSet<String>),
    /// The plugin may have a preference. Continue with [`PreferenceRequest::answer`].
    Ask(PreferenceRequest),
}

/// A question to a plugin (`ContainerPreferredAllocationRequest`). A plugin without `GetPreferredAllocation` prefers nothing: answer
/// with no devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreferenceRequest {
    /// The devices that it can choose from.
    pub available: BTreeSet<String>,
    /// Those of them that are chosen already.
    pub must_include: BTreeSet<String>,
    /// How many devices there are to be in all.
    pub size: usize,
    /// From these the preferred ones are taken.
    eligible: BTreeSet<String>,
    /// Where the rest is taken from, in this order.
    fallback: Vec<BTreeSet<String>>,
}

impl PreferenceRequest {
    /// The devices, preferably those that the plugin prefers.
    ///
    /// # Errors
    ///
    /// If there are too few.
    pub fn answer(self, preferred: &BTreeSet<String>) -> Result<BTreeSet<String>> {
        let mut taking = Taking {
            chosen: self.must_include,
            size: self.size,
        };
        taking.take(preferred.intersection(&self.eligible));
        for devices in &self.fallback {
            taking.take(devices.iter());
        }
        match taking.is_done() {
            true => Ok(taking.chosen),
            false => Err(Error::Allocation(format!(
                "unexpectedly allocated less resources than required. Requested: {}, Got: {}",
                taking.size,
                taking.chosen.len()
            ))),
        }
    }
}

/// Devices that are chosen until there are enough.
struct Taking {
    chosen: BTreeSet<String>,
    size: usize,
}

impl Taking {
    fn is_done(&self) -> bool {
        self.chosen.len() >= self.size
    }

    fn take<'a>(&mut self, devices: impl Iterator<Item = &'a String>) {
        for id in devices {
            if self.is_done() {
                return;
            }
            self.chosen.insert(id.clone());
        }
    }
}

impl DeviceState {
    /// Begins to choose devices for a container. `is_running`: it runs since before the agent started, and not all sources have
    /// reported their pods yet; it then has its devices, even if their plugin has not come back.
    ///
    /// # Errors
    ///
    /// With the kubelet's texts, if there are too few healthy devices, or if the request changed.
    pub fn choose(
        &self,
        pod_uid: &str,
        container: &str,
        resource: &str,
        required: usize,
        hint: TopologyHint,
        is_running: bool,
    ) -> Result<Choice> {
        let failed = |reason: String| Err(Error::Allocation(reason));
        let present = self.of_container(pod_uid, container, resource);
        if let Some(devices) = &present
            && devices.len() != required
        {
            return failed(format!(
                "pod {pod_uid:?} container {container:?} changed request for resource {resource:?} from {} to {required}",
                devices.len()
            ));
        }
        if is_running {
            return Ok(Choice::Nothing);
        }
        if !self.resources.contains_key(resource) {
            return failed(format!("cannot allocate unregistered device {resource}"));
        }
        let healthy = self.healthy(resource);
        if healthy.is_empty() {
            return failed(format!(
                "no healthy devices present; cannot allocate unhealthy devices {resource}"
            ));
        }
        if let Some(devices) = present {
            return match devices.is_subset(&healthy) {
                true => Ok(Choice::Nothing),
                false => failed(format!(
                    "previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
                )),
            };
        }
        if required == 0 {
            return Ok(Choice::Nothing);
        }
        let mut taking = Taking {
            chosen: BTreeSet::new(),
            size: required,
        };
        taking.take(self.reusable(pod_uid, resource).iter());
        if taking.is_done() {
            return Ok(Choice::Devices(taking.chosen));
        }
        let mut available = self.available(resource);
        available.retain(|id| !taking.chosen.contains(id));
        let needed = required - taking.chosen.len();
        if available.len() < needed {
            return failed(format!(
                "requested number of devices unavailable for {resource}. Requested: {needed}, Available: {}",
                available.len()
            ));
        }
        Ok(self.choose_from(resource, available, taking, hint))
    }

    /// Devices near the hint first; among those of which not all are needed, the plugin has a say.
    fn choose_from(
        &self,
        resource: &str,
        available: BTreeSet<String>,
        mut taking: Taking,
        hint: TopologyHint,
    ) -> Choice {
        let [aligned, unaligned, without_nodes] = self.by_affinity(resource, &available, hint);
        let needed = taking.size - taking.chosen.len();
        let (eligible, fallback) = if needed < aligned.len() {
            (aligned.clone(), vec![aligned])
        } else {
            taking.take(aligned.iter());
            if taking.is_done() {
                return Choice::Devices(taking.chosen);
            }
            (available, vec![unaligned, without_nodes])
        };
        Choice::Ask(PreferenceRequest {
            available: eligible.union(&taking.chosen).cloned().collect(),
            must_include: taking.chosen,
            size: taking.size,
            eligible,
            fallback,
        })
    }

    /// The devices near the nodes of the hint, near other nodes, and near none (`filterByAffinity`).
    fn by_affinity(
        &self,
        resource: &str,
        available: &BTreeSet<String>,
        hint: TopologyHint,
    ) -> [BTreeSet<String>; 3] {
        let mut parts = [const { BTreeSet::new() }; 3];
        let hint: Option<NumaSet> = hint.nodes.filter(|_| self.has_topology(resource));
        for id in available {
            let nodes = self.nodes_of(resource, id);
            let is_near = |hint: NumaSet| {
                let mut nodes = nodes.iter().filter_map(|node| usize::try_from(*node).ok());
                nodes.any(|node| hint.contains(node))
            };
            let part = match hint {
                None => 2,
                Some(_) if nodes.is_empty() => 2,
                Some(hint) if is_near(hint) => 0,
                Some(_) => 1,
            };
            parts[part].insert(id.clone());
        }
        parts
    }
}
