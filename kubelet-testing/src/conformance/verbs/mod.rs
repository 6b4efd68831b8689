//! The clauses for a runtime with the five verbs: [`CLAUSES`].

mod cancellation;
mod capabilities;
mod concurrency;
mod ends;
mod engine;
mod events;
mod exec;
mod idempotence;
mod images;
mod life_cycle;
mod logs;
mod pods;
mod restart;
mod signals;
mod stats;
mod steps;
mod table;
mod wrapper;

use super::clause::{self, Clause, Group};
use super::fixture::Fixture;
use super::verdict::Verdict;
use crate::__conformance_verbs as clauses;
use crate::conformance::{group, group_docs};

/// All clauses by group. The groups before `signals` are required; the groups from `signals` on are optional, and
/// apply if `offers` names them. A test is named `GROUP::CLAUSE`.
///
#[doc = clauses!(life_cycle, [group_docs], {})]
#[doc = clauses!(idempotence, [group_docs], {})]
#[doc = clauses!(ends, [group_docs], {})]
#[doc = clauses!(cancellation, [group_docs], {})]
#[doc = clauses!(concurrency, [group_docs], {})]
#[doc = clauses!(engine, [group_docs], {})]
#[doc = clauses!(capabilities, [group_docs], {})]
#[doc = clauses!(signals, [group_docs], {})]
#[doc = clauses!(restart, [group_docs], {})]
#[doc = clauses!(logs, [group_docs], {})]
#[doc = clauses!(exec, [group_docs], {})]
#[doc = clauses!(stats, [group_docs], {})]
#[doc = clauses!(images, [group_docs], {})]
#[doc = clauses!(events, [group_docs], {})]
#[doc = clauses!(pods, [group_docs], {})]
pub static CLAUSES: &[Group] = &[
    clauses!(life_cycle, [group], {}),
    clauses!(idempotence, [group], {}),
    clauses!(ends, [group], {}),
    clauses!(cancellation, [group], {}),
    clauses!(concurrency, [group], {}),
    clauses!(engine, [group], {}),
    clauses!(capabilities, [group], {}),
    clauses!(signals, [group], {}),
    clauses!(restart, [group], {}),
    clauses!(logs, [group], {}),
    clauses!(exec, [group], {}),
    clauses!(stats, [group], {}),
    clauses!(images, [group], {}),
    clauses!(events, [group], {}),
    clauses!(pods, [group], {}),
];

/// Checks one clause on a new runtime, as each test of [`conformance!`](crate::conformance!) does. `offers` has the
/// names of the optional groups.
///
/// If the host lacks what the fixture needs, the clause counts as held; the fixture logs this.
///
/// # Errors
///
/// [`Broken`](super::Broken) has the broken clause, and what it saw.
pub fn check<F: Fixture>(group: &str, clause: &str, offers: &'static [&'static str]) -> Verdict {
    clause::check::<F>(CLAUSES, group, clause, offers)
}
