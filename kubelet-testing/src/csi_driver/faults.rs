//! What goes wrong with calls to a driver.

use std::time::Duration;

use tonic::Code;

use super::{CsiCall, CsiMethod};
use crate::matching_calls::MatchingCalls;

/// What goes wrong with a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CsiTrouble {
    /// It fails with this error, without any work.
    Fails(Code, String),
    /// It does its work, and then the connection breaks.
    AnswerLost,
    /// It never answers, and does no work.
    Hangs,
    /// It does its work, and never answers.
    HangsAfterWork,
    /// It answers this much later.
    Slow(Duration),
    /// The driver ends: the socket goes, and all connections break. No work is done.
    Dies,
    /// The same, after the work.
    DiesAfterWork,
}

/// A fault: which calls, and what goes wrong.
#[derive(Clone, Debug)]
#[must_use]
pub struct CsiFault {
    method: Option<CsiMethod>,
    volume: Option<String>,
    calls: MatchingCalls,
    trouble: Option<CsiTrouble>,
}

impl CsiFault {
    /// A fault of this call.
    pub fn on(method: CsiMethod) -> Self {
        Self {
            method: Some(method),
            volume: None,
            calls: MatchingCalls::all(),
            trouble: None,
        }
    }

    /// A fault of any call about a volume.
    pub fn on_any_volume_call() -> Self {
        Self {
            method: None,
            ..Self::on(CsiMethod::Probe)
        }
    }

    /// Only of calls about this volume.
    pub fn volume(mut self, volume: impl Into<String>) -> Self {
        self.volume = Some(volume.into());
        self
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

    /// What goes wrong.
    pub fn then(mut self, trouble: CsiTrouble) -> Self {
        self.trouble = Some(trouble);
        self
    }

    /// What goes wrong with this call.
    pub(super) fn of(&mut self, call: &CsiCall) -> Option<CsiTrouble> {
        let is_of_method = self
            .method
            .map_or(!call.volume.is_empty(), |method| method == call.method);
        let is_of_volume = self.volume.as_ref().is_none_or(|volume| *volume == call.volume);
        if !is_of_method || !is_of_volume {
            return None;
        }
        self.trouble.clone().filter(|_| self.calls.hits())
    }
}
