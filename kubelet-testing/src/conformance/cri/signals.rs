//! Stop signals and grace periods. Optional: `signals`.

use kubelet_cri::v1;
use kubelet_cri::v1::ContainerState;

use super::steps::{LONG_GRACE, NO_GRACE};
use crate::conformance::SIGKILL_CODE;
use crate::conformance::bench::Bench;
use crate::conformance::program::Program;
use crate::conformance::verdict::{Outcome, ensure};

/// Seconds.
const SHORT_GRACE: i64 = 1;

pub(super) async fn the_stop_signal_comes_first(bench: &mut Bench) -> Outcome {
    let (_, id) = bench.start_pod_ready(&Program::Heeds(7)).await?;
    bench.stop_container(&id, LONG_GRACE).await?;
    let status = bench.container_is(&id, ContainerState::ContainerExited).await?;
    ensure!(
        status.exit_code == 7,
        "a program that exits with 7 when asked to stop ended as {status:?}"
    );
    Ok(())
}

pub(super) async fn who_ignores_it_is_killed_when_the_grace_is_over(bench: &mut Bench) -> Outcome {
    let (_, id) = bench.start_pod_ready(&Program::Ignores).await?;
    bench.stop_container(&id, SHORT_GRACE).await?;
    let status = bench.container_is(&id, ContainerState::ContainerExited).await?;
    ensure!(
        status.exit_code == SIGKILL_CODE,
        "killed after its grace it ended as {status:?}"
    );
    Ok(())
}

pub(super) async fn no_grace_is_a_kill_at_once(bench: &mut Bench) -> Outcome {
    for program in [Program::Heeds(7), Program::Ignores] {
        let (_, id) = bench.start_pod_ready(&program).await?;
        bench.stop_container(&id, NO_GRACE).await?;
        let status = bench.container_is(&id, ContainerState::ContainerExited).await?;
        ensure!(
            status.exit_code == SIGKILL_CODE,
            "{program:?}, stopped without grace, ended as {status:?}"
        );
    }
    Ok(())
}

pub(super) async fn a_stop_of_the_sandbox_ends_a_stop_that_waits(bench: &mut Bench) -> Outcome {
    let (sandbox, id) = bench.start_pod_ready(&Program::Ignores).await?;
    let services = bench.services();
    let stop = v1::StopContainerRequest {
        container_id: id.clone(),
        timeout: LONG_GRACE,
    };
    let all = async {
        tokio::task::yield_now().await;
        let request = v1::StopPodSandboxRequest {
            pod_sandbox_id: sandbox.id.clone(),
        };
        services.runtime.stop_pod_sandbox(request).await
    };
    let both = async { futures::join!(services.runtime.stop_container(stop), all) };
    let (waited, stopped) = bench
        .answer("a stop of the container and one of its sandbox", both)
        .await?;
    stopped?;
    waited?;
    bench.container_is(&id, ContainerState::ContainerExited).await?;
    Ok(())
}

pub(super) async fn a_stop_that_waits_can_be_given_up_and_hurried(bench: &mut Bench) -> Outcome {
    let (_, id) = bench.start_pod_ready(&Program::Ignores).await?;
    let services = bench.services();
    let request = v1::StopContainerRequest {
        container_id: id.clone(),
        timeout: LONG_GRACE,
    };
    let given_up = tokio::time::timeout(bench.pace(), services.runtime.stop_container(request)).await;
    ensure!(
        given_up.is_err(),
        "a program that ignores its stop signal was stopped: {given_up:?}"
    );
    bench.stop_container(&id, NO_GRACE).await?;
    bench.container_is(&id, ContainerState::ContainerExited).await?;
    Ok(())
}
