//! Events when containers end. Optional: `events`.

use futures::StreamExt;
use kubelet_cri::verbs::ContainerKey;

use super::steps::NO_GRACE;
use crate::conformance::bench::Bench;
use crate::conformance::program::Program;
use crate::conformance::verdict::{Outcome, Seen, ensure};

/// Waits for the event of this container's end. Other hints may come before.
async fn wait_for_end(
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

pub(super) async fn an_end_is_an_event(bench: &mut Bench) -> Outcome {
    let runtime = bench.verbs()?;
    let events = runtime.events().ok_or_else(|| Seen::new("it has no events"))?;
    let mut hints = events.watch();
    let exits = bench.start(&Program::Exits(3)).await?;
    wait_for_end(bench, &mut hints, &exits).await?;
    // After the event, the list shows the end at once.
    let container = bench.inspect(&exits).await?;
    ensure!(
        !container.is_running(),
        "after the event of its end it is {container:?}"
    );
    let stopped = bench.start(&Program::Forever).await?;
    bench.stop(&stopped, NO_GRACE).await?;
    wait_for_end(bench, &mut hints, &stopped).await
}

pub(super) async fn all_watchers_get_events(bench: &mut Bench) -> Outcome {
    let runtime = bench.verbs()?;
    let events = runtime.events().ok_or_else(|| Seen::new("it has no events"))?;
    let (mut one, mut other, dropped) = (events.watch(), events.watch(), events.watch());
    drop(dropped);
    let key = bench.start(&Program::Exits(0)).await?;
    wait_for_end(bench, &mut one, &key).await?;
    wait_for_end(bench, &mut other, &key).await
}
