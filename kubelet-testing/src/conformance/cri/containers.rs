//! Containers from create to removal.

use kubelet_cri::v1::ContainerState;

use super::steps::{NO_GRACE, Sandbox};
use crate::conformance::bench::Bench;
use crate::conformance::program::Program;
use crate::conformance::verdict::{Outcome, Seen, ensure};

pub(super) async fn what_is_created_is_not_started(bench: &mut Bench) -> Outcome {
    let sandbox = bench.sandbox().await?;
    let id = bench.create(&sandbox, &Program::Forever).await?;
    let status = bench.container_is(&id, ContainerState::ContainerCreated).await?;
    ensure!(status.created_at > 0 && status.started_at == 0, "{status:?}");
    Ok(())
}

pub(super) async fn what_is_started_runs(bench: &mut Bench) -> Outcome {
    let (_, id) = bench.start_pod(&Program::Forever).await?;
    let status = bench.container_is(&id, ContainerState::ContainerRunning).await?;
    let in_order = 0 < status.created_at && status.created_at <= status.started_at && status.finished_at == 0;
    ensure!(in_order, "its times are out of order: {status:?}");
    Ok(())
}

pub(super) async fn a_container_is_reported_as_requested(bench: &mut Bench) -> Outcome {
    let (sandbox, id) = bench.start_pod(&Program::Forever).await?;
    let request = bench.create_request(&sandbox, "main", 0, &Program::Forever)?;
    let asked = request.config.unwrap_or_default();
    let status = bench.container_status(&id).await?;
    ensure!(
        status.metadata == asked.metadata,
        "requested {:?}, got {:?}",
        asked.metadata,
        status.metadata
    );
    ensure!(
        status.labels == asked.labels,
        "requested {:?}, got {:?}",
        asked.labels,
        status.labels
    );
    let (annotations, told) = (&asked.annotations, &status.annotations);
    ensure!(
        annotations == told,
        "requested annotations {annotations:?}, got {told:?}"
    );
    let image = status.image.as_ref().map_or("", |image| &image.image);
    ensure!(
        !image.is_empty() && !status.image_ref.is_empty(),
        "its image is {image:?}, {:?}",
        status.image_ref
    );
    let listed = bench.listed_container(&id).await?;
    let listed = listed.ok_or_else(|| Seen::new("the list has no such container"))?;
    ensure!(
        listed.pod_sandbox_id == sandbox.id,
        "it is listed as of sandbox {:?}",
        listed.pod_sandbox_id
    );
    let same = listed.metadata == status.metadata
        && listed.labels == status.labels
        && listed.annotations == status.annotations
        && listed.created_at == status.created_at;
    ensure!(same, "its status is {status:?}; the list has {listed:?}");
    Ok(())
}

pub(super) async fn nothing_is_started_twice(bench: &mut Bench) -> Outcome {
    let (_, running) = bench.start_pod(&Program::Forever).await?;
    let before = bench.container_status(&running).await?;
    let (_, ended, _) = bench.run_pod(&Program::Exits(3)).await?;
    for id in [&running, &ended] {
        let again = bench.start_container(id).await;
        ensure!(again.is_err(), "a second start of {id} was a success");
    }
    let after = bench
        .container_is(&running, ContainerState::ContainerRunning)
        .await?;
    ensure!(before == after, "a second start changed {before:?} to {after:?}");
    bench
        .container_is(&ended, ContainerState::ContainerExited)
        .await?;
    Ok(())
}

pub(super) async fn what_ended_stays_until_it_is_removed(bench: &mut Bench) -> Outcome {
    let (sandbox, id, ended) = bench.run_pod(&Program::Exits(3)).await?;
    // By the clock, a program that exits at once may have ended before the runtime notes its start.
    let after_creation =
        0 < ended.created_at && ended.created_at <= ended.started_at && ended.created_at <= ended.finished_at;
    ensure!(after_creation, "its times are out of order: {ended:?}");
    // Other containers are created and removed.
    let other = bench.create_as(&sandbox, "side", 0, &Program::Exits(0)).await?;
    bench.start_container(&other).await?;
    bench.exited(&other).await?;
    bench.remove_container(&other).await?;
    let now = bench.container_is(&id, ContainerState::ContainerExited).await?;
    ensure!(now == ended, "it ended as {ended:?}; later it had as {now:?}");
    Ok(())
}

pub(super) async fn what_is_removed_is_not_found(bench: &mut Bench) -> Outcome {
    let (sandbox, ended, _) = bench.run_pod(&Program::Exits(0)).await?;
    let created = bench.create_as(&sandbox, "created", 0, &Program::Forever).await?;
    let stopped = bench.create_as(&sandbox, "stopped", 0, &Program::Forever).await?;
    bench.start_container(&stopped).await?;
    bench.stop_container(&stopped, NO_GRACE).await?;
    for id in [ended, created, stopped] {
        bench.remove_container(&id).await?;
        bench.container_is_gone(&id).await?;
    }
    Ok(())
}

pub(super) async fn a_removal_kills_what_runs(bench: &mut Bench) -> Outcome {
    let (_, id) = bench.start_pod(&Program::Forever).await?;
    bench.remove_container(&id).await?;
    bench.container_is_gone(&id).await
}

pub(super) async fn an_unknown_container_is_not_found(bench: &mut Bench) -> Outcome {
    bench.container_is_gone("there-is-no-such-container").await
}

pub(super) async fn there_is_none_without_a_ready_sandbox(bench: &mut Bench) -> Outcome {
    let sandbox = bench.sandbox().await?;
    bench.stop_sandbox(&sandbox.id).await?;
    let unknown = Sandbox {
        id: "there-is-no-such-sandbox".to_owned(),
        ..sandbox.clone()
    };
    for (number, sandbox) in [sandbox, unknown].iter().enumerate() {
        let name = format!("main-{number}");
        let started = match bench.create_as(sandbox, &name, 0, &Program::Forever).await {
            Ok(id) => bench.start_container(&id).await,
            Err(refused) => Err(refused),
        };
        ensure!(
            started.is_err(),
            "a container was started in sandbox {}, which is not ready",
            sandbox.id
        );
    }
    Ok(())
}

pub(super) async fn a_restart_is_a_container_of_its_own(bench: &mut Bench) -> Outcome {
    let (sandbox, first, ended) = bench.run_pod(&Program::Exits(3)).await?;
    let second = bench.create_as(&sandbox, "main", 1, &Program::Forever).await?;
    ensure!(first != second, "both attempts have the id {first}");
    bench.start_container(&second).await?;
    let now = bench.container_status(&first).await?;
    ensure!(
        now == ended,
        "the first ended as {ended:?}; after a second was started it had as {now:?}"
    );
    bench.remove_container(&first).await?;
    bench.container_is_gone(&first).await?;
    bench
        .container_is(&second, ContainerState::ContainerRunning)
        .await?;
    Ok(())
}

pub(super) async fn a_start_that_fails_can_be_cleaned_up(bench: &mut Bench) -> Outcome {
    let sandbox = bench.sandbox().await?;
    let id = match bench.create(&sandbox, &Program::Missing).await {
        Ok(id) => id,
        // Also allowed: it is not even created.
        Err(_) => return Ok(()),
    };
    if bench.start_container(&id).await.is_ok() {
        let status = bench.exited(&id).await?;
        ensure!(
            status.exit_code != 0,
            "a program that is not there ended with {status:?}"
        );
    }
    let status = bench.container_status(&id).await?;
    let runs = status.state() == ContainerState::ContainerRunning;
    ensure!(!runs, "it failed to start, and it is {status:?}");
    bench.remove_container(&id).await?;
    bench.container_is_gone(&id).await?;
    // Its name is free for the next attempt.
    let next = bench.create(&sandbox, &Program::Forever).await?;
    bench.start_container(&next).await?;
    bench
        .container_is(&next, ContainerState::ContainerRunning)
        .await?;
    Ok(())
}
