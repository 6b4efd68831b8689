//! Resource usage of containers. Optional: `stats`.

use kubelet_cri::v1;

use crate::conformance::bench::Bench;
use crate::conformance::program::Program;
use crate::conformance::verdict::{Outcome, Seen, ensure};

pub(super) async fn a_running_container_is_measured(bench: &mut Bench) -> Outcome {
    let (_, id) = bench.start_pod(&Program::Forever).await?;
    let services = bench.services();
    let measure = async || {
        let request = v1::ContainerStatsRequest {
            container_id: id.clone(),
        };
        let stats = bench
            .answer("ContainerStats", services.runtime.container_stats(request))
            .await??
            .stats;
        let stats = stats.ok_or_else(|| Seen::new("ContainerStats gave no stats"))?;
        let of = stats.attributes.as_ref().map_or("", |attributes| &attributes.id);
        ensure!(of == id, "the stats of {id} belong to {of:?}");
        let cpu = stats.cpu.ok_or_else(|| Seen::new("the stats have no CPU"))?;
        let used = cpu.usage_core_nano_seconds.map_or(0, |used| used.value);
        Outcome::Ok((cpu.timestamp, used))
    };
    let (first, second) = (measure().await?, measure().await?);
    ensure!(
        first.0 > 0 && first.0 <= second.0,
        "measured at {}, then at {}",
        first.0,
        second.0
    );
    ensure!(
        first.1 <= second.1,
        "CPU time went from {} back to {}",
        first.1,
        second.1
    );
    Ok(())
}

pub(super) async fn the_list_has_all_that_runs_once(bench: &mut Bench) -> Outcome {
    let (_, one) = bench.start_pod(&Program::Forever).await?;
    let (_, other) = bench.start_pod(&Program::Forever).await?;
    let services = bench.services();
    let list = services
        .runtime
        .list_container_stats(v1::ListContainerStatsRequest::default());
    let list = bench.answer("ListContainerStats", list).await??.stats;
    let ids = list
        .iter()
        .filter_map(|stats| Some(stats.attributes.as_ref()?.id.clone()));
    let mut ids: Vec<_> = ids.collect();
    let mut expected = vec![one, other];
    ids.sort();
    expected.sort();
    ensure!(ids == expected, "{expected:?} run; there are stats of {ids:?}");
    Ok(())
}
