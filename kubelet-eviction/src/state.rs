//! What is remembered from one decision to the next.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use crate::PressureCondition;
use crate::config::EvictionConfig;
use crate::observation::Observations;
use crate::signal::Signal;
use crate::threshold::Threshold;

/// What is remembered from one [decision](crate::decide) to the next: which thresholds are met since when, and when each
/// condition was last observed. The default is that of a start.
#[derive(Clone, Debug, Default)]
pub struct EvictionState {
    /// There was a decision before.
    has_decided: bool,
    /// `nodeConditions`
    conditions: Vec<PressureCondition>,
    /// `nodeConditionsLastObservedAt`
    last_observed_at: BTreeMap<PressureCondition, Instant>,
    /// `thresholdsFirstObservedAt`
    first_observed_at: Vec<(Threshold, Instant)>,
    /// Met for their grace period, and not yet resolved (`thresholdsMet`).
    met: Vec<Threshold>,
    /// When each signal was measured (`lastObservations`).
    measured: BTreeMap<Signal, Option<Timestamp>>,
}

impl EvictionState {
    /// The pressures that the node reports, sorted.
    pub fn conditions(&self) -> Vec<PressureCondition> {
        self.conditions.clone()
    }

    /// Whether there was no decision yet.
    pub(crate) fn is_new(&self) -> bool {
        !self.has_decided
    }

    /// The state after these observations, and the thresholds to act on: met for their grace period, and measured anew. They
    /// are in the order of the configuration.
    pub(crate) fn advance(
        &self,
        config: &EvictionConfig,
        all: &[Threshold],
        observations: &Observations,
        now: Instant,
    ) -> (Vec<Threshold>, Self) {
        let thresholds = self.thresholds_met(all, observations);
        let first_observed_at: Vec<(Threshold, Instant)> = thresholds
            .iter()
            .map(|threshold| (threshold.clone(), self.first_observed(threshold).unwrap_or(now)))
            .collect();
        let mut last_observed_at = self.last_observed_at.clone();
        last_observed_at.extend(
            thresholds
                .iter()
                .map(|threshold| (threshold.signal.condition(), now)),
        );
        // `nodeConditionsObservedSince`
        let conditions = last_observed_at
            .iter()
            .filter(|(_, at)| now.duration_since(**at) < config.pressure_transition_period)
            .map(|(condition, _)| *condition)
            .collect();
        // `thresholdsMetGracePeriod`
        let met: Vec<Threshold> = first_observed_at
            .iter()
            .filter(|(threshold, at)| now.duration_since(*at) >= threshold.grace_period)
            .map(|(threshold, _)| threshold.clone())
            .collect();
        // `thresholdsUpdatedStats`
        let updated = met
            .iter()
            .filter(|threshold| self.is_updated(threshold.signal, observations));
        let updated = updated.cloned().collect();
        let state = Self {
            has_decided: true,
            conditions,
            last_observed_at,
            first_observed_at,
            met,
            measured: observations
                .iter()
                .map(|(signal, observed)| (*signal, observed.time))
                .collect(),
        };
        (updated, state)
    }

    /// The thresholds that are met now, and those met before whose minimum reclaim is not reached (`mergeThresholds`).
    fn thresholds_met(&self, all: &[Threshold], observations: &Observations) -> Vec<Threshold> {
        let is_met = |threshold: &Threshold, enforce_min_reclaim| match observations.get(&threshold.signal) {
            Some(observed) => threshold.is_met(observed, enforce_min_reclaim),
            None => {
                let signal = threshold.signal.as_str();
                tracing::info!(
                    signal,
                    "Eviction manager: no observation found for eviction signal"
                );
                false
            }
        };
        let was_met = |threshold: &Threshold| self.met.iter().any(|before| before.is_same(threshold));
        let met = all
            .iter()
            .filter(|threshold| is_met(threshold, false) || (was_met(threshold) && is_met(threshold, true)));
        met.cloned().collect()
    }

    fn first_observed(&self, threshold: &Threshold) -> Option<Instant> {
        let mut observed = self.first_observed_at.iter();
        observed
            .find(|(before, _)| before == threshold)
            .map(|(_, at)| *at)
    }

    /// Whether the signal was measured since the last decision.
    fn is_updated(&self, signal: Signal, observations: &Observations) -> bool {
        let Some(observed) = observations.get(&signal) else {
            return false;
        };
        match (self.measured.get(&signal), observed.time) {
            (None, _) | (_, None) => true,
            (Some(None), Some(_)) => true,
            (Some(Some(last)), Some(now)) => now > *last,
        }
    }
}
