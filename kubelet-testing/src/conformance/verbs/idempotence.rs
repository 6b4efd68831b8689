//! Repeated and concurrent calls.

use futures::future::{join_all, try_join_all};

use super::steps::{LONG_GRACE, NO_GRACE};
use crate::conformance::bench::Bench;
use crate::conformance::program::Program;
use crate::conformance::verdict::{During, Outcome, ensure};

/// The number of concurrent callers.
const CALLERS: usize = 8;

pub(super) async fn a_key_started_twice_is_one_container(bench: &mut Bench) -> Outcome {
    let key = bench.key("main");
    let first = bench.start_as(&key, &Program::Forever).await?;
    let second = bench.start_as(&key, &Program::Forever).await?;
    ensure!(
        first.state == second.state,
        "the first start gave {first:?}, the second {second:?}"
    );
    bench.runs_once(&key).await?;
    bench.stop(&key, NO_GRACE).await?;
    let listed = bench.listed(&key).await?;
    let runs = listed.as_ref().is_some_and(|container| container.is_running());
    ensure!(!runs, "stopped once, it still runs: {listed:?}");
    Ok(())
}

pub(super) async fn starts_of_one_key_at_once_are_one_container(bench: &mut Bench) -> Outcome {
    let (runtime, key) = (bench.verbs()?, bench.key("main"));
    let spec = bench.spec(&key, &Program::Forever).await?;
    let starts = try_join_all((0..CALLERS).map(|_| runtime.start(&spec)));
    let started = bench
        .answer("starts", starts)
        .await?
        .during("starts of one key at once")?;
    let same = started
        .iter()
        .all(|container| container.state == started[0].state);
    ensure!(same, "{CALLERS} starts at once gave {started:?}");
    bench.runs_once(&key).await?;
    Ok(())
}

pub(super) async fn a_container_that_ended_is_not_started_again(bench: &mut Bench) -> Outcome {
    let (key, exit) = bench.run(&Program::Exits(3)).await?;
    let again = bench.start_as(&key, &Program::Exits(3)).await?;
    ensure!(
        again.exit() == Some(&exit),
        "it ended as {exit:?}; started again it is {again:?}"
    );
    // A stopped container is an ended one.
    let key = bench.start(&Program::Forever).await?;
    bench.stop(&key, NO_GRACE).await?;
    let again = bench.start_as(&key, &Program::Forever).await?;
    ensure!(
        !again.is_running(),
        "it was stopped; started again it is {again:?}"
    );
    Ok(())
}

pub(super) async fn stop_of_what_is_not_there_is_a_success(bench: &mut Bench) -> Outcome {
    for grace in [NO_GRACE, LONG_GRACE] {
        bench.stop(&bench.key("main"), grace).await?;
    }
    Ok(())
}

pub(super) async fn stop_of_what_ended_is_a_success_and_changes_nothing(bench: &mut Bench) -> Outcome {
    let (key, exit) = bench.run(&Program::Exits(3)).await?;
    for grace in [LONG_GRACE, NO_GRACE] {
        bench.stop(&key, grace).await?;
        let now = bench.ended(&key).await?;
        ensure!(
            now == exit,
            "it ended as {exit:?}; after a stop with grace {grace:?} it had as {now:?}"
        );
    }
    Ok(())
}

pub(super) async fn remove_of_what_is_not_there_is_a_success(bench: &mut Bench) -> Outcome {
    bench.remove(&bench.key("main")).await?;
    let (key, _) = bench.run(&Program::Exits(0)).await?;
    bench.remove(&key).await?;
    bench.remove(&key).await
}

pub(super) async fn stops_and_removals_at_once_all_succeed(bench: &mut Bench) -> Outcome {
    let (runtime, key) = (bench.verbs()?, bench.start(&Program::Forever).await?);
    let stops = join_all((0..CALLERS).map(|_| runtime.stop(&key, NO_GRACE)));
    for stopped in bench.answer("stops", stops).await? {
        stopped.during("one of several stops at once")?;
    }
    bench.ended(&key).await?;
    let removals = join_all((0..CALLERS).map(|_| runtime.remove(&key)));
    for removed in bench.answer("removals", removals).await? {
        removed.during("one of several removals at once")?;
    }
    bench.is_gone(&key).await
}
