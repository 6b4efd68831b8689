//! Clauses for the engine on a runtime, with a wrapper in between that injects faults.

use std::sync::Arc;

use kubelet_core::runtime::PodStatus;

use super::bench::Bench;
use super::engine::{Engine, each_runs_once, same_containers_run};
use super::faults::{Fault, Faults, Lie};
use super::program::Program;
use super::verdict::{During, Outcome, Seen, ensure};

/// An interface between the engine and a runtime, where a wrapper can be inserted.
pub(crate) trait Height {
    /// The calls that start, stop and remove a container.
    const START: &'static str;
    const STOP: &'static str;
    const REMOVE: &'static str;

    /// An engine on the bench's runtime, with a wrapper. A sync has more time than a call.
    async fn rig(bench: &Bench) -> Outcome<(Engine, Arc<Faults>)>;

    /// The number of running containers of a pod, as the runtime reports it. It must be at most one of each name.
    async fn running(bench: &Bench, status: &PodStatus) -> Outcome<usize>;
}

/// The clauses of a group for an interface.
macro_rules! at_height {
    ($height:ty: $($clause:ident)*) => {
        $(
            pub(super) async fn $clause(bench: &mut Bench) -> Outcome {
                $crate::conformance::under_engine::$clause::<$height>(bench).await
            }
        )*
    };
}
pub(crate) use at_height;

/// Runs a pod of one container with these faults. Then checks that it runs once and can be ended.
pub(crate) async fn runs_once_in_spite_of<H: Height>(
    bench: &Bench,
    call: &'static str,
    faults_of_call: &[Fault],
) -> Outcome {
    for fault in faults_of_call {
        let (engine, faults) = H::rig(bench).await?;
        faults.next(call, *fault);
        let pod = bench.pod(&[("main", Program::Forever)]);
        let status = engine.run(bench, &pod).await?;
        ensure!(faults.all_met(), "the engine made no call {call}");
        each_runs_once(&status)?;
        let running = H::running(bench, &status).await?;
        ensure!(
            running == 1,
            "the runtime reports {running} running containers of the pod"
        );
        engine.end(bench, &pod).await?;
    }
    Ok(())
}

/// Ends a pod of one container with these faults. Then checks that nothing is left.
pub(crate) async fn is_ended_in_spite_of<H: Height>(
    bench: &Bench,
    call: &'static str,
    faults_of_call: &[Fault],
) -> Outcome {
    for fault in faults_of_call {
        let (engine, faults) = H::rig(bench).await?;
        let pod = bench.pod(&[("main", Program::Forever)]);
        let status = engine.run(bench, &pod).await?;
        faults.next(call, *fault);
        engine
            .end(bench, &pod)
            .await
            .during(&format!("a call {call} met {fault:?}"))?;
        ensure!(faults.all_met(), "the engine made no call {call}");
        let running = H::running(bench, &status).await?;
        ensure!(
            running == 0,
            "the runtime reports {running} running containers of the pod"
        );
    }
    Ok(())
}

/// Runs a pod, syncs it with wrong lists, and then syncs it with correct lists.
async fn survives<H: Height>(bench: &Bench, lie: Lie) -> Outcome {
    let (engine, faults) = H::rig(bench).await?;
    let pod = bench.pod(&[("main", Program::Forever), ("side", Program::Forever)]);
    let before = engine.run(bench, &pod).await?;
    faults.lie(Some(lie));
    for _ in 0..3 {
        engine.sync(&pod).await;
    }
    faults.lie(None);
    let after = engine.run(bench, &pod).await?;
    each_runs_once(&after)?;
    H::running(bench, &after).await?;
    same_containers_run(&before, &after)?;
    engine.end(bench, &pod).await
}

pub(crate) async fn a_pod_runs_and_ends<H: Height>(bench: &mut Bench) -> Outcome {
    let (engine, _) = H::rig(bench).await?;
    let pod = bench.pod(&[("main", Program::Forever), ("side", Program::Forever)]);
    let status = engine.run(bench, &pod).await?;
    each_runs_once(&status)?;
    let running = H::running(bench, &status).await?;
    ensure!(
        running == 2,
        "the runtime reports {running} running containers of the pod"
    );
    engine.end(bench, &pod).await
}

pub(crate) async fn a_container_that_ended_is_restarted<H: Height>(bench: &mut Bench) -> Outcome {
    let (engine, _) = H::rig(bench).await?;
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

pub(crate) async fn a_lost_reply_of_start_is_one_container<H: Height>(bench: &mut Bench) -> Outcome {
    runs_once_in_spite_of::<H>(bench, H::START, &[Fault::ReplyLost, Fault::HangsWhenDone]).await
}

pub(crate) async fn a_start_that_fails_or_hangs_is_tried_again<H: Height>(bench: &mut Bench) -> Outcome {
    runs_once_in_spite_of::<H>(bench, H::START, &[Fault::Refused, Fault::Hangs]).await
}

pub(crate) async fn a_stop_that_fails_or_hangs_is_tried_again<H: Height>(bench: &mut Bench) -> Outcome {
    let faults = [Fault::ReplyLost, Fault::Refused, Fault::Hangs];
    is_ended_in_spite_of::<H>(bench, H::STOP, &faults).await
}

pub(crate) async fn a_removal_that_fails_or_hangs_is_tried_again<H: Height>(bench: &mut Bench) -> Outcome {
    let faults = [Fault::ReplyLost, Fault::Refused, Fault::HangsWhenDone];
    is_ended_in_spite_of::<H>(bench, H::REMOVE, &faults).await
}

pub(crate) async fn slow_calls_only_take_time<H: Height>(bench: &mut Bench) -> Outcome {
    let (engine, faults) = H::rig(bench).await?;
    faults.every(Some(Fault::Slow(bench.pace() / 10)));
    let pod = bench.pod(&[("main", Program::Forever)]);
    let status = engine.run(bench, &pod).await?;
    each_runs_once(&status)?;
    H::running(bench, &status).await?;
    engine.end(bench, &pod).await
}

pub(crate) async fn a_runtime_that_was_away_finds_its_pods_as_they_were<H: Height>(
    bench: &mut Bench,
) -> Outcome {
    let (engine, faults) = H::rig(bench).await?;
    let pod = bench.pod(&[("main", Program::Forever)]);
    let before = engine.run(bench, &pod).await?;
    faults.every(Some(Fault::Refused));
    for _ in 0..3 {
        let failed = engine.sync(&pod).await;
        ensure!(
            failed.is_some(),
            "no call reaches the runtime, but the sync succeeded"
        );
    }
    faults.every(None);
    let after = engine.run(bench, &pod).await?;
    same_containers_run(&before, &after)?;
    engine.end(bench, &pod).await
}

pub(crate) async fn a_list_that_omits_one_starts_no_second<H: Height>(bench: &mut Bench) -> Outcome {
    survives::<H>(bench, Lie::FirstMissing).await?;
    survives::<H>(bench, Lie::Empty).await
}

/// The weaker form: an engine that does not see a container may start another one, as a kubelet does.
pub(crate) async fn what_the_lists_omitted_is_found_again_and_ended<H: Height>(bench: &mut Bench) -> Outcome {
    for lie in [Lie::FirstMissing, Lie::Empty] {
        let (engine, faults) = H::rig(bench).await?;
        let pod = bench.pod(&[("main", Program::Forever), ("side", Program::Forever)]);
        let before = engine.run(bench, &pod).await?;
        faults.lie(Some(lie));
        for _ in 0..3 {
            engine.sync(&pod).await;
        }
        faults.lie(None);
        engine.run(bench, &pod).await?;
        engine.end(bench, &pod).await?;
        let running = H::running(bench, &before).await?;
        ensure!(
            running == 0,
            "the pod was killed, but {running} of its containers run"
        );
    }
    Ok(())
}

pub(crate) async fn a_list_that_names_each_twice_changes_nothing<H: Height>(bench: &mut Bench) -> Outcome {
    survives::<H>(bench, Lie::Doubled).await
}

pub(crate) async fn the_order_of_the_list_means_nothing<H: Height>(bench: &mut Bench) -> Outcome {
    survives::<H>(bench, Lie::Reversed).await
}

pub(crate) async fn another_agent_takes_over_what_runs<H: Height>(bench: &mut Bench) -> Outcome {
    let (engine, _) = H::rig(bench).await?;
    let pod = bench.pod(&[("main", Program::Forever), ("side", Program::Forever)]);
    let before = engine.run(bench, &pod).await?;
    drop(engine);
    let (engine, _) = H::rig(bench).await?;
    let after = engine.run(bench, &pod).await?;
    same_containers_run(&before, &after)?;
    engine.end(bench, &pod).await
}

pub(crate) async fn an_agent_that_dies_between_create_and_start_leaves_one_container<H: Height>(
    bench: &mut Bench,
) -> Outcome {
    for fault in [Fault::Hangs, Fault::HangsWhenDone] {
        let (engine, faults) = H::rig(bench).await?;
        let pod = bench.pod(&[("main", Program::Forever)]);
        faults.next(H::START, fault);
        // The container is created; the agent ends during its start.
        tokio::select! {
            () = faults.hangs() => {}
            ended = engine.sync(&pod) => {
                return Err(Seen::new(format!("the start hangs, and the sync came to an end: {ended:?}")));
            }
        }
        drop(engine);
        let (engine, _) = H::rig(bench).await?;
        let status = engine.run(bench, &pod).await.during("the next agent")?;
        each_runs_once(&status)?;
        H::running(bench, &status).await?;
        engine.end(bench, &pod).await?;
    }
    Ok(())
}
