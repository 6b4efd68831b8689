//! Metrics that containers define themselves.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::psi::as_go;

/// A metric that a container defines (`UserDefinedMetric`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UserDefinedMetric {
    /// The name.
    pub name: String,
    /// `gauge`, `cumulative` or `delta`.
    #[serde(rename = "type")]
    pub type_: String,
    /// The unit to show.
    pub units: String,
    /// Its labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// When it was measured.
    pub time: Option<Time>,
    /// The value.
    #[serde(serialize_with = "as_go")]
    pub value: f64,
}
