//! Events of containers. Optional: `events`.

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

/// Waits for this event. Other events may come before.
async fn wait_for(bench: &Bench, events: &mut Stream, id: &str, wanted: ContainerEventType) -> Outcome {
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

pub(super) async fn start_end_and_removal_are_events(bench: &mut Bench) -> Outcome {
    let mut events = watch(bench).await?;
    let (_, id) = bench.start_pod(&Program::Forever).await?;
    wait_for(bench, &mut events, &id, ContainerEventType::ContainerStartedEvent).await?;
    bench.stop_container(&id, NO_GRACE).await?;
    wait_for(bench, &mut events, &id, ContainerEventType::ContainerStoppedEvent).await?;
    bench.remove_container(&id).await?;
    wait_for(bench, &mut events, &id, ContainerEventType::ContainerDeletedEvent).await
}

pub(super) async fn an_end_by_itself_is_an_event(bench: &mut Bench) -> Outcome {
    let mut events = watch(bench).await?;
    let (_, id) = bench.start_pod(&Program::Exits(3)).await?;
    wait_for(bench, &mut events, &id, ContainerEventType::ContainerStoppedEvent).await?;
    // After the event, the list shows the end at once.
    let status = bench.container_status(&id).await?;
    if status.state() == v1::ContainerState::ContainerExited {
        return Ok(());
    }
    Err(Seen::new(format!("after the event of its end it is {status:?}")))
}
