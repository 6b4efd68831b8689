//! Containers outlive the runtime. Optional: `restart`.

use kubelet_cri::v1::{ContainerState, PodSandboxState};

use super::engine::Cri;
use super::steps::NO_GRACE;
use crate::conformance::bench::Bench;
use crate::conformance::engine::same_containers_run;
use crate::conformance::program::Program;
use crate::conformance::under_engine::Height;
use crate::conformance::verdict::{During, Outcome, ensure};

const AGAIN: &str = "after the runtime was opened again";

pub(super) async fn what_ran_is_found_again(bench: &mut Bench) -> Outcome {
    let (sandbox, id) = bench.start_pod(&Program::Forever).await?;
    let before = bench.container_is(&id, ContainerState::ContainerRunning).await?;
    let ready = bench
        .sandbox_is(&sandbox.id, PodSandboxState::SandboxReady)
        .await?;
    bench.reopen().await?;
    let after = bench
        .container_is(&id, ContainerState::ContainerRunning)
        .await
        .during(AGAIN)?;
    let same = before.metadata == after.metadata
        && before.labels == after.labels
        && (before.created_at, before.started_at) == (after.created_at, after.started_at);
    ensure!(same, "it was {before:?}; {AGAIN} it is {after:?}");
    let found = bench
        .sandbox_is(&sandbox.id, PodSandboxState::SandboxReady)
        .await
        .during(AGAIN)?;
    let same = ready.metadata == found.metadata && ready.created_at == found.created_at;
    ensure!(same, "its sandbox was {ready:?}; {AGAIN} it is {found:?}");
    Ok(())
}

pub(super) async fn what_ended_is_found_again_as_it_ended(bench: &mut Bench) -> Outcome {
    let (_, id, before) = bench.run_pod(&Program::Exits(3)).await?;
    bench.reopen().await?;
    let after = bench
        .container_is(&id, ContainerState::ContainerExited)
        .await
        .during(AGAIN)?;
    let end = |status: &kubelet_cri::v1::ContainerStatus| {
        (
            status.exit_code,
            status.reason.clone(),
            status.started_at,
            status.finished_at,
        )
    };
    ensure!(
        end(&before) == end(&after),
        "it ended as {before:?}; {AGAIN} as {after:?}"
    );
    Ok(())
}

pub(super) async fn what_was_not_started_can_be_started_or_cleared_away(bench: &mut Bench) -> Outcome {
    let sandbox = bench.sandbox().await?;
    let id = bench.create(&sandbox, &Program::Forever).await?;
    bench.reopen().await?;
    // A runtime may fail to start what was only created.
    if bench.start_container(&id).await.is_ok() {
        bench
            .container_is(&id, ContainerState::ContainerRunning)
            .await
            .during(AGAIN)?;
    }
    bench.stop_container(&id, NO_GRACE).await?;
    bench.remove_container(&id).await?;
    bench.container_is_gone(&id).await?;
    let next = bench.create_as(&sandbox, "main", 1, &Program::Forever).await?;
    bench.start_container(&next).await?;
    bench
        .container_is(&next, ContainerState::ContainerRunning)
        .await?;
    Ok(())
}

pub(super) async fn what_was_removed_stays_removed(bench: &mut Bench) -> Outcome {
    let (sandbox, id, _) = bench.run_pod(&Program::Exits(0)).await?;
    bench.stop_sandbox(&sandbox.id).await?;
    bench.remove_sandbox(&sandbox.id).await?;
    bench.reopen().await?;
    bench.container_is_gone(&id).await.during(AGAIN)?;
    bench.sandbox_is_gone(&sandbox.id).await.during(AGAIN)
}

pub(super) async fn what_was_found_again_can_be_stopped_and_removed(bench: &mut Bench) -> Outcome {
    let (sandbox, id) = bench.start_pod(&Program::Forever).await?;
    bench.reopen().await?;
    bench.stop_container(&id, NO_GRACE).await.during(AGAIN)?;
    bench
        .container_is(&id, ContainerState::ContainerExited)
        .await
        .during(AGAIN)?;
    bench.stop_sandbox(&sandbox.id).await?;
    bench.remove_container(&id).await?;
    bench.remove_sandbox(&sandbox.id).await?;
    bench.container_is_gone(&id).await?;
    bench.sandbox_is_gone(&sandbox.id).await
}

pub(super) async fn an_agent_on_the_runtime_opened_again_takes_over_what_runs(bench: &mut Bench) -> Outcome {
    let (engine, _) = Cri::rig(bench).await?;
    let pod = bench.pod(&[("main", Program::Forever)]);
    let before = engine.run(bench, &pod).await?;
    drop(engine);
    bench.reopen().await?;
    let (engine, _) = Cri::rig(bench).await?;
    let after = engine.run(bench, &pod).await?;
    same_containers_run(&before, &after)?;
    engine.end(bench, &pod).await
}
