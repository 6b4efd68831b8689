//! Logs of containers. Optional: `logs`.

use std::path::{Path, PathBuf};

use kubelet_cri::v1;

use super::steps::NO_GRACE;
use crate::conformance::bench::Bench;
use crate::conformance::log;
use crate::conformance::program::Program;
use crate::conformance::verdict::{During, Outcome, ensure};

/// A container that counts and has begun to.
async fn counting(bench: &Bench) -> Outcome<(String, PathBuf)> {
    let (sandbox, id) = bench.start_pod(&Program::Counts).await?;
    let path = bench.container_log(&sandbox)?;
    grows(bench, &id, &path).await?;
    Ok((id, path))
}

/// Waits for more lines, and lists containers meanwhile as a kubelet does.
async fn grows(bench: &Bench, id: &str, path: &Path) -> Outcome {
    let before = log::read(path)?.len();
    let what = format!("more lines in {}", path.display());
    let more = async || {
        bench.container_status(id).await?;
        Ok((log::read(path)?.len() > before).then_some(()))
    };
    bench.until(&what, more).await
}

async fn reopen(bench: &Bench, id: &str) -> Outcome {
    let services = bench.services();
    let request = v1::ReopenContainerLogRequest {
        container_id: id.to_owned(),
    };
    bench
        .answer(
            "ReopenContainerLog",
            services.runtime.reopen_container_log(request),
        )
        .await??;
    Ok(())
}

pub(super) async fn output_is_in_the_format_of_cri(bench: &mut Bench) -> Outcome {
    let (sandbox, id, status) = bench.run_pod(&Program::Prints).await?;
    let path = bench.container_log(&sandbox)?;
    ensure!(
        Path::new(&status.log_path) == path,
        "requested the log {}, it logs to {:?}",
        path.display(),
        status.log_path
    );
    let lines = bench.until("three lines in the log", async || {
        let lines = log::read(&path)?;
        Ok((lines.len() >= 3).then_some(lines))
    });
    log::is_what_prints_writes(&lines.await?)?;
    bench.remove_container(&id).await?;
    log::is_what_prints_writes(&log::read(&path)?).during("once the container was removed")
}

pub(super) async fn after_a_rotation_output_goes_to_the_new_file(bench: &mut Bench) -> Outcome {
    let (id, path) = counting(bench).await?;
    let rotated = path.with_extension("rotated");
    std::fs::rename(&path, &rotated).during("rotate the log")?;
    reopen(bench, &id).await?;
    grows(bench, &id, &path).await?;
    let old = log::read(&rotated)?.len();
    grows(bench, &id, &path).await?;
    let now = log::read(&rotated)?.len();
    ensure!(
        now == old,
        "reopened, {} lines more went to the file that was rotated away",
        now - old
    );
    Ok(())
}

pub(super) async fn a_rotation_loses_and_doubles_nothing(bench: &mut Bench) -> Outcome {
    let (id, path) = counting(bench).await?;
    let rotated = path.with_extension("rotated");
    std::fs::rename(&path, &rotated).during("rotate the log")?;
    grows(bench, &id, &rotated).await?;
    reopen(bench, &id).await?;
    grows(bench, &id, &path).await?;
    bench.stop_container(&id, NO_GRACE).await?;
    log::counts_on(&[&rotated, &path])
}

pub(super) async fn the_log_of_what_ended_is_not_reopened(bench: &mut Bench) -> Outcome {
    let (_, id, _) = bench.run_pod(&Program::Exits(0)).await?;
    ensure!(
        reopen(bench, &id).await.is_err(),
        "the log of a container that ended was reopened"
    );
    Ok(())
}
