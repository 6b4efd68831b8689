//! Pressure stall information.

use serde::{Deserialize, Serialize, Serializer};

/// The time in which tasks waited for a resource (`PSIStats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PsiStats {
    /// All tasks waited at the same time.
    pub full: PsiData,
    /// At least one task waited.
    pub some: PsiData,
}

/// How long tasks waited (`PSIData`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PsiData {
    /// The time since the start, in microseconds as in the files of the kernel. (The kubelet documents nanoseconds, but reports this.)
    pub total: u64,
    /// The percentage of the last 10 s.
    #[serde(serialize_with = "as_go")]
    pub avg10: f64,
    /// The percentage of the last 60 s.
    #[serde(serialize_with = "as_go")]
    pub avg60: f64,
    /// The percentage of the last 300 s.
    #[serde(serialize_with = "as_go")]
    pub avg300: f64,
}

/// Go's JSON has no `.0` after a whole number. Above 2⁵³ not every whole number is a float.
pub(super) fn as_go<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0 {
        serializer.serialize_i64(*number as i64)
    } else {
        serializer.serialize_f64(*number)
    }
}
