//! Missing capabilities.

use kubelet_cri::v1;

use crate::conformance::bench::Bench;
use crate::conformance::program::Program;
use crate::conformance::verdict::{Outcome, Seen};

pub(super) async fn what_it_does_not_offer_is_refused_as_unimplemented(bench: &mut Bench) -> Outcome {
    let (_, id) = bench.start_pod(&Program::Forever).await?;
    let services = bench.services();
    let runtime = &services.runtime;
    let mut answers = Vec::new();
    if !bench.offers("exec") {
        let request = v1::ExecSyncRequest {
            container_id: id.clone(),
            cmd: vec!["true".to_owned()],
            timeout: 0,
        };
        answers.push(("ExecSync", runtime.exec_sync(request).await.map(drop)));
    }
    if !bench.offers("logs") {
        let request = v1::ReopenContainerLogRequest {
            container_id: id.clone(),
        };
        answers.push((
            "ReopenContainerLog",
            runtime.reopen_container_log(request).await.map(drop),
        ));
    }
    if !bench.offers("stats") {
        let request = v1::ContainerStatsRequest {
            container_id: id.clone(),
        };
        answers.push(("ContainerStats", runtime.container_stats(request).await.map(drop)));
    }
    if !bench.offers("events") {
        // The error may be the stream's first item.
        let answer = match runtime.get_container_events(v1::GetEventsRequest {}).await {
            Ok(mut events) => {
                let first = futures::StreamExt::next(&mut events);
                bench
                    .answer("GetContainerEvents", first)
                    .await?
                    .unwrap_or(Ok(Default::default()))
                    .map(drop)
            }
            Err(error) => Err(error),
        };
        answers.push(("GetContainerEvents", answer));
    }
    for (call, answer) in answers {
        match answer {
            Err(error) if error.is_unimplemented() => {}
            other => {
                return Err(Seen::new(format!(
                    "{call}, which it does not offer, gave {other:?}"
                )));
            }
        }
    }
    Ok(())
}
