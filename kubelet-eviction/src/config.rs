//! The settings of eviction.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::threshold::{self, Threshold};
use crate::{Error, Result, Signal};

/// The settings of eviction, as `KubeletConfiguration` has them (`eviction.Config`).
#[derive(Clone, Debug, Default)]
pub struct EvictionConfig {
    /// The thresholds, in the order in which they are considered. See [`parse`](Self::parse).
    pub thresholds: Vec<Threshold>,
    /// The longest grace period of a pod that a soft threshold evicts (`evictionMaxPodGracePeriod`).
    pub max_pod_grace_period: Duration,
    /// How long a condition is reported after its thresholds are no longer met (`evictionPressureTransitionPeriod`).
    pub pressure_transition_period: Duration,
    /// Whether limits of local storage are enforced (`localStorageCapacityIsolation`).
    pub local_storage_capacity_isolation: bool,
}

/// Settings in the types of `KubeletConfiguration`, to be [parsed](EvictionConfig::parse).
#[derive(Clone, Copy, Debug)]
pub struct EvictionSettings<'a> {
    /// `evictionHard`: signal → quantity or percentage.
    pub hard: &'a BTreeMap<String, String>,
    /// `evictionSoft`: likewise.
    pub soft: &'a BTreeMap<String, String>,
    /// `evictionSoftGracePeriod`: signal → duration in Go's format.
    pub soft_grace_period: &'a BTreeMap<String, String>,
    /// `evictionMinimumReclaim`: signal → quantity or percentage.
    pub minimum_reclaim: &'a BTreeMap<String, String>,
    /// `enforceNodeAllocatable`. With `pods`, the hard threshold of `memory.available` also holds for the memory that is
    /// allocatable to pods.
    pub enforce_node_allocatable: &'a [String],
}

/// Which file systems the node has (`DiskInfoProvider`). The default is one for everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSystems {
    /// Images have a file system of their own (`HasDedicatedImageFs`).
    pub dedicated_image_fs: bool,
    /// Writable layers of containers are on another file system than images (`HasDedicatedContainerFs`).
    pub split_container_fs: bool,
}

impl EvictionSettings<'_> {
    fn thresholds(&self, problems: &mut Vec<Error>) -> Vec<Threshold> {
        // `NodeAllocatableEnforcementKey`
        let pods_are_confined = self.enforce_node_allocatable.iter().any(|key| key == "pods");
        threshold::parse(
            self.hard,
            self.soft,
            self.soft_grace_period,
            self.minimum_reclaim,
            pods_are_confined,
            problems,
        )
    }
}

impl EvictionConfig {
    /// Reads the thresholds (`ParseThresholdConfig`). The other fields keep their defaults.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use kubelet_eviction::{EvictionConfig, EvictionSettings, Signal};
    ///
    /// # fn main() -> kubelet_eviction::Result<()> {
    /// let hard = BTreeMap::from([("memory.available".to_owned(), "5%".to_owned())]);
    /// let none = BTreeMap::new();
    /// let config = EvictionConfig::parse(EvictionSettings {
    ///     hard: &hard,
    ///     soft: &none,
    ///     soft_grace_period: &none,
    ///     minimum_reclaim: &none,
    ///     enforce_node_allocatable: &["pods".to_owned()],
    /// })?;
    /// let signals: Vec<Signal> = config.thresholds.iter().map(|threshold| threshold.signal).collect();
    /// assert_eq!(signals, [Signal::MemoryAvailable, Signal::AllocatableMemoryAvailable]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`](crate::Error::Configuration), of the first setting that cannot be read.
    /// [`problems`](Self::problems) has all of them.
    pub fn parse(settings: EvictionSettings<'_>) -> Result<Self> {
        let mut problems = Vec::new();
        let thresholds = settings.thresholds(&mut problems);
        match problems.into_iter().next() {
            Some(problem) => Err(problem),
            None => Ok(Self {
                thresholds,
                ..Self::default()
            }),
        }
    }

    /// All that [`parse`](Self::parse) refuses in these settings.
    pub fn problems(settings: EvictionSettings<'_>) -> Vec<Error> {
        let mut problems = Vec::new();
        settings.thresholds(&mut problems);
        problems
    }

    /// Whether there is nothing to observe.
    pub fn is_off(&self) -> bool {
        self.thresholds.is_empty() && !self.local_storage_capacity_isolation
    }

    /// The settings on a node with these file systems (`UpdateContainerFsThresholds`). Writable layers have no thresholds of
    /// their own: those of the file system they are on hold for them, and replace what was configured.
    #[must_use]
    pub fn on(&self, file_systems: FileSystems) -> Self {
        let (mut thresholds, added) = self.thresholds_on(file_systems);
        thresholds.extend(added);
        Self {
            thresholds,
            ..self.clone()
        }
    }

    /// The configured thresholds, with those of writable layers replaced, and the thresholds that come in addition.
    pub(crate) fn thresholds_on(&self, file_systems: FileSystems) -> (Vec<Threshold>, Vec<Threshold>) {
        let same_as = match (file_systems.dedicated_image_fs, file_systems.split_container_fs) {
            (true, false) => [Signal::ImageFsAvailable, Signal::ImageFsInodesFree],
            (true, true) | (false, false) => [Signal::NodeFsAvailable, Signal::NodeFsInodesFree],
            // The kubelet does not expect it, and leaves the thresholds as they are.
            (false, true) => return (self.thresholds.clone(), Vec::new()),
        };
        let of_containers = [Signal::ContainerFsAvailable, Signal::ContainerFsInodesFree];
        let mut copies: Vec<Threshold> = Vec::new();
        for (from, signal) in same_as.into_iter().zip(of_containers) {
            let copied = self
                .thresholds
                .iter()
                .filter(|threshold| threshold.signal == from);
            copies.extend(copied.map(|threshold| Threshold {
                signal,
                ..threshold.clone()
            }));
        }
        let replaced = self.thresholds.iter().filter_map(|threshold| {
            if !of_containers.contains(&threshold.signal) {
                return Some(threshold.clone());
            }
            let mut same = copies.iter();
            let place = same
                .position(|copy| copy.signal == threshold.signal && copy.is_hard() == threshold.is_hard())?;
            Some(copies.remove(place))
        });
        (replaced.collect(), copies)
    }
}
