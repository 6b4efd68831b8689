//! A conformance kit for container runtimes. It checks that your runtime does what the engine above it relies on.
//!
//! One macro makes a `#[test]` for each clause, so the list of your tests reads like a specification:
//!
//! ```text
//! test cancellation::a_start_cut_short_can_be_tried_again ... ok
//! test engine::a_lost_reply_of_start_is_one_container ... ok
//! test idempotence::starts_of_one_key_at_once_are_one_container ... ok
//! ```
//!
//! The clauses are in [`verbs::CLAUSES`] for the five verbs and in [`cri::CLAUSES`] for CRI. When a clause is broken,
//! the test prints why:
//!
//! ```text
//! ends::exit_codes_are_the_programs_own is broken.
//!   the clause: The exit code is the program's own.
//!   what was seen: a program that exits with 1 ended with Exit { code: 0, … }
//! ```
//!
//! # Check your runtime in ten lines
//!
//! In your `tests/conformance.rs`, with your runtime in place of `ProcessRuntime`:
//!
//! ```
//! # #[cfg(target_os = "linux")]
//! # mod conformance {
//! use std::{path::Path, sync::Arc};
//!
//! use kubelet_cri::process::ProcessRuntime;
//! use kubelet_testing::conformance::{Fixture, Opened, Subject};
//!
//! struct Mine(Arc<ProcessRuntime>);
//!
//! #[async_trait::async_trait]
//! impl Fixture for Mine {
//!     async fn open(dir: &Path) -> Opened<Self> {
//!         Ok(Some(Self(Arc::new(ProcessRuntime::builder(dir).open().await?))))
//!     }
//!     fn subject(&self) -> Subject {
//!         Subject::verbs(self.0.clone())
//!     }
//! }
//!
//! kubelet_testing::conformance!(verbs: Mine, offers: [signals, logs, exec, images, events]);
//! # }
//! # fn main() {}
//! ```
//!
//! # Optional capabilities
//!
//! Some groups of clauses are optional. The macro makes tests for them only if you name them in `offers`, so no test
//! passes without a check. The required group `capabilities` checks that the runtime reports the same capabilities as
//! `offers`, and that it rejects calls for the others clearly.
//!
//! * `exec`, `logs`, `stats`, `images`, `events`, `pods`: the capabilities of `kubelet_cri::verbs`.
//! * `signals`: a program can handle or ignore its stop signal. If it ignores the signal, it is killed.
//! * `restart`: containers outlive the agent. [`Fixture::reopen`] drops the runtime and opens it again.
//!
//! # How it works
//!
//! Each clause has its own runtime, temporary folder and tokio runtime. Its containers run a few [programs](Program),
//! which are shell commands unless [`Fixture::workload`] changes that. To interrupt a call, the kit drops it at its
//! first await, at its second, and so on. A wrapper around your runtime injects lost replies, hanging calls and wrong
//! lists. In these clauses the kit checks your runtime together with the engine above it.
//!
//! For a runtime in memory with tokio's clock, the clauses run in virtual time: see [`Fixture::time`]. No clause
//! depends on the speed of a runtime.

mod bench;
mod clause;
pub mod cri;
mod cut_short;
mod engine;
mod faults;
mod fixture;
mod log;
mod program;
mod tests_macro;
mod under_engine;
pub mod verbs;
mod verdict;

use tests_macro::{group, group_docs};

pub use clause::{Clause, Group};
pub use fixture::{Fixture, FixtureError, Opened, Subject, Time};
pub use program::{Program, Workload};
pub use verdict::{Broken, Verdict};

/// 128+n for signal n, as in a shell.
const SIGKILL_CODE: i32 = 128 + 9;
