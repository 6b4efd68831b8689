//! What goes wrong with calls to a device plugin.

use std::time::Duration;

use tonic::Code;

use super::DevicePluginMethod;
use crate::matching_calls::MatchingCalls;

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
    calls: MatchingCalls,
    trouble: DevicePluginTrouble,
}

impl DevicePluginFault {
    /// A fault of all these calls.
    pub fn new(method: DevicePluginMethod, trouble: DevicePluginTrouble) -> Self {
        Self {
            method,
            calls: MatchingCalls::all(),
            trouble,
        }
    }

    /// Only of the first so many calls.
    pub fn times(mut self, times: u64) -> Self {
        self.calls.first(times);
        self
    }

    /// Only of this share of calls, chosen by the seed: the same calls meet the same faults.
    pub fn rate(mut self, rate: f64, seed: u64) -> Self {
        self.calls.share(rate, seed);
        self
    }

    /// What goes wrong with this call.
    pub(super) fn of(&mut self, method: DevicePluginMethod) -> Option<DevicePluginTrouble> {
        (self.method == method && self.calls.hits()).then(|| self.trouble.clone())
    }
}
