//! Capabilities beyond the five verbs.

use kubelet_cri::{Code, v1};

use crate::conformance::bench::Bench;
use crate::conformance::verdict::{Outcome, Seen, ensure};

pub(super) async fn the_runtime_offers_what_it_is_said_to(bench: &mut Bench) -> Outcome {
    let runtime = bench.verbs()?;
    for (name, offered) in [
        ("exec", runtime.exec().is_some()),
        ("logs", runtime.logs().is_some()),
        ("stats", runtime.stats().is_some()),
        ("images", runtime.images().is_some()),
        ("events", runtime.events().is_some()),
        ("pods", runtime.pods().is_some()),
    ] {
        let said = bench.offers(name);
        ensure!(
            said == offered,
            "capability `{name}`: in `offers` of the test: {said}; reported by the runtime: {offered}"
        );
    }
    Ok(())
}

pub(super) async fn what_it_does_not_offer_is_refused_by_name(bench: &mut Bench) -> Outcome {
    let services = bench.services();
    let runtime = &services.runtime;
    let mut answers = Vec::new();
    if !bench.offers("exec") {
        answers.push((
            "exec",
            runtime.exec_sync(v1::ExecSyncRequest::default()).await.map(drop),
        ));
    }
    if !bench.offers("logs") {
        let request = v1::ReopenContainerLogRequest::default();
        answers.push(("logs", runtime.reopen_container_log(request).await.map(drop)));
    }
    if !bench.offers("stats") {
        let request = v1::ListContainerStatsRequest::default();
        answers.push(("stats", runtime.list_container_stats(request).await.map(drop)));
    }
    if !bench.offers("events") {
        let request = v1::GetEventsRequest::default();
        answers.push(("events", runtime.get_container_events(request).await.map(drop)));
    }
    for (name, answer) in answers {
        match answer {
            Err(error) if error.code() == Code::Unimplemented && error.message().contains(name) => {}
            other => {
                return Err(Seen::new(format!(
                    "without `{name}`, the call that needs it gave {other:?}"
                )));
            }
        }
    }
    Ok(())
}
