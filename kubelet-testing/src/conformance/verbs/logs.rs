//! Logs of containers. Optional: `logs`.

use std::path::PathBuf;

use kubelet_cri::verbs::ContainerKey;

use super::steps::NO_GRACE;
use crate::conformance::bench::Bench;
use crate::conformance::log;
use crate::conformance::program::Program;
use crate::conformance::verdict::{During, Outcome, Seen, ensure};

fn path(bench: &Bench, key: &ContainerKey) -> Outcome<PathBuf> {
    bench.log_path(key.pod.as_str(), &key.container, key.attempt)
}

/// A container that counts and has begun to.
async fn counting(bench: &Bench) -> Outcome<(ContainerKey, PathBuf)> {
    let key = bench.start(&Program::Counts).await?;
    let path = path(bench, &key)?;
    grows(bench, &path).await?;
    Ok((key, path))
}

async fn grows(bench: &Bench, path: &std::path::Path) -> Outcome {
    let before = log::read(path)?.len();
    let what = format!("more lines in {}", path.display());
    bench
        .until(
            &what,
            async || Ok((log::read(path)?.len() > before).then_some(())),
        )
        .await
}

pub(super) async fn output_is_in_the_format_of_cri(bench: &mut Bench) -> Outcome {
    let (key, _) = bench.run(&Program::Prints).await?;
    let path = path(bench, &key)?;
    // It may end before its last line is in the file.
    let lines = bench.until("three lines in the log", async || {
        let lines = log::read(&path)?;
        Ok((lines.len() >= 3).then_some(lines))
    });
    log::is_what_prints_writes(&lines.await?)
}

pub(super) async fn what_is_started_twice_writes_once(bench: &mut Bench) -> Outcome {
    let (key, _) = bench.run(&Program::Prints).await?;
    bench.start_as(&key, &Program::Prints).await?;
    let (other, _) = bench.run(&Program::Prints).await?;
    for key in [key, other] {
        let path = path(bench, &key)?;
        bench
            .until("three lines in the log", async || {
                Ok((log::read(&path)?.len() >= 3).then_some(()))
            })
            .await?;
        log::is_what_prints_writes(&log::read(&path)?)?;
    }
    Ok(())
}

pub(super) async fn the_log_outlives_the_container(bench: &mut Bench) -> Outcome {
    let (key, path) = counting(bench).await?;
    bench.stop(&key, NO_GRACE).await?;
    bench.remove(&key).await?;
    let lines = log::read(&path)?;
    ensure!(
        !lines.is_empty(),
        "after the removal of the container its log {} is empty",
        path.display()
    );
    Ok(())
}

pub(super) async fn after_a_rotation_output_goes_to_the_new_file(bench: &mut Bench) -> Outcome {
    let (key, path) = counting(bench).await?;
    let rotated = path.with_extension("rotated");
    std::fs::rename(&path, &rotated).during("rotate the log")?;
    reopen(bench, &key).await?;
    ensure!(path.exists(), "reopened, there is no {}", path.display());
    let old = log::read(&rotated)?.len();
    grows(bench, &path).await?;
    let now = log::read(&rotated)?.len();
    ensure!(
        now == old,
        "reopened, {} lines more went to the file that was rotated away",
        now - old
    );
    Ok(())
}

pub(super) async fn a_rotation_loses_and_doubles_nothing(bench: &mut Bench) -> Outcome {
    let (key, path) = counting(bench).await?;
    let rotated = path.with_extension("rotated");
    std::fs::rename(&path, &rotated).during("rotate the log")?;
    grows(bench, &rotated).await?;
    reopen(bench, &key).await?;
    grows(bench, &path).await?;
    bench.stop(&key, NO_GRACE).await?;
    log::counts_on(&[&rotated, &path])
}

pub(super) async fn an_unrotated_log_stays_whole_when_reopened(bench: &mut Bench) -> Outcome {
    let (key, path) = counting(bench).await?;
    reopen(bench, &key).await?;
    grows(bench, &path).await?;
    bench.stop(&key, NO_GRACE).await?;
    log::counts_on(&[&path])
}

async fn reopen(bench: &Bench, key: &ContainerKey) -> Outcome {
    let runtime = bench.verbs()?;
    let logs = runtime.logs().ok_or_else(|| Seen::new("it has no logs"))?;
    bench.answer("reopen", logs.reopen(key)).await?.during("reopen")
}
