//! `NodeMetrics` and `PodMetrics`.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kubelet_core::GoDuration;
use kubelet_core::quantity::{Amount, Format};
use serde_json::{Value, json};

use super::points::Usage;
use crate::write::name_of;

/// The usage of a node.
pub(super) fn node_metrics(node: &Value, usage: &Usage, now: Timestamp) -> Value {
    json!({
        "kind": "NodeMetrics", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": metadata(node, now),
        "timestamp": timestamp(usage.measured), "window": duration(usage.window), "usage": amounts(usage),
    })
}

/// The usage of a pod. Its time and window are those of the container that was measured first.
pub(super) fn pod_metrics(pod: &Value, containers: &[(&str, Usage)], now: Timestamp) -> Value {
    let first = containers
        .iter()
        .map(|(_, usage)| usage)
        .min_by_key(|usage| usage.measured);
    let containers: Vec<Value> = containers
        .iter()
        .map(|(name, usage)| json!({"name": name, "usage": amounts(usage)}))
        .collect();
    json!({
        "kind": "PodMetrics", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": metadata(pod, now),
        "timestamp": first.map(|usage| timestamp(usage.measured)),
        "window": duration(first.map(|usage| usage.window).unwrap_or_default()), "containers": containers,
    })
}

fn metadata(object: &Value, now: Timestamp) -> Value {
    let mut metadata = json!({"name": name_of(object), "creationTimestamp": in_seconds(now)});
    let found = &object["metadata"];
    for (field, value) in [("namespace", &found["namespace"]), ("labels", &found["labels"])] {
        if !value.is_null() {
            metadata[field] = value.clone();
        }
    }
    metadata
}

fn amounts(usage: &Usage) -> Value {
    json!({"cpu": nanocores(usage.cpu), "memory": bytes(usage.memory), "swap": bytes(usage.swap)})
}

fn timestamp(nanoseconds: i128) -> String {
    in_seconds(Timestamp::from_nanosecond(nanoseconds).unwrap_or_default())
}

fn in_seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second())
        .unwrap_or_default()
        .to_string()
}

/// A quantity of nanocores.
fn nanocores(amount: u64) -> String {
    let amount = format!("{amount}n").parse::<Amount>().unwrap_or_default();
    amount.write(Format::DecimalSi)
}

/// A quantity of bytes.
fn bytes(amount: u64) -> String {
    let amount = i64::try_from(amount).unwrap_or(i64::MAX);
    Amount::from_units(amount).write(Format::BinarySi)
}

/// As Go writes a duration: `14.985s`, `1m0s`.
fn duration(window: Duration) -> String {
    GoDuration::from(window).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_quantities_and_durations_as_go_does() {
        for (amount, text) in [
            (0, "0"),
            (1, "1n"),
            (1500, "1500n"),
            (2000, "2u"),
            (12_000_000, "12m"),
            (3_000_000_000, "3"),
        ] {
            assert_eq!(nanocores(amount), text);
        }
        for (amount, text) in [
            (0, "0"),
            (1000, "1k"),
            (1023, "1023"),
            (4096, "4Ki"),
            (1025 * 1024, "1025Ki"),
            (2 << 30, "2Gi"),
        ] {
            assert_eq!(bytes(amount), text);
        }
        for (milliseconds, text) in [
            (0, "0s"),
            (500, "500ms"),
            (14_985, "14.985s"),
            (60_000, "1m0s"),
            (3_661_500, "1h1m1.5s"),
        ] {
            assert_eq!(duration(Duration::from_millis(milliseconds)), text);
        }
    }
}
