//! Stop signals and grace periods. Optional: `signals`.

use super::steps::{LONG_GRACE, NO_GRACE};
use crate::conformance::SIGKILL_CODE;
use crate::conformance::bench::Bench;
use crate::conformance::program::Program;
use crate::conformance::verdict::{Outcome, ensure};

pub(super) async fn the_stop_signal_comes_first(bench: &mut Bench) -> Outcome {
    let key = bench.start_ready(&Program::Heeds(7)).await?;
    bench.stop(&key, LONG_GRACE).await?;
    let container = bench.inspect(&key).await?;
    ensure!(!container.is_running(), "stop returned, and it is {container:?}");
    let exit = bench.ended(&key).await?;
    ensure!(
        exit.code == 7,
        "a program that exits with 7 when asked to stop ended with {exit:?}"
    );
    Ok(())
}

pub(super) async fn who_ignores_it_is_killed_when_the_grace_is_over(bench: &mut Bench) -> Outcome {
    let key = bench.start_ready(&Program::Ignores).await?;
    bench.stop(&key, bench.pace()).await?;
    let exit = bench.ended(&key).await?;
    ensure!(
        exit.code == SIGKILL_CODE,
        "killed after its grace it ended with {exit:?}"
    );
    Ok(())
}

pub(super) async fn no_grace_is_a_kill_at_once(bench: &mut Bench) -> Outcome {
    for program in [Program::Heeds(7), Program::Ignores] {
        let key = bench.start_ready(&program).await?;
        bench.stop(&key, NO_GRACE).await?;
        let exit = bench.ended(&key).await?;
        ensure!(
            exit.code == SIGKILL_CODE,
            "{program:?}, stopped without grace, ended with {exit:?}"
        );
    }
    Ok(())
}

pub(super) async fn a_second_stop_with_a_shorter_grace_is_heeded(bench: &mut Bench) -> Outcome {
    let key = bench.start_ready(&Program::Ignores).await?;
    let second = async {
        // The first stop is in progress.
        tokio::task::yield_now().await;
        bench.stop(&key, bench.pace()).await
    };
    let (first, second) = futures::join!(bench.stop(&key, LONG_GRACE), second);
    second?;
    first
}

pub(super) async fn a_stop_that_waits_holds_up_no_other(bench: &mut Bench) -> Outcome {
    let stubborn = bench.start_ready(&Program::Ignores).await?;
    let others = async {
        tokio::task::yield_now().await;
        let other = bench.start(&Program::Forever).await?;
        bench.stop(&other, NO_GRACE).await?;
        bench.remove(&other).await?;
        let waiting = bench.runs_once(&stubborn).await;
        bench.stop(&stubborn, NO_GRACE).await?;
        waiting
    };
    let (first, others) = futures::join!(bench.stop(&stubborn, LONG_GRACE), others);
    others?;
    first
}
