//! The runtime says by itself that a container ended. Optional: `events`.

use futures::StreamExt;
use kubelet_cri::verbs::ContainerKey;

use super::steps::NO_GRACE;
use crate::conformance::bench::Bench;
use crate::conformance::program::Program;
use crate::conformance::verdict::{Outcome, Seen, ensure};

/// Waits until the end of this container is told. Other hints may come before; none is wrong.
async fn told(
    bench: &Bench,
    hints: &mut (impl futures::Stream<Item = ContainerKey> + Unpin),
    key: &ContainerKey,
) -> Outcome {
    loop {
        match bench
            .answer(&format!("a hint of the end of {key}"), hints.next())
            .await?
        {
            Some(told) if told == *key => return Ok(()),
            Some(_) => {}
            None => return Err(Seen::new(format!("the hints ended before one of {key}"))),
        }
    }
}

pub(super) async fn an_end_is_told(bench: &mut Bench) -> Outcome {
    let runtime = bench.verbs()?;
    let events = runtime.events().ok_or_else(|| Seen::new("it has no events"))?;
    let mut hints = events.watch();
    let exits = bench.start(&Program::Exits(3)).await?;
    told(bench, &mut hints, &exits).await?;
    // Whoever looks then sees the end, not a while later.
    let container = bench.inspect(&exits).await?;
    ensure!(
        !container.is_running(),
        "its end was told, and it is {container:?}"
    );
    let stopped = bench.start(&Program::Forever).await?;
    bench.stop(&stopped, NO_GRACE).await?;
    told(bench, &mut hints, &stopped).await
}

pub(super) async fn all_who_watch_are_told(bench: &mut Bench) -> Outcome {
    let runtime = bench.verbs()?;
    let events = runtime.events().ok_or_else(|| Seen::new("it has no events"))?;
    let (mut one, mut other, dropped) = (events.watch(), events.watch(), events.watch());
    drop(dropped);
    let key = bench.start(&Program::Exits(0)).await?;
    told(bench, &mut one, &key).await?;
    told(bench, &mut other, &key).await
}
