//! The engine on a runtime: `CriRuntime` on `CriAdapter`, and between that and the runtime a wrapper that does faults.

use std::sync::Arc;

use kubelet_core::runtime::PodStatus;

use super::wrapper::Wrapper;
use crate::conformance::bench::Bench;
use crate::conformance::engine::{Engine, each_runs_once, same_containers_run};
use crate::conformance::faults::{Fault, Faults, Lie};
use crate::conformance::program::Program;
use crate::conformance::verdict::{During, Outcome, Seen, ensure};

/// An engine on the bench's runtime, with faults between. Its syncs are given longer than a verb.
pub(super) async fn rig(bench: &Bench) -> Outcome<(Engine, Arc<Faults>)> {
    let faults = Arc::new(Faults::default());
    let wrapper = Wrapper {
        runtime: bench.verbs()?,
        faults: faults.clone(),
    };
    let services = bench.adapt_within(Arc::new(wrapper), bench.pace());
    Ok((bench.engine(&services, 20 * bench.pace()).await?, faults))
}

/// How many containers of a pod the runtime itself says run; not more than one of each name.
async fn running(bench: &Bench, status: &PodStatus) -> Outcome<usize> {
    let list = bench.answer("list", bench.verbs()?.list()).await??;
    let running: Vec<_> = list
        .into_iter()
        .filter(|container| container.key.pod == status.uid && container.is_running())
        .collect();
    let names: std::collections::BTreeSet<_> =
        running.iter().map(|container| &container.key.container).collect();
    ensure!(
        names.len() == running.len(),
        "of one container several run: {running:?}"
    );
    Ok(running.len())
}

/// Runs a pod of one container whose calls meet these faults; then it runs once, and can be ended.
async fn runs_once_in_spite_of(bench: &Bench, call: &'static str, faults_of_call: &[Fault]) -> Outcome {
    for fault in faults_of_call {
        let (engine, faults) = rig(bench).await?;
        faults.next(call, *fault);
        let pod = bench.pod(&[("main", Program::Forever)]);
        let status = engine.run(bench, &pod).await?;
        ensure!(faults.all_met(), "the engine made no call {call}");
        each_runs_once(&status)?;
        let running = running(bench, &status).await?;
        ensure!(
            running == 1,
            "the runtime says that {running} containers of the pod run"
        );
        engine.end(bench, &pod).await?;
    }
    Ok(())
}

/// Ends a pod of one container whose calls meet these faults; then nothing is left.
async fn is_ended_in_spite_of(bench: &Bench, call: &'static str, faults_of_call: &[Fault]) -> Outcome {
    for fault in faults_of_call {
        let (engine, faults) = rig(bench).await?;
        let pod = bench.pod(&[("main", Program::Forever)]);
        let status = engine.run(bench, &pod).await?;
        faults.next(call, *fault);
        engine
            .end(bench, &pod)
            .await
            .during(&format!("a call {call} met {fault:?}"))?;
        ensure!(faults.all_met(), "the engine made no call {call}");
        let running = running(bench, &status).await?;
        ensure!(
            running == 0,
            "the runtime says that {running} containers of the pod run"
        );
    }
    Ok(())
}

/// Runs a pod, has lists lie while it is synced, and looks again once they tell the truth.
async fn survives(bench: &Bench, lie: Lie) -> Outcome {
    let (engine, faults) = rig(bench).await?;
    let pod = bench.pod(&[("main", Program::Forever), ("side", Program::Forever)]);
    let before = engine.run(bench, &pod).await?;
    faults.lie(Some(lie));
    for _ in 0..3 {
        engine.sync(&pod).await;
    }
    faults.lie(None);
    let after = engine.run(bench, &pod).await?;
    each_runs_once(&after)?;
    running(bench, &after).await?;
    same_containers_run(&before, &after)?;
    engine.end(bench, &pod).await
}

pub(super) async fn a_pod_runs_and_ends(bench: &mut Bench) -> Outcome {
    let (engine, _) = rig(bench).await?;
    let pod = bench.pod(&[("main", Program::Forever), ("side", Program::Forever)]);
    let status = engine.run(bench, &pod).await?;
    each_runs_once(&status)?;
    let running = running(bench, &status).await?;
    ensure!(
        running == 2,
        "the runtime says that {running} containers of the pod run"
    );
    engine.end(bench, &pod).await
}

pub(super) async fn a_container_that_ended_is_started_anew(bench: &mut Bench) -> Outcome {
    let (engine, _) = rig(bench).await?;
    let pod = bench.pod(&[("main", Program::Exits(3))]);
    let restarted = bench.until("a third instance of the container", async || {
        engine.sync(&pod).await;
        let status = engine.look(&pod).await?;
        Ok(status
            .containers
            .iter()
            .any(|container| container.restart_count == 2)
            .then_some(status))
    });
    let status = restarted.await?;
    let ended = status
        .containers
        .iter()
        .find(|container| container.restart_count == 0);
    let told = ended.is_some_and(|container| container.exit_code == 3);
    ensure!(told, "its first instance ended with 3; the engine sees {ended:?}");
    engine.end(bench, &pod).await
}

pub(super) async fn a_lost_reply_of_start_is_one_container(bench: &mut Bench) -> Outcome {
    runs_once_in_spite_of(bench, "start", &[Fault::ReplyLost, Fault::HangsWhenDone]).await
}

pub(super) async fn a_start_that_fails_or_hangs_is_tried_again(bench: &mut Bench) -> Outcome {
    runs_once_in_spite_of(bench, "start", &[Fault::Refused, Fault::Hangs]).await
}

pub(super) async fn a_stop_that_fails_or_hangs_is_tried_again(bench: &mut Bench) -> Outcome {
    let faults = [Fault::ReplyLost, Fault::Refused, Fault::Hangs];
    is_ended_in_spite_of(bench, "stop", &faults).await
}

pub(super) async fn a_removal_that_fails_or_hangs_is_tried_again(bench: &mut Bench) -> Outcome {
    let faults = [Fault::ReplyLost, Fault::Refused, Fault::HangsWhenDone];
    is_ended_in_spite_of(bench, "remove", &faults).await
}

pub(super) async fn slow_calls_only_take_time(bench: &mut Bench) -> Outcome {
    let (engine, faults) = rig(bench).await?;
    faults.every(Some(Fault::Slow(bench.pace() / 10)));
    let pod = bench.pod(&[("main", Program::Forever)]);
    let status = engine.run(bench, &pod).await?;
    each_runs_once(&status)?;
    running(bench, &status).await?;
    engine.end(bench, &pod).await
}

pub(super) async fn a_runtime_that_was_away_finds_its_pods_as_they_were(bench: &mut Bench) -> Outcome {
    let (engine, faults) = rig(bench).await?;
    let pod = bench.pod(&[("main", Program::Forever)]);
    let before = engine.run(bench, &pod).await?;
    faults.every(Some(Fault::Refused));
    for _ in 0..3 {
        let failed = engine.sync(&pod).await;
        ensure!(
            failed.is_some(),
            "no call reaches the runtime, and the sync went well"
        );
    }
    faults.every(None);
    let after = engine.run(bench, &pod).await?;
    same_containers_run(&before, &after)?;
    engine.end(bench, &pod).await
}

pub(super) async fn a_list_that_omits_one_starts_no_second(bench: &mut Bench) -> Outcome {
    survives(bench, Lie::FirstMissing).await?;
    survives(bench, Lie::Empty).await
}

pub(super) async fn a_list_that_names_each_twice_changes_nothing(bench: &mut Bench) -> Outcome {
    survives(bench, Lie::Doubled).await
}

pub(super) async fn the_order_of_the_list_means_nothing(bench: &mut Bench) -> Outcome {
    survives(bench, Lie::Reversed).await
}

pub(super) async fn another_agent_takes_over_what_runs(bench: &mut Bench) -> Outcome {
    let (engine, _) = rig(bench).await?;
    let pod = bench.pod(&[("main", Program::Forever), ("side", Program::Forever)]);
    let before = engine.run(bench, &pod).await?;
    drop(engine);
    let (engine, _) = rig(bench).await?;
    let after = engine.run(bench, &pod).await?;
    same_containers_run(&before, &after)?;
    engine.end(bench, &pod).await
}

pub(super) async fn an_agent_that_dies_between_create_and_start_leaves_one_container(
    bench: &mut Bench,
) -> Outcome {
    for fault in [Fault::Hangs, Fault::HangsWhenDone] {
        let (engine, faults) = rig(bench).await?;
        let pod = bench.pod(&[("main", Program::Forever)]);
        faults.next("start", fault);
        // The container is made; in the midst of its start the agent goes.
        tokio::select! {
            () = faults.hangs() => {}
            ended = engine.sync(&pod) => {
                return Err(Seen::new(format!("the start hangs, and the sync came to an end: {ended:?}")));
            }
        }
        drop(engine);
        let (engine, _) = rig(bench).await?;
        let status = engine.run(bench, &pod).await.during("the next agent")?;
        each_runs_once(&status)?;
        running(bench, &status).await?;
        engine.end(bench, &pod).await?;
    }
    Ok(())
}
