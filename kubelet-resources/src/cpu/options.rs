//! The options of the static policy (`cpuManagerPolicyOptions`).

use std::collections::BTreeMap;

use super::topology::CpuTopology;
use crate::go_values::parse_bool;
use crate::requests::Gates;
use crate::topology::TopologyPolicy;
use crate::{Error, Result};

const FULL_PCPUS_ONLY: &str = "full-pcpus-only";
const DISTRIBUTE_ACROSS_NUMA: &str = "distribute-cpus-across-numa";
const ALIGN_BY_SOCKET: &str = "align-by-socket";
const DISTRIBUTE_ACROSS_CORES: &str = "distribute-cpus-across-cores";
const STRICT_CPU_RESERVATION: &str = "strict-cpu-reservation";
const PREFER_ALIGN_BY_CACHE: &str = "prefer-align-cpus-by-uncorecache";

/// The options (`StaticPolicyOptions`). All are off by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuPolicyOptions {
    /// `full-pcpus-only`: containers get whole cores, or are rejected.
    pub full_physical_cpus_only: bool,
    /// `distribute-cpus-across-numa`: CPUs that do not fit on one NUMA node are spread evenly over several.
    pub distribute_across_numa: bool,
    /// `align-by-socket`: CPUs are aligned by sockets, not by NUMA nodes.
    pub align_by_socket: bool,
    /// `distribute-cpus-across-cores`: CPUs are taken from different cores.
    pub distribute_across_cores: bool,
    /// `strict-cpu-reservation`: reserved CPUs are not in the shared pool either.
    pub strict_reservation: bool,
    /// `prefer-align-cpus-by-uncorecache`: CPUs are taken from as few last-level caches as possible.
    pub prefer_align_by_uncore_cache: bool,
}

/// The gate on which an option depends.
enum Stage {
    Alpha,
    Beta,
    Stable,
}

impl CpuPolicyOptions {
    /// Parses the options of the configuration.
    ///
    /// # Errors
    ///
    /// If an option is unknown, has a bad value, needs a gate that is off, or excludes another one.
    pub fn parse(options: &BTreeMap<String, String>, gates: Gates) -> Result<Self> {
        let refused = |reason: String| Err(Error::Refused(reason));
        let mut parsed = Self::default();
        for (name, value) in options {
            let Some((stage, option)) = parsed.option(name) else {
                return refused(format!("unknown CPU Manager Policy option: {name:?}"));
            };
            match stage {
                Stage::Alpha if !gates.cpu_policy_alpha_options => {
                    return refused(format!(
                        "CPU Manager Policy Alpha-level Options not enabled, but option {name:?} provided"
                    ));
                }
                Stage::Beta if !gates.cpu_policy_beta_options => {
                    return refused(format!(
                        "CPU Manager Policy Beta-level Options not enabled, but option {name:?} provided"
                    ));
                }
                _ => {}
            }
            *option = parse_bool(value)
                .map_err(|error| Error::Refused(format!("bad value for option {name:?}: {error}")))?;
        }
        match parsed.conflict() {
            Some((one, other)) => refused(format!(
                "static policy options {one} and {other} can not be used at the same time"
            )),
            None => Ok(parsed),
        }
    }

    fn option(&mut self, name: &str) -> Option<(Stage, &mut bool)> {
        Some(match name {
            FULL_PCPUS_ONLY => (Stage::Stable, &mut self.full_physical_cpus_only),
            STRICT_CPU_RESERVATION => (Stage::Stable, &mut self.strict_reservation),
            PREFER_ALIGN_BY_CACHE => (Stage::Stable, &mut self.prefer_align_by_uncore_cache),
            DISTRIBUTE_ACROSS_NUMA => (Stage::Beta, &mut self.distribute_across_numa),
            ALIGN_BY_SOCKET => (Stage::Alpha, &mut self.align_by_socket),
            DISTRIBUTE_ACROSS_CORES => (Stage::Alpha, &mut self.distribute_across_cores),
            _ => return None,
        })
    }

    /// The first two options that exclude each other.
    fn conflict(&self) -> Option<(&'static str, &'static str)> {
        let cores = self.distribute_across_cores;
        let numa = self.distribute_across_numa;
        let cache = self.prefer_align_by_uncore_cache;
        [
            (
                self.full_physical_cpus_only && cores,
                (FULL_PCPUS_ONLY, DISTRIBUTE_ACROSS_CORES),
            ),
            (numa && cores, (DISTRIBUTE_ACROSS_NUMA, DISTRIBUTE_ACROSS_CORES)),
            (cache && cores, (PREFER_ALIGN_BY_CACHE, DISTRIBUTE_ACROSS_CORES)),
            (cache && numa, (PREFER_ALIGN_BY_CACHE, DISTRIBUTE_ACROSS_NUMA)),
        ]
        .into_iter()
        .find_map(|(excluded, options)| excluded.then_some(options))
    }

    /// Checks that the options suit the machine and the topology manager (`ValidateStaticPolicyOptions`).
    ///
    /// # Errors
    ///
    /// If they do not.
    pub(crate) fn check(&self, topology: &CpuTopology, policy: TopologyPolicy) -> Result<()> {
        let refused = |reason: &str| Err(Error::Refused(reason.to_owned()));
        if !self.align_by_socket {
            return Ok(());
        }
        if policy == TopologyPolicy::SingleNumaNode {
            return refused(
                "Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy \
                 option",
            );
        }
        if topology.sockets.len() > topology.numa.len() {
            return refused(
                "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA",
            );
        }
        Ok(())
    }
}
