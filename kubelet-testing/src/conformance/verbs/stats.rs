//! Resource usage of containers. Optional: `stats`.

use kubelet_cri::verbs::{ContainerKey, ErrorClass, RuntimeError, Usage};

use crate::conformance::bench::Bench;
use crate::conformance::program::Program;
use crate::conformance::verdict::{During, Outcome, Seen, ensure};

async fn usage(bench: &Bench, key: &ContainerKey) -> Outcome<Result<Usage, RuntimeError>> {
    let runtime = bench.verbs()?;
    let stats = runtime.stats().ok_or_else(|| Seen::new("it has no stats"))?;
    bench.answer("usage", stats.usage(key)).await
}

pub(super) async fn a_running_container_is_measured(bench: &mut Bench) -> Outcome {
    let key = bench.start(&Program::Forever).await?;
    let first = usage(bench, &key).await?.during("usage")?;
    let second = usage(bench, &key).await?.during("usage")?;
    ensure!(
        first.at <= second.at,
        "measured at {}, then at {}",
        first.at,
        second.at
    );
    ensure!(
        first.cpu <= second.cpu,
        "CPU time went from {:?} back to {:?}",
        first.cpu,
        second.cpu
    );
    Ok(())
}

pub(super) async fn of_an_unknown_container_there_is_nothing_to_measure(bench: &mut Bench) -> Outcome {
    match usage(bench, &bench.key("main")).await? {
        Err(error) if error.class == ErrorClass::Gone => Ok(()),
        other => Err(Seen::new(format!("it gave {other:?}, not Gone"))),
    }
}
