//! Repeated and concurrent calls.

use futures::future::join_all;
use kubelet_cri::v1;

use super::steps::{LONG_GRACE, NO_GRACE};
use crate::conformance::bench::Bench;
use crate::conformance::program::Program;
use crate::conformance::verdict::{During, Outcome, ensure};

/// The number of concurrent callers.
const CALLERS: usize = 4;
const NOBODY: &str = "there-is-no-such-thing";

pub(super) async fn stop_and_removal_of_what_is_not_there_do_no_harm(bench: &mut Bench) -> Outcome {
    bench.stop_container(NOBODY, LONG_GRACE).await?;
    bench.remove_container(NOBODY).await?;
    bench.stop_sandbox(NOBODY).await?;
    bench.remove_sandbox(NOBODY).await
}

pub(super) async fn a_second_stop_of_a_container_changes_nothing(bench: &mut Bench) -> Outcome {
    let (_, id, ended) = bench.run_pod(&Program::Exits(3)).await?;
    for grace in [LONG_GRACE, NO_GRACE] {
        bench.stop_container(&id, grace).await?;
        let now = bench.exited(&id).await?;
        ensure!(
            now == ended,
            "it ended as {ended:?}; after a stop it had as {now:?}"
        );
    }
    Ok(())
}

pub(super) async fn sandboxes_are_stopped_and_removed_any_number_of_times(bench: &mut Bench) -> Outcome {
    let (sandbox, id) = bench.start_pod(&Program::Forever).await?;
    for _ in 0..3 {
        bench.stop_sandbox(&sandbox.id).await?;
    }
    for _ in 0..2 {
        bench.remove_container(&id).await?;
    }
    for _ in 0..3 {
        bench.remove_sandbox(&sandbox.id).await?;
    }
    bench.sandbox_is_gone(&sandbox.id).await
}

pub(super) async fn stops_at_once_all_succeed(bench: &mut Bench) -> Outcome {
    let (sandbox, id) = bench.start_pod(&Program::Forever).await?;
    let services = bench.services();
    let request = v1::StopContainerRequest {
        container_id: id.clone(),
        timeout: NO_GRACE,
    };
    let stops = join_all((0..CALLERS).map(|_| services.runtime.stop_container(request.clone())));
    for stopped in bench.answer("stops", stops).await? {
        stopped.during("one of several stops at once")?;
    }
    bench.exited(&id).await?;
    let request = v1::StopPodSandboxRequest {
        pod_sandbox_id: sandbox.id.clone(),
    };
    let stops = join_all((0..CALLERS).map(|_| services.runtime.stop_pod_sandbox(request.clone())));
    for stopped in bench.answer("stops", stops).await? {
        stopped.during("one of several stops of a sandbox at once")?;
    }
    bench.remove_sandbox(&sandbox.id).await?;
    bench.sandbox_is_gone(&sandbox.id).await
}
