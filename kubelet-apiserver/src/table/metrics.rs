//! `NodeMetrics` and `PodMetrics`, as metrics-server shows them.

use kubelet_core::quantity::{Amount, Format};
use serde_json::{Value, json};

use super::Column;
use crate::objects::Fields;

pub(super) const COLUMNS: &[Column] = &[
    ("Name", "string", false),
    ("cpu", "string", false),
    ("memory", "string", false),
    ("swap", "string", false),
    ("Window", "string", false),
];

/// The usage of a pod is that of its containers together.
pub(super) fn cells(object: &Value) -> Value {
    let containers = object.list("containers").iter();
    let usages: Vec<&Value> = containers
        .chain([object])
        .map(|used| &used["usage"])
        .filter(|usage| !usage.is_null())
        .collect();
    let total = |resource: &str, format| {
        let amounts = usages
            .iter()
            .filter_map(|usage| usage.text(resource).parse::<Amount>().ok());
        amounts.sum::<Amount>().write(format)
    };
    json!([
        object["metadata"].text("name"),
        total("cpu", Format::DecimalSi),
        total("memory", Format::BinarySi),
        total("swap", Format::BinarySi),
        object.text("window"),
    ])
}
