//! From start to removal.

use kubelet_cri::verbs::ContainerKey;

use super::steps::NO_GRACE;
use crate::conformance::bench::Bench;
use crate::conformance::program::Program;
use crate::conformance::verdict::{Outcome, ensure};

pub(super) async fn a_started_container_runs_and_is_listed_once(bench: &mut Bench) -> Outcome {
    let key = bench.key("main");
    let started = bench.start_as(&key, &Program::Forever).await?;
    ensure!(
        started.key == key,
        "requested {key}, start returned {}",
        started.key
    );
    ensure!(started.is_running(), "start gave {started:?}");
    bench.runs_once(&key).await?;
    Ok(())
}

pub(super) async fn inspect_says_what_the_list_says(bench: &mut Bench) -> Outcome {
    let running = bench.start(&Program::Forever).await?;
    let (ended, _) = bench.run(&Program::Exits(3)).await?;
    for key in [running, ended] {
        let (listed, inspected) = (bench.listed(&key).await?, bench.inspect(&key).await?);
        let same = listed
            .as_ref()
            .is_some_and(|listed| listed.key == inspected.key && listed.state == inspected.state);
        ensure!(same, "inspect gives {inspected:?}, list gives {listed:?}");
    }
    Ok(())
}

pub(super) async fn a_container_that_ended_stays_until_it_is_removed(bench: &mut Bench) -> Outcome {
    let (key, exit) = bench.run(&Program::Exits(0)).await?;
    // Other containers are started and removed.
    let (other, _) = bench.run(&Program::Exits(1)).await?;
    bench.remove(&other).await?;
    let listed = bench.listed(&key).await?;
    let still = listed.as_ref().and_then(|container| container.exit());
    ensure!(
        still == Some(&exit),
        "it ended with {exit:?}; later the list has {listed:?}"
    );
    Ok(())
}

pub(super) async fn what_is_removed_is_gone(bench: &mut Bench) -> Outcome {
    let (ended, _) = bench.run(&Program::Exits(0)).await?;
    bench.remove(&ended).await?;
    bench.is_gone(&ended).await?;
    let stopped = bench.start(&Program::Forever).await?;
    bench.stop(&stopped, NO_GRACE).await?;
    bench.remove(&stopped).await?;
    bench.is_gone(&stopped).await
}

pub(super) async fn an_unknown_container_is_gone(bench: &mut Bench) -> Outcome {
    bench.is_gone(&bench.key("main")).await?;
    // Another container and another attempt of an existing pod.
    let key = bench.start(&Program::Forever).await?;
    bench
        .is_gone(&ContainerKey::new(key.pod.clone(), "other", 0))
        .await?;
    bench.is_gone(&ContainerKey { attempt: 1, ..key }).await
}

pub(super) async fn times_are_in_order_and_stay(bench: &mut Bench) -> Outcome {
    let (key, first) = bench.run(&Program::Exits(0)).await?;
    ensure!(
        first.started_at <= first.finished_at,
        "it ended before it started: {first:?}"
    );
    // Time passes.
    bench.run(&Program::Exits(0)).await?;
    let again = bench.ended(&key).await?;
    ensure!(
        first == again,
        "it ended as {first:?}; looked at again, as {again:?}"
    );

    let key = bench.key("main");
    let started = bench.start_as(&key, &Program::Forever).await?;
    let looked = bench.inspect(&key).await?;
    ensure!(
        started.state == looked.state,
        "start gave {started:?}, inspect {looked:?}"
    );
    bench.stop(&key, NO_GRACE).await?;
    let exit = bench.ended(&key).await?;
    let running = kubelet_cri::verbs::ContainerState::Running {
        started_at: exit.started_at,
    };
    ensure!(
        started.state == running,
        "start gave {started:?}; it ended as {exit:?}"
    );
    ensure!(
        exit.started_at <= exit.finished_at,
        "it ended before it started: {exit:?}"
    );
    Ok(())
}

pub(super) async fn a_restart_is_a_container_of_its_own(bench: &mut Bench) -> Outcome {
    let (first, exit) = bench.run(&Program::Exits(3)).await?;
    let second = ContainerKey {
        attempt: 1,
        ..first.clone()
    };
    bench.start_as(&second, &Program::Forever).await?;
    let now = bench.inspect(&first).await?;
    ensure!(
        now.exit() == Some(&exit),
        "the first ended as {exit:?}; after a second was started it is {now:?}"
    );
    bench.runs_once(&second).await?;
    bench.remove(&first).await?;
    bench.is_gone(&first).await?;
    bench.runs_once(&second).await?;
    Ok(())
}

pub(super) async fn a_removed_key_is_free_again(bench: &mut Bench) -> Outcome {
    let (key, _) = bench.run(&Program::Exits(3)).await?;
    bench.remove(&key).await?;
    let started = bench.start_as(&key, &Program::Forever).await?;
    ensure!(started.is_running(), "started again, it is {started:?}");
    bench.runs_once(&key).await?;
    Ok(())
}

pub(super) async fn a_start_that_fails_leaves_nothing_running(bench: &mut Bench) -> Outcome {
    let (runtime, key) = (bench.verbs()?, bench.key("main"));
    let spec = bench.spec(&key, &Program::Missing).await?;
    match bench.answer("start", runtime.start(&spec)).await? {
        Err(error) => ensure!(!error.message.is_empty(), "the error has no message: {error:?}"),
        // Also allowed: it was started, and ended with an error.
        Ok(_) => {
            let exit = bench.ended(&key).await?;
            ensure!(exit.code != 0, "a program that is not there ended with {exit:?}");
        }
    }
    let listed = bench.listed(&key).await?;
    let runs = listed.as_ref().is_some_and(|container| container.is_running());
    ensure!(!runs, "the list has {listed:?}");
    bench.stop(&key, NO_GRACE).await?;
    bench.remove(&key).await?;
    bench.is_gone(&key).await
}

pub(super) async fn the_runtime_has_a_name(bench: &mut Bench) -> Outcome {
    let runtime = bench.verbs()?;
    let name = runtime.name();
    let one_word = !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c == ':' || c == '/');
    ensure!(
        one_word,
        "its name {name:?} cannot be the first part of a container id"
    );
    ensure!(!runtime.version().is_empty(), "it has no version");
    Ok(())
}
