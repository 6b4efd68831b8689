//! Concurrent calls.

use futures::future::try_join_all;
use kubelet_cri::verbs::ContainerKey;

use super::steps::NO_GRACE;
use crate::conformance::bench::Bench;
use crate::conformance::program::Program;
use crate::conformance::verdict::{Outcome, ensure};

/// The number of concurrent pods.
const PODS: i32 = 8;

pub(super) async fn containers_of_the_same_name_in_two_pods_are_two(bench: &mut Bench) -> Outcome {
    let (one, other) = (
        bench.start(&Program::Forever).await?,
        bench.start(&Program::Forever).await?,
    );
    bench.stop(&one, NO_GRACE).await?;
    bench.runs_once(&other).await?;
    bench.remove(&one).await?;
    bench.is_gone(&one).await?;
    bench.runs_once(&other).await?;
    Ok(())
}

pub(super) async fn containers_of_one_pod_are_apart(bench: &mut Bench) -> Outcome {
    let main = bench.key("main");
    let side = ContainerKey {
        container: "side".to_owned(),
        ..main.clone()
    };
    bench.start_as(&main, &Program::Forever).await?;
    bench.start_as(&side, &Program::Exits(3)).await?;
    let exit = bench.ended(&side).await?;
    ensure!(exit.code == 3, "it ended with {exit:?}");
    bench.runs_once(&main).await?;
    bench.remove(&side).await?;
    bench.runs_once(&main).await?;
    Ok(())
}

pub(super) async fn pods_live_and_die_side_by_side(bench: &mut Bench) -> Outcome {
    let bench = &*bench;
    let pod = async |code: i32| {
        let (ended, exit) = bench.run(&Program::Exits(code)).await?;
        ensure!(
            exit.code == code,
            "a program that exits with {code} ended with {exit:?}"
        );
        let next = ContainerKey {
            attempt: 1,
            ..ended.clone()
        };
        bench.start_as(&next, &Program::Forever).await?;
        bench.runs_once(&next).await?;
        bench.stop(&next, NO_GRACE).await?;
        for key in [ended, next] {
            bench.remove(&key).await?;
            bench.is_gone(&key).await?;
        }
        Ok(())
    };
    try_join_all((0..PODS).map(pod)).await?;
    Ok(())
}

pub(super) async fn reads_and_changes_do_not_interfere(bench: &mut Bench) -> Outcome {
    let bench = &*bench;
    let (runtime, key) = (bench.verbs()?, bench.key("main"));
    let spec = bench.spec(&key, &Program::Forever).await?;
    let looks = async || {
        for _ in 0..20 {
            bench.listed(&key).await?;
            tokio::task::yield_now().await;
        }
        Outcome::Ok(())
    };
    let start = async { Ok(bench.answer("start", runtime.start(&spec)).await??) };
    let (started, looked) = futures::join!(start, looks());
    (started.map(drop)).and(looked)?;
    let (stopped, looked) = futures::join!(bench.stop(&key, NO_GRACE), looks());
    stopped.and(looked)?;
    let (removed, looked) = futures::join!(bench.remove(&key), looks());
    removed.and(looked)?;
    bench.is_gone(&key).await
}
