//! How containers end.

use super::steps::NO_GRACE;
use crate::conformance::bench::Bench;
use crate::conformance::program::Program;
use crate::conformance::verdict::{Outcome, ensure};

pub(super) async fn exit_codes_are_the_programs_own(bench: &mut Bench) -> Outcome {
    for code in [0, 1, 3, 127, 255] {
        let (_, exit) = bench.run(&Program::Exits(code)).await?;
        ensure!(
            exit.code == code,
            "a program that exits with {code} ended with {exit:?}"
        );
    }
    Ok(())
}

pub(super) async fn an_end_has_a_reason(bench: &mut Bench) -> Outcome {
    for code in [0, 1] {
        let (_, exit) = bench.run(&Program::Exits(code)).await?;
        let one_word = !exit.reason.is_empty() && !exit.reason.contains(char::is_whitespace);
        ensure!(
            one_word,
            "ended with code {code}, its reason is {:?}",
            exit.reason
        );
    }
    Ok(())
}

pub(super) async fn stop_returns_once_it_ended(bench: &mut Bench) -> Outcome {
    let key = bench.start(&Program::Forever).await?;
    bench.stop(&key, NO_GRACE).await?;
    let container = bench.inspect(&key).await?;
    ensure!(!container.is_running(), "stop returned, and it is {container:?}");
    Ok(())
}
