//! What goes wrong with calls to a driver.

use std::time::Duration;

use tonic::Code;

use super::{DraCall, DraMethod};
use crate::matching_calls::MatchingCalls;

/// What goes wrong with a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum DraTrouble {
    /// It fails with this error, without any work.
    Fails(Code, String),
    /// Each claim fails with this text, without any work.
    ClaimsFail(String),
    /// It does its work, and leaves the claims out of its answer.
    LeavesOut,
    /// It does its work, and answers about a claim that nobody asked for.
    AnswersForAnother,
    /// It does its work, and then the connection breaks.
    AnswerLost,
    /// It never answers, and does no work.
    Hangs,
    /// It does its work, and never answers.
    HangsAfterWork,
    /// It works for this long.
    Slow(Duration),
}

/// A fault: which calls, and what goes wrong.
#[derive(Clone, Debug)]
#[must_use]
pub struct DraFault {
    method: DraMethod,
    claim: Option<String>,
    calls: MatchingCalls,
    trouble: Option<DraTrouble>,
}

impl DraFault {
    /// A fault of this call.
    pub fn on(method: DraMethod) -> Self {
        Self {
            method,
            claim: None,
            calls: MatchingCalls::all(),
            trouble: None,
        }
    }

    /// Only of calls about the claim with this name.
    pub fn claim(mut self, claim: impl Into<String>) -> Self {
        self.claim = Some(claim.into());
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
    pub fn then(mut self, trouble: DraTrouble) -> Self {
        self.trouble = Some(trouble);
        self
    }

    /// What goes wrong with this call.
    pub(super) fn of(&mut self, call: &DraCall) -> Option<DraTrouble> {
        let is_of_claim = self
            .claim
            .as_ref()
            .is_none_or(|claim| call.claims.contains(claim));
        if self.method != call.method || !is_of_claim {
            return None;
        }
        self.trouble.clone().filter(|_| self.calls.hits())
    }
}
