//! Images. Optional: `images`.

use std::sync::Arc;

use kubelet_cri::verbs::{ContainerRuntime, Images};

use crate::conformance::bench::Bench;
use crate::conformance::program::Program;
use crate::conformance::verdict::{During, Outcome, Seen, ensure};

fn has(runtime: &Arc<dyn ContainerRuntime>) -> Outcome<&dyn Images> {
    runtime.images().ok_or_else(|| Seen::new("it has no images"))
}

pub(super) async fn an_image_at_hand_has_an_id(bench: &mut Bench) -> Outcome {
    let (runtime, image) = (bench.verbs()?, bench.workload(&Program::Forever).image);
    let status = bench
        .answer("status", has(&runtime)?.status(&image))
        .await?
        .during("status")?;
    let status = status.ok_or_else(|| {
        Seen::new(format!(
            "there is no {image:?}, which the fixture's workloads name"
        ))
    })?;
    ensure!(!status.id.is_empty(), "image {image:?} has no id: {status:?}");
    let by_id = bench
        .answer("status", has(&runtime)?.status(&status.id))
        .await?
        .during("status by id")?;
    let same = by_id.as_ref().is_some_and(|by_id| by_id.id == status.id);
    ensure!(
        same,
        "image {image:?} is {status:?}; asked for by its id: {by_id:?}"
    );
    Ok(())
}

pub(super) async fn what_is_listed_is_at_hand(bench: &mut Bench) -> Outcome {
    let runtime = bench.verbs()?;
    let list = bench
        .answer("list", has(&runtime)?.list())
        .await?
        .during("list")?;
    for listed in list {
        let status = bench
            .answer("status", has(&runtime)?.status(&listed.id))
            .await?
            .during("status")?;
        ensure!(
            status.is_some(),
            "the list has {listed:?}; asked for by its id there is none"
        );
    }
    Ok(())
}

pub(super) async fn a_pull_of_what_is_at_hand_is_a_success(bench: &mut Bench) -> Outcome {
    let (runtime, image) = (bench.verbs()?, bench.workload(&Program::Forever).image);
    let pulled = bench
        .answer("pull", has(&runtime)?.pull(&image))
        .await?
        .during("pull")?;
    ensure!(
        !pulled.id.is_empty(),
        "pulled, image {image:?} has no id: {pulled:?}"
    );
    Ok(())
}

pub(super) async fn removal_of_what_is_not_there_is_a_success(bench: &mut Bench) -> Outcome {
    let runtime = bench.verbs()?;
    let removed = has(&runtime)?.remove("localhost/there-is-no-such-image:1");
    bench.answer("remove", removed).await?.during("remove")
}
