//! What goes wrong with calls to a device plugin.

use std::time::Duration;

use tonic::Code;

use super::DevicePluginMethod;

/// What goes wrong with a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum DevicePluginTrouble {
    /// It fails with this error.
    Fails(Code, String),
    /// It answers without an answer for the container.
    Empty,
    /// It never answers.
    Hangs,
    /// It answers this much later.
    Slow(Duration),
    /// The plugin crashes: all connections break.
    Dies,
}

/// A fault: which calls, and what goes wrong.
#[derive(Clone, Debug)]
#[must_use]
pub struct DevicePluginFault {
    method: DevicePluginMethod,
    times: u64,
    trouble: DevicePluginTrouble,
}

impl DevicePluginFault {
    /// A fault of all these calls.
    pub fn new(method: DevicePluginMethod, trouble: DevicePluginTrouble) -> Self {
        Self {
            method,
            times: u64::MAX,
            trouble,
        }
    }

    /// Only of the next so many calls.
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }
}

#[derive(Default)]
pub(super) struct Faults {
    faults: Vec<DevicePluginFault>,
}

impl Faults {
    pub(super) fn add(&mut self, fault: DevicePluginFault) {
        self.faults.push(fault);
    }

    pub(super) fn clear(&mut self) {
        self.faults.clear();
    }

    /// What goes wrong with this call.
    pub(super) fn next(&mut self, method: DevicePluginMethod) -> Option<DevicePluginTrouble> {
        let mut faults = self.faults.iter_mut();
        let fault = faults.find(|fault| fault.method == method && fault.times > 0)?;
        fault.times -= 1;
        Some(fault.trouble.clone())
    }
}
