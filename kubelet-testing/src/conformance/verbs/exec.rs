//! Commands in running containers. Optional: `exec`.

use kubelet_cri::verbs::{ContainerKey, ExecOutput};

use super::steps::NO_GRACE;
use crate::conformance::bench::Bench;
use crate::conformance::cut_short::cut_short;
use crate::conformance::program::Program;
use crate::conformance::verdict::{During, Outcome, Seen, ensure};

/// Runs a command in a container.
async fn exec(bench: &Bench, key: &ContainerKey, program: &Program) -> Outcome<ExecOutput> {
    let (runtime, command) = (bench.verbs()?, command(bench, program));
    let exec = runtime.exec().ok_or_else(|| Seen::new("it has no exec"))?;
    bench
        .answer("exec_sync", exec.exec_sync(key, &command))
        .await?
        .during("exec_sync")
}

fn command(bench: &Bench, program: &Program) -> Vec<String> {
    let workload = bench.workload(program);
    [workload.command, workload.args].concat()
}

pub(super) async fn output_and_exit_code_come_back(bench: &mut Bench) -> Outcome {
    let key = bench.start(&Program::Forever).await?;
    let output = exec(bench, &key, &Program::Prints).await?;
    let expected = ExecOutput {
        stdout: b"one\ntwo\n".to_vec(),
        stderr: b"three\n".to_vec(),
        exit_code: 0,
    };
    ensure!(output == expected, "a command that prints gave {output:?}");
    Ok(())
}

pub(super) async fn a_command_that_fails_is_no_error_of_the_call(bench: &mut Bench) -> Outcome {
    let key = bench.start(&Program::Forever).await?;
    for code in [1, 3, 255] {
        let output = exec(bench, &key, &Program::Exits(code)).await?;
        ensure!(
            output.exit_code == code,
            "a command that exits with {code} gave {output:?}"
        );
    }
    bench.runs_once(&key).await?;
    Ok(())
}

pub(super) async fn a_command_needs_a_running_container(bench: &mut Bench) -> Outcome {
    let (ended, _) = bench.run(&Program::Exits(0)).await?;
    for key in [ended, bench.key("main")] {
        if let Ok(output) = exec(bench, &key, &Program::Exits(0)).await {
            return Err(Seen::new(format!(
                "a command in {key}, which does not run, gave {output:?}"
            )));
        }
    }
    Ok(())
}

pub(super) async fn a_command_cut_short_leaves_the_container_alone(bench: &mut Bench) -> Outcome {
    let key = bench.start(&Program::Forever).await?;
    let before = bench.runs_once(&key).await?;
    let (runtime, forever) = (bench.verbs()?, command(bench, &Program::Forever));
    let exec_of = runtime.exec().ok_or_else(|| Seen::new("it has no exec"))?;
    for polls in 1..=3 {
        // A command that is not woken meanwhile is interrupted as well.
        let call = cut_short(exec_of.exec_sync(&key, &forever), polls);
        if let Ok(Some(output)) = tokio::time::timeout(bench.pace(), call).await {
            return Err(Seen::new(format!(
                "a command that runs for ever ended: {output:?}"
            )));
        }
    }
    exec(bench, &key, &Program::Exits(0)).await?;
    let after = bench.runs_once(&key).await?;
    ensure!(before.state == after.state, "it was {before:?}, and is {after:?}");
    Ok(())
}

pub(super) async fn a_command_ends_with_its_container(bench: &mut Bench) -> Outcome {
    let key = bench.start(&Program::Forever).await?;
    let (runtime, forever) = (bench.verbs()?, command(bench, &Program::Forever));
    let exec_of = runtime.exec().ok_or_else(|| Seen::new("it has no exec"))?;
    let end = async {
        tokio::task::yield_now().await;
        bench.stop(&key, NO_GRACE).await
    };
    let (answer, stopped) = futures::join!(bench.answer("exec_sync", exec_of.exec_sync(&key, &forever)), end);
    stopped?;
    // An error, or the result of the kill.
    if let Ok(output) = answer? {
        ensure!(
            output.exit_code != 0,
            "its container was killed; the command gave {output:?}"
        );
    }
    Ok(())
}
