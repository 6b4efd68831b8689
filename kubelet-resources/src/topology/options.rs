//! The options of the topology manager's policies (`topologyManagerPolicyOptions`).

use std::collections::BTreeMap;

use crate::go_values::{parse_bool, parse_int};
use crate::{Error, Result};

/// The most NUMA nodes without an option (`defaultMaxAllowableNUMANodes`).
const DEFAULT_MAX_NUMA_NODES: usize = 8;

const PREFER_CLOSEST_NUMA_NODES: &str = "prefer-closest-numa-nodes";
const MAX_ALLOWABLE_NUMA_NODES: &str = "max-allowable-numa-nodes";

/// The options (`PolicyOptions`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopologyOptions {
    /// `prefer-closest-numa-nodes`: of two sets with equally many nodes, the one with the shorter distances is better.
    pub prefer_closest_numa: bool,
    /// `max-allowable-numa-nodes`: a machine with more NUMA nodes is refused.
    pub max_allowable_numa_nodes: usize,
}

impl Default for TopologyOptions {
    fn default() -> Self {
        Self {
            prefer_closest_numa: false,
            max_allowable_numa_nodes: DEFAULT_MAX_NUMA_NODES,
        }
    }
}

impl TopologyOptions {
    /// Logs what is allowed, but not recommended.
    pub(crate) fn warn(&self) {
        if self.max_allowable_numa_nodes > DEFAULT_MAX_NUMA_NODES {
            tracing::warn!(
                value = self.max_allowable_numa_nodes,
                recommended = DEFAULT_MAX_NUMA_NODES,
                "more NUMA nodes are allowed than is recommended"
            );
        }
    }

    /// Parses the options of the configuration. Both are stable, so no gate decides on them.
    ///
    /// # Errors
    ///
    /// If an option is unknown or has a bad value.
    pub fn parse(options: &BTreeMap<String, String>) -> Result<Self> {
        let mut parsed = Self::default();
        for (name, value) in options {
            match name.as_str() {
                PREFER_CLOSEST_NUMA_NODES => {
                    parsed.prefer_closest_numa = parse_bool(value)
                        .map_err(|error| Error::Refused(format!("bad value for option {name:?}: {error}")))?;
                }
                MAX_ALLOWABLE_NUMA_NODES => {
                    let most = parse_int(value).map_err(|error| {
                        Error::Refused(format!(
                            "unable to convert policy option to integer {name:?}: {error}"
                        ))
                    })?;
                    parsed.max_allowable_numa_nodes = usize::try_from(most)
                        .ok()
                        .filter(|most| *most >= DEFAULT_MAX_NUMA_NODES)
                        .ok_or_else(|| {
                            Error::Refused(format!(
                                "the minimum value of {name:?} should not be less than {DEFAULT_MAX_NUMA_NODES}"
                            ))
                        })?;
                }
                _ => {
                    return Err(Error::Refused(format!(
                        "unknown Topology Manager Policy option: {name:?}"
                    )));
                }
            }
        }
        Ok(parsed)
    }
}
