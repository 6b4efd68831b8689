//! How containers end.

use kubelet_cri::v1::ContainerState;

use super::steps::NO_GRACE;
use crate::conformance::bench::Bench;
use crate::conformance::program::Program;
use crate::conformance::verdict::{Outcome, ensure};

pub(super) async fn exit_codes_are_the_programs_own(bench: &mut Bench) -> Outcome {
    let sandbox = bench.sandbox().await?;
    for (attempt, code) in [0, 1, 3, 127, 255].into_iter().enumerate() {
        let attempt = u32::try_from(attempt)?;
        let id = bench
            .create_as(&sandbox, "main", attempt, &Program::Exits(code))
            .await?;
        bench.start_container(&id).await?;
        let status = bench.exited(&id).await?;
        ensure!(
            status.exit_code == code,
            "a program that exits with {code} ended as {status:?}"
        );
    }
    Ok(())
}

pub(super) async fn an_end_has_a_reason(bench: &mut Bench) -> Outcome {
    for code in [0, 1] {
        let (_, _, status) = bench.run_pod(&Program::Exits(code)).await?;
        let one_word = !status.reason.is_empty() && !status.reason.contains(char::is_whitespace);
        ensure!(
            one_word,
            "ended with code {code}, its reason is {:?}",
            status.reason
        );
    }
    Ok(())
}

pub(super) async fn a_stop_returns_once_it_ended(bench: &mut Bench) -> Outcome {
    let (_, id) = bench.start_pod(&Program::Forever).await?;
    bench.stop_container(&id, NO_GRACE).await?;
    let status = bench.container_is(&id, ContainerState::ContainerExited).await?;
    ensure!(
        status.started_at <= status.finished_at,
        "its times are out of order: {status:?}"
    );
    Ok(())
}
