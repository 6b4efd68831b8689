//! Containers outlive the agent. Optional: `restart`.

use kubelet_cri::verbs::ContainerKey;

use super::engine::Verbs;
use super::steps::NO_GRACE;
use crate::conformance::bench::Bench;
use crate::conformance::cut_short::cut_short;
use crate::conformance::engine::same_containers_run;
use crate::conformance::program::Program;
use crate::conformance::under_engine::Height;
use crate::conformance::verdict::{During, Outcome, ensure};

const AGAIN: &str = "after the runtime was opened again";

pub(super) async fn running_containers_are_found_again(bench: &mut Bench) -> Outcome {
    let keys = [
        bench.start(&Program::Forever).await?,
        bench.start(&Program::Forever).await?,
    ];
    let mut before = Vec::new();
    for key in &keys {
        before.push(bench.runs_once(key).await?);
    }
    bench.reopen().await?;
    for before in before {
        let after = bench.runs_once(&before.key).await.during(AGAIN)?;
        ensure!(
            after.state == before.state,
            "it was {before:?}; {AGAIN} it is {after:?}"
        );
    }
    Ok(())
}

pub(super) async fn ended_containers_are_found_again_as_they_ended(bench: &mut Bench) -> Outcome {
    let (key, exit) = bench.run(&Program::Exits(3)).await?;
    bench.reopen().await?;
    let after = bench.inspect(&key).await.during(AGAIN)?;
    ensure!(
        after.exit() == Some(&exit),
        "it ended as {exit:?}; {AGAIN} it is {after:?}"
    );
    Ok(())
}

pub(super) async fn what_was_removed_stays_removed(bench: &mut Bench) -> Outcome {
    let (key, _) = bench.run(&Program::Exits(3)).await?;
    bench.remove(&key).await?;
    bench.reopen().await?;
    bench.is_gone(&key).await.during(AGAIN)
}

pub(super) async fn what_was_found_again_is_not_started_again(bench: &mut Bench) -> Outcome {
    let running = bench.start(&Program::Forever).await?;
    let before = bench.runs_once(&running).await?;
    let (ended, exit) = bench.run(&Program::Exits(3)).await?;
    bench.reopen().await?;
    let started = bench.start_as(&running, &Program::Forever).await?;
    ensure!(
        started.state == before.state,
        "it was {before:?}; {AGAIN} start gave {started:?}"
    );
    bench.runs_once(&running).await?;
    let started = bench.start_as(&ended, &Program::Exits(3)).await?;
    ensure!(
        started.exit() == Some(&exit),
        "it ended as {exit:?}; {AGAIN} start gave {started:?}"
    );
    Ok(())
}

pub(super) async fn what_was_found_again_can_be_stopped_and_removed(bench: &mut Bench) -> Outcome {
    let key = bench.start(&Program::Forever).await?;
    bench.reopen().await?;
    bench.stop(&key, NO_GRACE).await.during(AGAIN)?;
    let container = bench.inspect(&key).await?;
    ensure!(!container.is_running(), "stopped {AGAIN} it is {container:?}");
    bench.remove(&key).await?;
    bench.is_gone(&key).await
}

pub(super) async fn a_start_cut_short_by_the_end_of_the_agent_hides_nothing(bench: &mut Bench) -> Outcome {
    for polls in 1..=4 {
        let (runtime, key) = (bench.verbs()?, bench.key("main"));
        let spec = bench.spec(&key, &Program::Forever).await?;
        let answer = bench
            .answer("start", cut_short(runtime.start(&spec), polls))
            .await?;
        drop(runtime);
        bench.reopen().await?;
        let started = bench.start_as(&key, &Program::Forever).await.during(AGAIN)?;
        ensure!(started.is_running(), "started {AGAIN} it is {started:?}");
        bench.runs_once(&key).await?;
        bench.stop(&key, NO_GRACE).await?;
        bench.remove(&key).await?;
        bench.is_gone(&key).await?;
        if answer.is_some() {
            break;
        }
    }
    Ok(())
}

pub(super) async fn twice_is_as_once(bench: &mut Bench) -> Outcome {
    let running = bench.start(&Program::Forever).await?;
    let before = bench.runs_once(&running).await?;
    let (ended, exit) = bench.run(&Program::Exits(3)).await?;
    let next = ContainerKey {
        attempt: 1,
        ..ended.clone()
    };
    for _ in 0..2 {
        bench.reopen().await?;
    }
    let after = bench.runs_once(&running).await.during(AGAIN)?;
    ensure!(
        after.state == before.state,
        "it was {before:?}; {AGAIN} it is {after:?}"
    );
    let after = bench.inspect(&ended).await.during(AGAIN)?;
    ensure!(
        after.exit() == Some(&exit),
        "it ended as {exit:?}; {AGAIN} it is {after:?}"
    );
    bench.start_as(&next, &Program::Forever).await?;
    bench.runs_once(&next).await?;
    Ok(())
}

pub(super) async fn an_agent_on_the_runtime_opened_again_takes_over_what_runs(bench: &mut Bench) -> Outcome {
    let (engine, _) = Verbs::rig(bench).await?;
    let pod = bench.pod(&[("main", Program::Forever)]);
    let before = engine.run(bench, &pod).await?;
    drop(engine);
    bench.reopen().await?;
    let (engine, _) = Verbs::rig(bench).await?;
    let after = engine.run(bench, &pod).await?;
    same_containers_run(&before, &after)?;
    engine.end(bench, &pod).await
}
