//! Sandboxes from run to removal.

use kubelet_cri::v1::{ContainerState, PodSandboxState};

use crate::conformance::bench::Bench;
use crate::conformance::program::Program;
use crate::conformance::verdict::{Outcome, ensure};

pub(super) async fn a_sandbox_is_ready_once_it_was_run(bench: &mut Bench) -> Outcome {
    let sandbox = bench.sandbox().await?;
    bench
        .sandbox_is(&sandbox.id, PodSandboxState::SandboxReady)
        .await?;
    Ok(())
}

pub(super) async fn a_sandbox_is_reported_as_requested(bench: &mut Bench) -> Outcome {
    let sandbox = bench.sandbox().await?;
    let status = bench
        .sandbox_is(&sandbox.id, PodSandboxState::SandboxReady)
        .await?;
    let config = &sandbox.config;
    ensure!(
        status.metadata == config.metadata,
        "requested {:?}, got {:?}",
        config.metadata,
        status.metadata
    );
    ensure!(
        status.labels == config.labels,
        "requested {:?}, got {:?}",
        config.labels,
        status.labels
    );
    let (asked, told) = (&config.annotations, &status.annotations);
    ensure!(asked == told, "requested annotations {asked:?}, got {told:?}");
    ensure!(status.created_at > 0, "it was made at {}", status.created_at);
    let mut list = bench.list_sandboxes(Default::default()).await?;
    list.retain(|listed| listed.id == sandbox.id);
    let same = list.iter().all(|listed| {
        listed.metadata == status.metadata
            && listed.labels == status.labels
            && listed.created_at == status.created_at
    });
    ensure!(same, "its status is {status:?}; the list has {list:?}");
    Ok(())
}

pub(super) async fn a_stopped_sandbox_is_not_ready_and_stays(bench: &mut Bench) -> Outcome {
    let sandbox = bench.sandbox().await?;
    bench.stop_sandbox_and_wait(&sandbox.id).await?;
    bench
        .sandbox_is(&sandbox.id, PodSandboxState::SandboxNotready)
        .await?;
    Ok(())
}

pub(super) async fn a_removed_sandbox_is_not_found(bench: &mut Bench) -> Outcome {
    let sandbox = bench.sandbox().await?;
    bench.stop_sandbox(&sandbox.id).await?;
    bench.remove_sandbox(&sandbox.id).await?;
    bench.sandbox_is_gone(&sandbox.id).await
}

pub(super) async fn an_unknown_sandbox_is_not_found(bench: &mut Bench) -> Outcome {
    bench.sandbox_is_gone("there-is-no-such-sandbox").await
}

pub(super) async fn a_stop_kills_its_containers(bench: &mut Bench) -> Outcome {
    let (sandbox, id) = bench.start_pod(&Program::Forever).await?;
    bench.stop_sandbox(&sandbox.id).await?;
    // They stay in the list, with their exits.
    bench.container_is(&id, ContainerState::ContainerExited).await?;
    Ok(())
}

pub(super) async fn a_removal_takes_its_containers_along(bench: &mut Bench) -> Outcome {
    let (sandbox, running) = bench.start_pod(&Program::Forever).await?;
    let created = bench.create_as(&sandbox, "side", 0, &Program::Forever).await?;
    bench.stop_sandbox(&sandbox.id).await?;
    bench.remove_sandbox(&sandbox.id).await?;
    for id in [running, created] {
        bench.container_is_gone(&id).await?;
    }
    bench.sandbox_is_gone(&sandbox.id).await
}

pub(super) async fn the_next_attempt_is_another_sandbox(bench: &mut Bench) -> Outcome {
    let first = bench.sandbox().await?;
    bench.stop_sandbox(&first.id).await?;
    let mut config = first.config.clone();
    if let Some(metadata) = &mut config.metadata {
        metadata.attempt = 1;
    }
    let second = bench.run_sandbox(config).await?;
    ensure!(first.id != second.id, "both attempts have the id {}", first.id);
    bench
        .sandbox_is(&second.id, PodSandboxState::SandboxReady)
        .await?;
    bench.remove_sandbox(&first.id).await?;
    bench.sandbox_is_gone(&first.id).await?;
    bench
        .sandbox_is(&second.id, PodSandboxState::SandboxReady)
        .await?;
    Ok(())
}

pub(super) async fn it_takes_no_container_to_be_ready(bench: &mut Bench) -> Outcome {
    let (sandbox, id, _) = bench.run_pod(&Program::Exits(0)).await?;
    bench.remove_container(&id).await?;
    bench
        .sandbox_is(&sandbox.id, PodSandboxState::SandboxReady)
        .await?;
    Ok(())
}
