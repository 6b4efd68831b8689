//! Calls that their caller drops, as at a deadline.

use kubelet_cri::verbs::ContainerKey;

use super::steps::{LONG_GRACE, NO_GRACE};
use crate::conformance::bench::Bench;
use crate::conformance::cut_short::cut_short;
use crate::conformance::program::Program;
use crate::conformance::verdict::{During, Outcome, ensure};

/// The maximum number of awaits at which a call is dropped.
const AWAITS: u32 = 12;

/// Drops a start at each of its awaits in turn; the last start completes.
async fn starts_cut_short(bench: &Bench) -> Outcome<Vec<ContainerKey>> {
    let (runtime, mut keys) = (bench.verbs()?, Vec::new());
    for polls in 1..=AWAITS {
        let key = bench.key("main");
        let spec = bench.spec(&key, &Program::Forever).await?;
        keys.push(key);
        if let Some(answer) = bench
            .answer("start", cut_short(runtime.start(&spec), polls))
            .await?
        {
            answer.during("start")?;
            break;
        }
    }
    Ok(keys)
}

pub(super) async fn a_start_cut_short_can_be_tried_again(bench: &mut Bench) -> Outcome {
    for key in starts_cut_short(bench).await? {
        let started = bench
            .start_as(&key, &Program::Forever)
            .await
            .during("started again")?;
        ensure!(started.is_running(), "started again it is {started:?}");
        let listed = bench.runs_once(&key).await.during("started again")?;
        ensure!(
            listed.state == started.state,
            "start gave {started:?}, the list {listed:?}"
        );
        bench.stop(&key, NO_GRACE).await?;
        let listed = bench.listed(&key).await?;
        let runs = listed.as_ref().is_some_and(|container| container.is_running());
        ensure!(!runs, "stopped, one still runs: {listed:?}");
    }
    Ok(())
}

pub(super) async fn a_start_cut_short_can_be_cleaned_up(bench: &mut Bench) -> Outcome {
    let keys = starts_cut_short(bench).await?;
    for key in &keys {
        bench.stop(key, NO_GRACE).await?;
        bench.remove(key).await?;
    }
    // Another start, which completes. By then everything from before is done.
    let (other, _) = bench.run(&Program::Exits(0)).await?;
    bench.remove(&other).await?;
    for key in &keys {
        bench
            .is_gone(key)
            .await
            .during("stopped and removed after a start that was cut short")?;
    }
    Ok(())
}

pub(super) async fn a_stop_cut_short_can_be_tried_again(bench: &mut Bench) -> Outcome {
    for polls in 1..=AWAITS {
        let (runtime, key) = (bench.verbs()?, bench.start(&Program::Forever).await?);
        let stop = cut_short(runtime.stop(&key, NO_GRACE), polls);
        let answer = bench.answer("stop", stop).await?;
        // Running or ended, but in the list.
        let listed = bench.listed(&key).await?;
        ensure!(listed.is_some(), "an interrupted stop made it disappear");
        bench.stop(&key, NO_GRACE).await?;
        let container = bench.inspect(&key).await?;
        ensure!(!container.is_running(), "stopped again it is {container:?}");
        if answer.is_some() {
            break;
        }
    }
    Ok(())
}

pub(super) async fn a_removal_cut_short_can_be_tried_again(bench: &mut Bench) -> Outcome {
    for polls in 1..=AWAITS {
        let (runtime, (key, exit)) = (bench.verbs()?, bench.run(&Program::Exits(3)).await?);
        let removal = cut_short(runtime.remove(&key), polls);
        let answer = bench.answer("remove", removal).await?;
        // Removed or unchanged.
        if let Some(left) = bench.listed(&key).await? {
            ensure!(
                left.exit() == Some(&exit),
                "an interrupted removal changed {exit:?} to {left:?}"
            );
        }
        bench.remove(&key).await?;
        bench.is_gone(&key).await?;
        if answer.is_some() {
            break;
        }
    }
    Ok(())
}

pub(super) async fn a_look_cut_short_changes_nothing(bench: &mut Bench) -> Outcome {
    let (runtime, key) = (bench.verbs()?, bench.start(&Program::Forever).await?);
    let before = bench.runs_once(&key).await?;
    for polls in 1..=AWAITS {
        let look = async { futures::join!(runtime.list(), runtime.inspect(&key)) };
        let answer = bench.answer("list and inspect", cut_short(look, polls)).await?;
        if answer.is_some() {
            break;
        }
    }
    let after = bench.runs_once(&key).await?;
    ensure!(before.state == after.state, "it was {before:?}, and is {after:?}");
    bench.stop(&key, LONG_GRACE).await
}
