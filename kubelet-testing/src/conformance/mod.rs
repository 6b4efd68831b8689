//! A conformance kit for container runtimes: hold your runtime to what the engine above it relies on.
//!
//! One macro makes a `#[test]` of each clause, so that the list of your tests is a specification:
//!
//! ```text
//! test cancellation::a_start_cut_short_can_be_tried_again ... ok
//! test engine::a_lost_reply_of_start_is_one_container ... ok
//! test idempotence::starts_of_one_key_at_once_are_one_container ... ok
//! ```
//!
//! The clauses are in [`verbs::CLAUSES`] (five verbs) and, for the height of CRI, in [`cri::CLAUSES`]. A broken one is told in
//! words:
//!
//! ```text
//! ends::exit_codes_are_told_as_they_are is broken.
//!   the clause: The exit code is the program's own.
//!   what was seen: a program that exits with 1 ended with Exit { code: 0, … }
//! ```
//!
//! # Hold your runtime to it in ten lines
//!
//! In a file `tests/conformance.rs` of yours; `ProcessRuntime` stands for your runtime:
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
//! # What a runtime does not have
//!
//! Groups of clauses that not each runtime can hold to are tested if they are named in `offers`, and no test is made of
//! them if not; so none looks passed that was not tried. That `offers` is what the runtime says of itself, and that what it
//! does not have is refused clearly, are clauses too (`capabilities`).
//!
//! * `exec`, `logs`, `stats`, `images`, `events`: the capabilities of `kubelet_cri::verbs`.
//! * `signals`: a program may end when it is asked to, or not heed it, and then it is killed.
//! * `restart`: containers outlive the agent; [`Fixture::reopen`] says how to drop the runtime and open it again.
//!
//! # How it is done
//!
//! Each clause has a runtime, a temporary folder and a tokio runtime of its own. It has containers run a few
//! [programs](Program), shell commands unless [`Fixture::workload`] says otherwise. Calls are cut short by being dropped at
//! their first await, their second and so on. Lost replies, hanging calls and lists that lie come from a wrapper which the
//! kit puts around your runtime; there the subject is the whole of your runtime and the engine above it, which must
//! come out right.
//!
//! A runtime in memory, all of whose time is tokio's, has its clauses in virtual time: [`Fixture::time`]. No clause depends
//! on how fast a runtime is.

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

/// 128+n for signal n, as a shell tells it.
const SIGKILL_CODE: i32 = 128 + 9;
