//! Which of two sets of NUMA nodes is better.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::machine::Machine;
use crate::numa_set::NumaSet;
use crate::{Error, Result};

/// The order of sets of nodes: fewer nodes are better, then those that are closer if so configured, then lower ids
/// (`NUMAInfo`).
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeOrder {
    pub(crate) all: NumaSet,
    /// The distances from a node to each other one. Empty if closeness does not count.
    distances: BTreeMap<usize, Vec<u64>>,
}

impl NodeOrder {
    /// The order for this machine.
    ///
    /// # Errors
    ///
    /// If the machine has ids that are too high, or if distances count and are not known.
    pub(crate) fn new(machine: &Machine, prefer_closest: bool) -> Result<Self> {
        let all = machine
            .numa_nodes()
            .ok_or_else(|| Error::Refused("bit number must be in range 0-63".to_owned()))?;
        let mut distances = BTreeMap::new();
        if prefer_closest {
            for node in &machine.nodes {
                let known = node.distances.clone().ok_or_else(|| {
                    Error::Refused(
                        "cannot discover NUMA topology: error getting NUMA distances from cadvisor"
                            .to_owned(),
                    )
                })?;
                distances.insert(node.id, known);
            }
        }
        Ok(Self { all, distances })
    }

    /// The same without distances: under `single-numa-node` they do not count.
    pub(crate) fn without_distances(self) -> Self {
        Self {
            distances: BTreeMap::new(),
            ..self
        }
    }

    /// `Less` if the first set is the better one.
    pub(crate) fn compare(&self, a: NumaSet, b: NumaSet) -> Ordering {
        a.len()
            .cmp(&b.len())
            .then_with(|| self.average(a).total_cmp(&self.average(b)))
            .then(a.bits().cmp(&b.bits()))
    }

    /// The average distance between the nodes of the set (`CalculateAverageFor`). A missing distance counts as zero.
    fn average(&self, nodes: NumaSet) -> f64 {
        if self.distances.is_empty() || nodes.is_empty() {
            return 0.0;
        }
        let between = |from: usize, to: usize| {
            let row = self.distances.get(&from);
            row.and_then(|row| row.get(to)).copied().unwrap_or_default()
        };
        let sum: f64 = nodes
            .iter()
            .flat_map(|from| nodes.iter().map(move |to| between(from, to) as f64))
            .sum();
        sum / (nodes.len() * nodes.len()) as f64
    }
}
