//! Commands in running containers. Optional: `exec`.

use kubelet_cri::{Code, Error, v1};

use super::steps::NO_GRACE;
use crate::conformance::bench::Bench;
use crate::conformance::program::Program;
use crate::conformance::verdict::{Outcome, Seen, ensure};

/// Runs a command in a container; 0 seconds means no timeout.
async fn exec(
    bench: &Bench,
    id: &str,
    program: &Program,
    timeout: i64,
) -> Outcome<Result<v1::ExecSyncResponse, Error>> {
    let (services, workload) = (bench.services(), bench.workload(program));
    let cmd = [workload.command, workload.args].concat();
    let request = v1::ExecSyncRequest {
        container_id: id.to_owned(),
        cmd,
        timeout,
    };
    bench
        .answer("ExecSync", services.runtime.exec_sync(request))
        .await
}

pub(super) async fn output_and_exit_code_come_back(bench: &mut Bench) -> Outcome {
    let (_, id) = bench.start_pod(&Program::Forever).await?;
    let output = exec(bench, &id, &Program::Prints, 0).await??;
    let as_printed = output.stdout == b"one\ntwo\n" && output.stderr == b"three\n" && output.exit_code == 0;
    ensure!(as_printed, "a command that prints gave {output:?}");
    for code in [1, 3, 255] {
        let output = exec(bench, &id, &Program::Exits(code), 10).await??;
        ensure!(
            output.exit_code == code,
            "a command that exits with {code} gave {output:?}"
        );
    }
    Ok(())
}

pub(super) async fn a_command_needs_a_running_container(bench: &mut Bench) -> Outcome {
    let (_, ended, _) = bench.run_pod(&Program::Exits(0)).await?;
    for id in [&ended, "there-is-no-such-container"] {
        if let Ok(output) = exec(bench, id, &Program::Exits(0), 10).await? {
            return Err(Seen::new(format!(
                "a command in {id}, which does not run, gave {output:?}"
            )));
        }
    }
    Ok(())
}

pub(super) async fn a_command_that_takes_too_long_is_a_timeout(bench: &mut Bench) -> Outcome {
    let (_, id) = bench.start_pod(&Program::Forever).await?;
    match exec(bench, &id, &Program::Forever, 1).await? {
        Err(error) if error.code() == Code::DeadlineExceeded => {}
        other => {
            return Err(Seen::new(format!(
                "a command past its timeout gave {other:?}, not DeadlineExceeded"
            )));
        }
    }
    exec(bench, &id, &Program::Exits(0), 10).await??;
    Ok(())
}

pub(super) async fn a_command_ends_with_its_container(bench: &mut Bench) -> Outcome {
    let bench = &*bench;
    let (_, id) = bench.start_pod(&Program::Forever).await?;
    let end = async {
        // A command that was sent later has come back: the first one runs. containerd 1.7 may never end a container that is killed
        // while a command starts.
        exec(bench, &id, &Program::Exits(0), 10).await??;
        bench.stop_container(&id, NO_GRACE).await
    };
    let (answer, stopped) = futures::join!(exec(bench, &id, &Program::Forever, 0), end);
    stopped?;
    if let Ok(output) = answer? {
        ensure!(
            output.exit_code != 0,
            "its container was killed; the command gave {output:?}"
        );
    }
    Ok(())
}
