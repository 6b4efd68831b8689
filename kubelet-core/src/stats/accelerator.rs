//! The usage of an accelerator.

use serde::{Deserialize, Serialize};

/// An accelerator of a container (`AcceleratorStats`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AcceleratorStats {
    /// The maker, e.g. `nvidia`.
    pub make: String,
    /// The model, e.g. `tesla-p100`.
    pub model: String,
    /// The id of the device.
    pub id: String,
    /// The memory of the device, in bytes.
    pub memory_total: u64,
    /// The allocated memory of the device, in bytes.
    pub memory_used: u64,
    /// The percentage of the last sample period (10 s) in which the device was busy.
    pub duty_cycle: u64,
}
