//! The kubelet's feature gates (`k8s.io/component-base/featuregate`), as of v1.36.
//!
//! ```
//! use kubelet_config::FeatureGates;
//!
//! let mut gates = FeatureGates::new();
//! assert!(gates.enabled("GracefulNodeShutdown"));
//! gates.set("AllAlpha=true,EventedPLEG=false")?;
//! assert!(gates.enabled("MemoryQoS") && !gates.enabled("EventedPLEG"));
//!
//! // What is unknown, or locked to its default, is refused, and so is a gate whose need is off.
//! assert!(gates.set("NoSuchGate=true").is_err());
//! assert!(gates.set("NodeSwap=false").is_err());
//! assert!(gates.set("GracefulNodeShutdown=false").is_err());
//! # Ok::<(), kubelet_config::Error>(())
//! ```

mod table;

use std::collections::BTreeMap;
use std::fmt;

use crate::{Error, Result};

/// The gate that all alpha gates follow that are not set themselves.
const ALL_ALPHA: &str = "AllAlpha";
/// The gate that all beta gates follow that are not set themselves.
const ALL_BETA: &str = "AllBeta";

/// Which features are on: the defaults of the kubelet v1.36, and what was set beside them.
///
/// Gates may be set several times, a later value replaces an earlier one. What a gate is in the end does not
/// depend on the order in which it, [`AllAlpha`](FeatureStage::Alpha) and [`AllBeta`](FeatureStage::Beta)
/// were set: its own value counts first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates {
    given: BTreeMap<&'static str, bool>,
}

/// One gate of the kubelet v1.36.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeatureGate {
    /// E.g. `EventedPLEG`.
    pub name: &'static str,
    /// How far the feature has come.
    pub stage: FeatureStage,
    /// Whether it is on by default.
    pub default: bool,
    /// Whether only the default may be set.
    pub locked: bool,
}

/// How far a feature has come, in the order of what it may be built on: no feature depends on one of a lower
/// stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FeatureStage {
    /// On its way out.
    Deprecated,
    /// Off by default. `AllAlpha` sets all of them.
    Alpha,
    /// On or off by default. `AllBeta` sets all of them.
    Beta,
    /// Stable. A later version removes the gate.
    Ga,
}

impl FeatureGates {
    /// The defaults of the kubelet v1.36.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets gates as the flag `--feature-gates` does: `A=true,B=false`.
    ///
    /// # Errors
    ///
    /// [`Error::FeatureGates`] as for [`set_from_map`](Self::set_from_map), and for what is not a gate with a
    /// boolean. Nothing is set then.
    pub fn set(&mut self, gates: &str) -> Result<()> {
        self.set_from_map(&parse(gates)?)
    }

    /// Sets gates as the field `featureGates` of the configuration does.
    ///
    /// # Errors
    ///
    /// [`Error::FeatureGates`] with all problems: a gate that is unknown, one that is locked to the other
    /// value, one that is on while a gate that it depends on is off. Nothing is set then.
    pub fn set_from_map(&mut self, gates: &BTreeMap<String, bool>) -> Result<()> {
        let next = self.with(gates)?;
        for name in next.given.keys().filter(|name| !self.given.contains_key(*name)) {
            warn_of_end(name);
        }
        *self = next;
        Ok(())
    }

    /// These gates, and those set as well; or what forbids to set them.
    pub(crate) fn with(&self, gates: &BTreeMap<String, bool>) -> Result<Self, Vec<GateProblem>> {
        let mut next = self.clone();
        let mut problems = Vec::new();
        for (name, &value) in gates {
            let mut refuse = |why| {
                problems.push(GateProblem {
                    gate: name.clone(),
                    value,
                    why,
                });
            };
            match Self::find(name) {
                None => refuse(Refusal::Unknown),
                Some(gate) if gate.locked && gate.default != value => refuse(Refusal::Locked),
                Some(gate) => _ = next.given.insert(gate.name, value),
            }
        }
        if problems.is_empty() {
            problems = next.unmet_dependencies();
        }
        if problems.is_empty() {
            Ok(next)
        } else {
            Err(problems)
        }
    }

    /// Whether the feature is on. One that the kubelet does not know is not.
    pub fn enabled(&self, name: &str) -> bool {
        Self::find(name).is_some_and(|gate| self.value(gate))
    }

    /// What was set, whether or not it differs from the default. Sorted by name.
    pub fn given(&self) -> impl Iterator<Item = (&'static str, bool)> {
        self.given.iter().map(|(&name, &value)| (name, value))
    }

    /// All gates, sorted by name.
    pub fn known() -> impl ExactSizeIterator<Item = &'static FeatureGate> {
        table::KNOWN.iter()
    }

    /// The gate of this name.
    pub fn find(name: &str) -> Option<&'static FeatureGate> {
        let at = table::KNOWN.binary_search_by_key(&name, |gate| gate.name).ok()?;
        table::KNOWN.get(at)
    }

    fn value(&self, gate: &FeatureGate) -> bool {
        let of_all = match gate.stage {
            FeatureStage::Alpha if gate.name != ALL_ALPHA => self.given.get(ALL_ALPHA),
            FeatureStage::Beta if gate.name != ALL_BETA => self.given.get(ALL_BETA),
            _ => None,
        };
        let given = self.given.get(gate.name).or(of_all);
        given.copied().unwrap_or(gate.default)
    }

    fn unmet_dependencies(&self) -> Vec<GateProblem> {
        let unmet = |&(name, needs): &(&str, &'static [&str])| {
            let off: Vec<_> = needs.iter().copied().filter(|need| !self.enabled(need)).collect();
            (self.enabled(name) && !off.is_empty()).then(|| GateProblem {
                gate: name.to_owned(),
                value: true,
                why: Refusal::Needs(off),
            })
        };
        table::DEPENDENCIES.iter().filter_map(unmet).collect()
    }
}

impl From<Vec<GateProblem>> for Error {
    fn from(problems: Vec<GateProblem>) -> Self {
        Self::FeatureGates {
            problems: problems.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Why a gate cannot have a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GateProblem {
    pub(crate) gate: String,
    pub(crate) value: bool,
    pub(crate) why: Refusal,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The kubelet has no such gate.
    Unknown,
    /// It is locked to the other value.
    Locked,
    /// These are off without which it cannot be on.
    Needs(Vec<&'static str>),
}

impl fmt::Display for GateProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gate, value, why } = self;
        match why {
            Refusal::Unknown => write!(f, "unrecognized feature gate: {gate}"),
            Refusal::Locked => {
                write!(
                    f,
                    "cannot set feature gate {gate} to {value}, feature is locked to {}",
                    !value
                )
            }
            Refusal::Needs(off) => {
                let off = off.join(", ");
                write!(
                    f,
                    "{gate} is enabled, but depends on features that are disabled: {off}"
                )
            }
        }
    }
}

impl FeatureGate {
    /// The gates that must be on for this one to be on.
    pub fn depends_on(&self) -> &'static [&'static str] {
        table::DEPENDENCIES
            .binary_search_by_key(&self.name, |(name, _)| name)
            .ok()
            .and_then(|at| table::DEPENDENCIES.get(at))
            .map_or(&[], |(_, needs)| needs)
    }
}

/// As the kubelet lists it in its help: `EventedPLEG=true|false (ALPHA - default=false)`.
impl fmt::Display for FeatureGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name, stage, default, ..
        } = self;
        write!(f, "{name}=true|false ({stage} - default={default})")
    }
}

impl fmt::Display for FeatureStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deprecated => "DEPRECATED",
            Self::Alpha => "ALPHA",
            Self::Beta => "BETA",
            Self::Ga => "GA",
        })
    }
}

/// `A=true,B=false` as a map. Spaces around names and values do not matter, nor do empty entries.
///
/// # Errors
///
/// [`Error::FeatureGates`] with all entries that are not a name and a boolean.
pub(crate) fn parse(gates: &str) -> Result<BTreeMap<String, bool>> {
    let mut map = BTreeMap::new();
    let mut problems = Vec::new();
    for entry in gates.split(',').filter(|entry| !entry.is_empty()) {
        let (name, value) = match entry.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (entry.trim(), None),
        };
        match (value, value.and_then(parse_bool)) {
            (_, Some(on)) => _ = map.insert(name.to_owned(), on),
            (Some(value), None) => {
                problems.push(format!("invalid value of {name}: {value:?} is not a boolean"))
            }
            (None, None) => problems.push(format!("missing bool value for {name}")),
        }
    }
    if problems.is_empty() {
        Ok(map)
    } else {
        Err(Error::FeatureGates { problems })
    }
}

/// A boolean as Go's `strconv.ParseBool` reads it.
pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn warn_of_end(name: &str) {
    let Some(gate) = FeatureGates::find(name) else {
        return;
    };
    if matches!(gate.stage, FeatureStage::Ga | FeatureStage::Deprecated) {
        tracing::warn!(feature_gate = name, stage = %gate.stage, "the feature gate will be removed in a later version");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_and_consistent() {
        assert!(table::KNOWN.is_sorted_by(|a, b| a.name < b.name));
        assert!(table::DEPENDENCIES.is_sorted_by(|a, b| a.0 < b.0));
        for (name, needs) in table::DEPENDENCIES {
            let gate = FeatureGates::find(name).expect(name);
            assert_eq!(gate.depends_on(), *needs);
            for need in *needs {
                let need = FeatureGates::find(need).expect(need);
                assert!(gate.stage <= need.stage, "{name} on {}", need.name);
                assert!(gate.default <= need.default, "{name} on {}", need.name);
                assert!(gate.locked <= need.locked, "{name} on {}", need.name);
            }
        }
        assert!(FeatureGates::new().unmet_dependencies().is_empty());
    }

    #[test]
    fn all_alpha_and_all_beta_spare_what_is_locked() {
        let unfinished = |gate: &&FeatureGate| matches!(gate.stage, FeatureStage::Alpha | FeatureStage::Beta);
        assert!(FeatureGates::known().filter(unfinished).all(|gate| !gate.locked));
    }
}
