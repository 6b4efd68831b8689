//! The clauses, and how to check one.

use std::path::Path;

use futures::future::LocalBoxFuture;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::bench::Bench;
use super::fixture::{Fixture, Time};
use super::verdict::{Broken, During, Outcome, Seen, Verdict};

/// A group of clauses.
#[derive(Debug)]
#[non_exhaustive]
pub struct Group {
    /// Its name. For an optional group this is the capability: `exec`.
    pub name: &'static str,
    /// Its topic.
    pub about: &'static str,
    /// Whether it is optional: only runtimes that offer it are checked.
    pub optional: bool,
    /// Its clauses.
    pub clauses: &'static [Clause],
}

/// A requirement for runtimes.
#[derive(Debug)]
#[non_exhaustive]
pub struct Clause {
    /// The name of its test: `what_is_removed_is_gone`.
    pub name: &'static str,
    /// The requirement as a sentence.
    pub sentence: &'static str,
    pub(crate) run: Run,
}

pub(crate) type Run = for<'a> fn(&'a mut Bench) -> LocalBoxFuture<'a, Outcome>;

/// Checks one clause on a new runtime. Returns `Ok` without a check if the host lacks what the fixture needs.
pub(crate) fn check<F: Fixture>(
    groups: &[Group],
    group: &str,
    clause: &str,
    offers: &'static [&'static str],
) -> Verdict {
    let found = groups.iter().find(|candidate| candidate.name == group);
    let found = found.and_then(|group| group.clauses.iter().find(|candidate| candidate.name == clause));
    let broken = |sentence: &str, seen: String| Broken {
        clause: format!("{group}::{clause}"),
        sentence: sentence.to_owned(),
        seen,
    };
    let Some(found) = found else {
        return Err(broken("the kit has such a clause", "it has not".to_owned()));
    };
    let tried = tokio_runtime(F::time())
        .during("make a tokio runtime")
        .and_then(|tokio| {
            let dir = tempfile::tempdir().during("make a temporary folder")?;
            tokio.block_on(try_on_fresh::<F>(dir.path(), found, offers))
        });
    tried.map_err(|seen| broken(found.sentence, seen.into_text()))
}

async fn try_on_fresh<F: Fixture>(dir: &Path, clause: &Clause, offers: &'static [&'static str]) -> Outcome {
    let opened = F::open(dir)
        .await
        .map_err(|error| Seen::new(format!("the fixture did not open: {error}")))?;
    let Some(fixture) = opened else { return Ok(()) };
    let mut bench = Bench::new(Box::new(fixture), F::time(), dir, offers);
    // Longer than any wait within a clause, so that the error is the one of that wait.
    let within = 4 * F::time().patience();
    let outcome = match timeout(within, (clause.run)(&mut bench)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Seen::new(format!(
            "it did not end within {within:?}: a call hangs"
        ))),
    };
    let closed = timeout(F::time().patience(), bench.close()).await;
    outcome.and(closed.during("close the fixture"))
}

fn tokio_runtime(time: Time) -> std::io::Result<Runtime> {
    match time {
        Time::Real => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
        Time::Paused => Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build(),
    }
}
