//! The decision: which conditions to report, what to reclaim, and whom to evict.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kubelet_core::PodExt;
use kubelet_core::stats::Summary;
use tokio::time::Instant;

use crate::config::{EvictionConfig, FileSystems};
use crate::eviction::{Eviction, IMMEDIATELY};
use crate::observation::{Observations, Usages, observe};
use crate::reclaim::{Reclaim, reclaims};
use crate::state::EvictionState;
use crate::threshold::Threshold;
use crate::{PressureCondition, Resource, Signal, local_storage, message, rank};

/// What to do now (`synchronize`).
#[derive(Clone, Debug)]
pub struct Decision {
    /// The pressures that the node reports.
    pub conditions: Vec<PressureCondition>,
    /// The pods that exceed a limit of their local storage. All of them are to be evicted; then nothing else is done.
    pub over_limit: Vec<Eviction>,
    /// The resource that is starved, if one is.
    pub starved: Option<Starvation>,
}

/// A resource is starved.
#[derive(Clone, Debug)]
pub struct Starvation {
    /// The threshold that is met.
    pub threshold: Threshold,
    /// The resource.
    pub resource: Resource,
    /// What to try first. If any, evict only if the summary after it does not [satisfy](is_relieved) the thresholds.
    pub reclaim: &'static [Reclaim],
    /// All thresholds that are met, and when each was measured.
    pub met: Vec<(Signal, Option<Timestamp>)>,
    /// The pod to evict. `None` if no pod may be evicted.
    pub eviction: Option<Eviction>,
    /// Whether there are pods at all.
    pub has_pods: bool,
}

impl Starvation {
    /// The message of the event `EvictionThresholdMet` about the node.
    pub fn event_message(&self) -> String {
        format!("Attempting to reclaim {}", self.resource)
    }
}

/// Decides what to do about the usage that the summary reports. `pods` are the active pods, with their allocated resources;
/// `now` is the time of the decision. Returns the state for the next call, too.
///
/// Does no I/O, and depends on nothing but its arguments. At most one pod is evicted for a starved resource. A critical pod is
/// never evicted.
///
/// The kubelet picks any of the thresholds that are met, those of memory first; here the first of the configuration is picked.
pub fn decide(
    config: &EvictionConfig,
    file_systems: FileSystems,
    state: &EvictionState,
    summary: &Summary,
    pods: &[Arc<Pod>],
    now: Instant,
) -> (Decision, EvictionState) {
    let (mut all, added) = config.thresholds_on(file_systems);
    // The kubelet learns of the file systems in its first synchronization, and adds the thresholds for the next.
    if !state.is_new() {
        all.extend(added);
    }
    let observations = observe(summary);
    let usages = Usages::new(summary);
    let (mut starved_of, state) = state.advance(config, &all, &observations, now);
    let mut decision = Decision {
        conditions: state.conditions(),
        over_limit: Vec::new(),
        starved: None,
    };
    if config.local_storage_capacity_isolation {
        decision.over_limit = over_limit(pods, &usages, file_systems);
    }
    if decision.over_limit.is_empty() {
        // `byEvictionPriority`
        starved_of.sort_by_key(|threshold| threshold.signal.resource() != Resource::Memory);
        decision.starved = starvation(config, file_systems, &starved_of, &observations, &usages, pods);
    }
    (decision, state)
}

/// Whether no threshold is met any more, minimum reclaims included, after a [`Reclaim`] (`reclaimNodeLevelResources`).
pub fn is_relieved(config: &EvictionConfig, file_systems: FileSystems, summary: &Summary) -> bool {
    let observations = observe(summary);
    let thresholds = config.on(file_systems).thresholds;
    let mut observed = thresholds.iter().filter_map(|threshold| {
        let observed = observations.get(&threshold.signal)?;
        Some((threshold, observed))
    });
    !observed.any(|(threshold, observed)| threshold.is_met(observed, true))
}

/// `localStorageEviction`
fn over_limit(pods: &[Arc<Pod>], usages: &Usages<'_>, file_systems: FileSystems) -> Vec<Eviction> {
    let evicted = pods.iter().filter(|pod| !pod.is_critical()).filter_map(|pod| {
        let stats = usages.of(pod.uid_str())?;
        let exceeded = local_storage::exceeded_by(pod, stats, file_systems)?;
        Some(Eviction {
            pod: pod.clone(),
            counted_for: exceeded.signal,
            grace_period: IMMEDIATELY,
            message: exceeded.message,
            annotations: Default::default(),
            disruption: false,
        })
    });
    evicted.collect()
}

/// What to do about the first of the thresholds.
fn starvation(
    config: &EvictionConfig,
    file_systems: FileSystems,
    thresholds: &[Threshold],
    observations: &Observations,
    usages: &Usages<'_>,
    pods: &[Arc<Pod>],
) -> Option<Starvation> {
    let threshold = thresholds.first()?;
    let resource = threshold.signal.resource();
    let mut ranked = pods.to_vec();
    rank::rank(&mut ranked, threshold.signal, file_systems, usages);
    let eviction = ranked.into_iter().find(|pod| !pod.is_critical()).map(|pod| {
        let (message, annotations) = message::of_starvation(resource, &pod, usages, thresholds, observations);
        Eviction {
            counted_for: threshold.signal.as_str(),
            grace_period: match threshold.is_hard() {
                true => IMMEDIATELY,
                false => grace_period(&pod, config),
            },
            message,
            annotations,
            disruption: true,
            pod,
        }
    });
    let met = thresholds.iter().map(|threshold| {
        let observed = observations.get(&threshold.signal);
        (threshold.signal, observed.and_then(|observed| observed.time))
    });
    Some(Starvation {
        threshold: threshold.clone(),
        resource,
        reclaim: reclaims(threshold.signal, file_systems),
        met: met.collect(),
        eviction,
        has_pods: !pods.is_empty(),
    })
}

/// The pod's own grace period, but no longer than the longest of a soft eviction.
fn grace_period(pod: &Pod, config: &EvictionConfig) -> std::time::Duration {
    let own = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.termination_grace_period_seconds);
    let own = own.map(|seconds| std::time::Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
    own.map_or(config.max_pod_grace_period, |own| {
        own.min(config.max_pod_grace_period)
    })
}
