//! The runtime says by itself what becomes of containers. Optional: `events`.

use futures::StreamExt;
use futures::stream::BoxStream;
use kubelet_cri::v1;
use kubelet_cri::v1::ContainerEventType;

use super::steps::NO_GRACE;
use crate::conformance::bench::Bench;
use crate::conformance::program::Program;
use crate::conformance::verdict::{Outcome, Seen};

type Stream = BoxStream<'static, Result<v1::ContainerEventResponse, kubelet_cri::Error>>;

async fn watch(bench: &Bench) -> Outcome<Stream> {
    let services = bench.services();
    Ok(bench
        .answer(
            "GetContainerEvents",
            services.runtime.get_container_events(v1::GetEventsRequest {}),
        )
        .await??)
}

/// Waits for this event. Others may come before; none is wrong.
async fn told(bench: &Bench, events: &mut Stream, id: &str, wanted: ContainerEventType) -> Outcome {
    let what = format!("the event {wanted:?} of container {id}");
    loop {
        match bench.answer(&what, events.next()).await? {
            Some(event) => {
                let event = event?;
                if event.container_id == id && event.container_event_type() == wanted {
                    return Ok(());
                }
            }
            None => return Err(Seen::new(format!("the events ended before {what}"))),
        }
    }
}

pub(super) async fn start_end_and_removal_are_told(bench: &mut Bench) -> Outcome {
    let mut events = watch(bench).await?;
    let (_, id) = bench.start_pod(&Program::Forever).await?;
    told(bench, &mut events, &id, ContainerEventType::ContainerStartedEvent).await?;
    bench.stop_container(&id, NO_GRACE).await?;
    told(bench, &mut events, &id, ContainerEventType::ContainerStoppedEvent).await?;
    bench.remove_container(&id).await?;
    told(bench, &mut events, &id, ContainerEventType::ContainerDeletedEvent).await
}

pub(super) async fn an_end_by_itself_is_told(bench: &mut Bench) -> Outcome {
    let mut events = watch(bench).await?;
    let (_, id) = bench.start_pod(&Program::Exits(3)).await?;
    told(bench, &mut events, &id, ContainerEventType::ContainerStoppedEvent).await?;
    // Whoever looks then sees the end, not a while later.
    let status = bench.container_status(&id).await?;
    if status.state() == v1::ContainerState::ContainerExited {
        return Ok(());
    }
    Err(Seen::new(format!("its end was told, and it is {status:?}")))
}
