//! Thresholds: the least of a resource that must be free.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::GoDuration;
use kubelet_core::quantity::{Amount, Format, canonical};

use crate::observation::Observation;
use crate::{Error, Signal};

/// A threshold (`eviction/api.Threshold`). It is met if less is available than its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    /// What is observed.
    pub signal: Signal,
    /// How much must be available.
    pub value: ThresholdValue,
    /// How long it must be met before pods are evicted. Zero for a hard threshold.
    pub grace_period: Duration,
    /// How much more must be available before it counts as no longer met.
    pub min_reclaim: Option<ThresholdValue>,
}

/// An amount, or a share of the capacity (`ThresholdValue`).
#[derive(Clone, Debug)]
pub enum ThresholdValue {
    /// An amount.
    Quantity(Quantity),
    /// A share of the capacity, from 0 to 1.
    Share(f32),
}

impl PartialEq for ThresholdValue {
    /// Quantities are equal if their amounts are (`compareThresholdValue`).
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Quantity(_), Self::Quantity(_)) => self.amount(Amount::ZERO) == other.amount(Amount::ZERO),
            (Self::Share(a), Self::Share(b)) => a == b,
            _ => false,
        }
    }
}

impl ThresholdValue {
    /// The amount for a node with this capacity (`GetThresholdQuantity`).
    pub fn amount(&self, capacity: Amount) -> Amount {
        match self {
            // Parsing has checked it.
            Self::Quantity(quantity) => Amount::try_from(quantity).unwrap_or_default(),
            Self::Share(share) => {
                // The kubelet calculates with these types, and rounds down.
                Amount::from_units((capacity.value() as f64 * f64::from(*share)) as i64)
            }
        }
    }

    /// The amount as messages have it.
    pub(crate) fn text(&self, capacity: Amount) -> String {
        match self {
            Self::Quantity(quantity) => canonical(quantity),
            Self::Share(_) => self.amount(capacity).write(Format::BinarySi),
        }
    }
}

impl Threshold {
    /// Whether pods are evicted as soon as it is met (`isHardEvictionThreshold`).
    pub fn is_hard(&self) -> bool {
        self.grace_period.is_zero()
    }

    /// Whether less is available than the threshold demands, with `enforce_min_reclaim` also less than is to be reclaimed.
    pub(crate) fn is_met(&self, observed: &Observation, enforce_min_reclaim: bool) -> bool {
        let mut demanded = self.value.amount(observed.capacity);
        if let Some(more) = self.min_reclaim.as_ref().filter(|_| enforce_min_reclaim) {
            demanded = demanded + more.amount(observed.capacity);
        }
        demanded > observed.available
    }

    /// Whether it is the same as the other, its minimum reclaim apart (`hasThreshold`).
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.grace_period == other.grace_period && self.signal == other.signal && self.value == other.value
    }
}

type Map = BTreeMap<String, String>;

/// Reads the thresholds of a `KubeletConfiguration`: hard ones, then soft ones, each in the order of [`Signal`]
/// (`ParseThresholdConfig`). If pods are confined to the allocatable memory, the hard threshold of `memory.available` holds
/// for their memory, too.
///
/// What cannot be read is left out and noted in `problems`, each an [`Error::Configuration`].
pub(crate) fn parse(
    hard: &Map,
    soft: &Map,
    soft_grace_period: &Map,
    minimum_reclaim: &Map,
    pods_are_confined: bool,
    problems: &mut Vec<Error>,
) -> Vec<Threshold> {
    let mut thresholds = Vec::new();
    for (signal, value) in by_signal(hard, HARD, problems, threshold_value) {
        thresholds.push((signal, value, Duration::ZERO));
    }
    let grace_periods = by_signal(soft_grace_period, GRACE, problems, |_, text| {
        let period = text.parse::<GoDuration>().ok();
        let period = period.and_then(|period| Duration::try_from(period).ok());
        period
            .map(Some)
            .ok_or_else(|| format!("{text:?} is not a duration from 0 up"))
    });
    for (signal, value) in by_signal(soft, SOFT, problems, threshold_value) {
        match grace_periods.get(&signal) {
            Some(grace_period) => thresholds.push((signal, value, *grace_period)),
            // One that cannot be read is a problem already.
            None if soft_grace_period.contains_key(signal.as_str()) => {}
            None => {
                let why = format!("grace period must be specified for the soft eviction threshold {signal}");
                problems.push(refuse(SOFT, signal.as_str(), why));
            }
        }
    }
    let min_reclaims = by_signal(minimum_reclaim, RECLAIM, problems, reclaim_value);
    let mut thresholds: Vec<Threshold> = thresholds
        .into_iter()
        .map(|(signal, value, grace_period)| Threshold {
            signal,
            value,
            grace_period,
            min_reclaim: min_reclaims.get(&signal).cloned(),
        })
        .collect();
    if pods_are_confined {
        let of_node = thresholds
            .iter()
            .filter(|threshold| threshold.signal == Signal::MemoryAvailable && threshold.is_hard());
        let of_pods: Vec<Threshold> = of_node
            .map(|of_node| Threshold {
                signal: Signal::AllocatableMemoryAvailable,
                ..of_node.clone()
            })
            .collect();
        thresholds.extend(of_pods);
    }
    thresholds
}

const HARD: &str = "evictionHard";
const SOFT: &str = "evictionSoft";
const GRACE: &str = "evictionSoftGracePeriod";
const RECLAIM: &str = "evictionMinimumReclaim";

fn refuse(field: &'static str, signal: &str, reason: String) -> Error {
    Error::Configuration {
        field,
        signal: signal.to_owned(),
        reason,
    }
}

/// Reads each value. Those that are `None` are left out, and so are those that cannot be read; `problems` gets these.
fn by_signal<T>(
    map: &Map,
    field: &'static str,
    problems: &mut Vec<Error>,
    read: impl Fn(Signal, &str) -> std::result::Result<Option<T>, String>,
) -> BTreeMap<Signal, T> {
    let mut values = BTreeMap::new();
    for (name, text) in map {
        let signal = Signal::from_name(name).ok_or_else(|| format!("unsupported eviction signal {name}"));
        let read = signal.and_then(|signal| Ok((signal, read(signal, text)?)));
        match read {
            Ok((signal, Some(value))) => _ = values.insert(signal, value),
            Ok((_, None)) => {}
            Err(reason) => problems.push(refuse(field, name, reason)),
        }
    }
    values
}

/// `parseThresholdStatement`. 0 % and 100 % turn the threshold off.
fn threshold_value(signal: Signal, text: &str) -> std::result::Result<Option<ThresholdValue>, String> {
    if matches!(text, "0%" | "100%") {
        return Ok(None);
    }
    if let Some(share) = share(text)? {
        return match share {
            _ if share < 0.0 => Err(format!(
                "eviction percentage threshold {signal} must be >= 0%: {text}"
            )),
            _ if share > 1.0 => Err(format!(
                "eviction percentage threshold {signal} must be <= 100%: {text}"
            )),
            _ => Ok(Some(ThresholdValue::Share(share))),
        };
    }
    let quantity = Quantity(text.to_owned());
    let amount = Amount::try_from(&quantity).map_err(|error| error.to_string())?;
    match amount.is_positive() {
        true => Ok(Some(ThresholdValue::Quantity(quantity))),
        false => Err(format!("eviction threshold {signal} must be positive: {text}")),
    }
}

/// `parseMinimumReclaims`
fn reclaim_value(signal: Signal, text: &str) -> std::result::Result<Option<ThresholdValue>, String> {
    if let Some(share) = share(text)? {
        return match share > 0.0 {
            true => Ok(Some(ThresholdValue::Share(share))),
            false => Err(format!(
                "eviction percentage minimum reclaim {signal} must be positive: {text}"
            )),
        };
    }
    let quantity = Quantity(text.to_owned());
    let amount = Amount::try_from(&quantity).map_err(|error| error.to_string())?;
    match amount.is_negative() {
        false => Ok(Some(ThresholdValue::Quantity(quantity))),
        true => Err(format!(
            "negative eviction minimum reclaim specified for {signal}"
        )),
    }
}

/// `parsePercentage`, if the text is a percentage.
fn share(text: &str) -> std::result::Result<Option<f32>, String> {
    if !text.ends_with('%') {
        return Ok(None);
    }
    let percent: f32 = text
        .trim_end_matches('%')
        .parse()
        .map_err(|_| format!("{text} is not a percentage"))?;
    match percent.is_nan() {
        false => Ok(Some(percent / 100.0)),
        true => Err(format!("{text} is not a percentage")),
    }
}
