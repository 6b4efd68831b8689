//! The clauses for a runtime on the five verbs: [`CLAUSES`].

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

/// All clauses by group: first those that each runtime must hold to; from `signals` on those that hold for who names their
/// group in `offers`. A test is named `GROUP::CLAUSE`.
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
];

/// Tries one clause on a fresh runtime: what each test of [`conformance!`](crate::conformance!) does. `offers` are the
/// names of the optional groups that hold for it.
///
/// Where the fixture lacks what it needs, it says so, and the clause counts as held.
///
/// # Errors
///
/// [`Broken`](super::Broken) says which clause was broken, and what was seen.
pub fn check<F: Fixture>(group: &str, clause: &str, offers: &'static [&'static str]) -> Verdict {
    clause::check::<F>(CLAUSES, group, clause, offers)
}
