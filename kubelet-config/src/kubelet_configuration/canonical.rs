//! Values of a configuration file that the kubelet brings to a canonical form as it reads them.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_core::quantity::WrittenAmount;
use serde::{Deserialize, Deserializer};

/// Quantities in the API's canonical form.
pub(super) fn quantity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Quantity, D::Error> {
    canonical(Quantity::deserialize(deserializer)?)
}

/// As [`quantity`], for each of a map.
pub(super) fn quantities<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Quantity>, D::Error> {
    let read = BTreeMap::<String, Quantity>::deserialize(deserializer)?;
    let canonical = |(name, quantity)| Ok((name, canonical(quantity)?));
    read.into_iter().map(canonical).collect()
}

/// Taints, of which an empty value is none.
pub(super) fn taints<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Taint>, D::Error> {
    let mut taints = Vec::<Taint>::deserialize(deserializer)?;
    for taint in &mut taints {
        taint.value = taint.value.take().filter(|value| !value.is_empty());
    }
    Ok(taints)
}

fn canonical<E: serde::de::Error>(quantity: Quantity) -> Result<Quantity, E> {
    let amount = quantity.0.trim().parse::<WrittenAmount>();
    amount.map(Quantity::from).map_err(E::custom)
}
