//! The clauses for a runtime with the two services of CRI: [`CLAUSES`].

mod cancellation;
mod capabilities;
mod concurrency;
mod containers;
mod ends;
mod engine;
mod events;
mod exec;
mod idempotence;
mod images;
mod lists;
mod logs;
mod restart;
mod runtime;
mod sandboxes;
mod signals;
mod stats;
mod steps;
mod table;
mod wrapper;

use super::clause::{self, Clause, Group};
use super::fixture::Fixture;
use super::verdict::Verdict;
use crate::__conformance_cri as clauses;
use crate::conformance::{group, group_docs};

/// All clauses by group. The groups before `signals` are required; the groups from `signals` on are optional, and
/// apply if `offers` names them. A test is named `GROUP::CLAUSE`.
///
#[doc = clauses!(runtime, [group_docs], {})]
#[doc = clauses!(sandboxes, [group_docs], {})]
#[doc = clauses!(containers, [group_docs], {})]
#[doc = clauses!(idempotence, [group_docs], {})]
#[doc = clauses!(ends, [group_docs], {})]
#[doc = clauses!(lists, [group_docs], {})]
#[doc = clauses!(cancellation, [group_docs], {})]
#[doc = clauses!(concurrency, [group_docs], {})]
#[doc = clauses!(engine, [group_docs], {})]
#[doc = clauses!(images, [group_docs], {})]
#[doc = clauses!(capabilities, [group_docs], {})]
#[doc = clauses!(signals, [group_docs], {})]
#[doc = clauses!(restart, [group_docs], {})]
#[doc = clauses!(logs, [group_docs], {})]
#[doc = clauses!(exec, [group_docs], {})]
#[doc = clauses!(stats, [group_docs], {})]
#[doc = clauses!(events, [group_docs], {})]
pub static CLAUSES: &[Group] = &[
    clauses!(runtime, [group], {}),
    clauses!(sandboxes, [group], {}),
    clauses!(containers, [group], {}),
    clauses!(idempotence, [group], {}),
    clauses!(ends, [group], {}),
    clauses!(lists, [group], {}),
    clauses!(cancellation, [group], {}),
    clauses!(concurrency, [group], {}),
    clauses!(engine, [group], {}),
    clauses!(images, [group], {}),
    clauses!(capabilities, [group], {}),
    clauses!(signals, [group], {}),
    clauses!(restart, [group], {}),
    clauses!(logs, [group], {}),
    clauses!(exec, [group], {}),
    clauses!(stats, [group], {}),
    clauses!(events, [group], {}),
];

/// Checks one clause on a new runtime: see [`verbs::check`](super::verbs::check). If the fixture's runtime has the
/// five verbs, the check uses a `CriAdapter`.
///
/// # Errors
///
/// [`Broken`](super::Broken) has the broken clause, and what it saw.
pub fn check<F: Fixture>(group: &str, clause: &str, offers: &'static [&'static str]) -> Verdict {
    clause::check::<F>(CLAUSES, group, clause, offers)
}
