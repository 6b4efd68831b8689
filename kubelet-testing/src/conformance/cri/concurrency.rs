//! Concurrent calls.

use futures::future::try_join_all;
use kubelet_cri::v1::ContainerState;

use super::steps::NO_GRACE;
use crate::conformance::bench::Bench;
use crate::conformance::program::Program;
use crate::conformance::verdict::{Outcome, ensure};

/// The number of concurrent pods.
const PODS: i32 = 5;

pub(super) async fn pods_live_and_die_side_by_side(bench: &mut Bench) -> Outcome {
    let bench = &*bench;
    let pod = async |code: i32| {
        let (sandbox, ended, status) = bench.run_pod(&Program::Exits(code)).await?;
        ensure!(
            status.exit_code == code,
            "a program that exits with {code} ended as {status:?}"
        );
        let next = bench.create_as(&sandbox, "main", 1, &Program::Forever).await?;
        bench.start_container(&next).await?;
        bench
            .container_is(&next, ContainerState::ContainerRunning)
            .await?;
        bench.stop_container(&next, NO_GRACE).await?;
        bench.stop_sandbox(&sandbox.id).await?;
        bench.remove_container(&ended).await?;
        bench.remove_sandbox(&sandbox.id).await?;
        bench.container_is_gone(&next).await?;
        bench.sandbox_is_gone(&sandbox.id).await
    };
    try_join_all((0..PODS).map(pod)).await?;
    Ok(())
}

pub(super) async fn containers_of_the_same_name_in_two_pods_are_two(bench: &mut Bench) -> Outcome {
    let bench = &*bench;
    let both = async {
        futures::join!(
            bench.start_pod(&Program::Forever),
            bench.start_pod(&Program::Forever)
        )
    };
    let (one, other) = both.await;
    let ((sandbox, one), (_, other)) = (one?, other?);
    bench.stop_container(&one, NO_GRACE).await?;
    bench
        .container_is(&other, ContainerState::ContainerRunning)
        .await?;
    bench.stop_sandbox(&sandbox.id).await?;
    bench.remove_sandbox(&sandbox.id).await?;
    bench.container_is_gone(&one).await?;
    bench
        .container_is(&other, ContainerState::ContainerRunning)
        .await?;
    Ok(())
}

pub(super) async fn containers_of_one_pod_start_side_by_side(bench: &mut Bench) -> Outcome {
    let bench = &*bench;
    let sandbox = &bench.sandbox().await?;
    let start = async |name: &'static str| {
        let id = bench.create_as(sandbox, name, 0, &Program::Forever).await?;
        bench.start_container(&id).await?;
        Ok::<_, crate::conformance::verdict::Seen>(id)
    };
    let ids = try_join_all(["one", "two", "three", "four"].map(start)).await?;
    for id in &ids {
        bench.container_is(id, ContainerState::ContainerRunning).await?;
    }
    bench.stop_container(&ids[0], NO_GRACE).await?;
    for id in &ids[1..] {
        bench.container_is(id, ContainerState::ContainerRunning).await?;
    }
    Ok(())
}
