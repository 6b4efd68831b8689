//! Containers: arguments, output, ends, limits, stops.

use std::time::Duration;

use kubelet_cri::verbs::{ContainerRuntime as _, EnvVar, Logs as _, Mount, Stats as _};

use crate::{KIT, Stage, until};

const LONG: Duration = Duration::from_secs(600);

#[tokio::test]
async fn a_module_has_its_arguments_and_its_environment() {
    let stage = Stage::new().await;
    let mut spec = stage.spec(&["arguments", "two words"]);
    spec.env = vec![EnvVar { name: "COLOR".to_owned(), value: b"blue".to_vec() }];
    spec.pod.hostname = "web-1".to_owned();
    let exit = stage.run(&spec).await;
    assert_eq!((exit.code, exit.reason.as_str()), (0, "Completed"));
    let wanted = [KIT, "arguments", "two words", "HOSTNAME=web-1", "COLOR=blue"];
    assert_eq!(stage.log(), wanted.map(|line| format!("stdout F {line}")));
}

#[tokio::test]
async fn the_command_replaces_the_name_of_the_program() {
    let stage = Stage::new().await;
    let mut spec = stage.spec(&["3"]);
    spec.command = vec!["any".to_owned(), "exits".to_owned()];
    let exit = stage.run(&spec).await;
    assert_eq!((exit.code, exit.reason.as_str()), (3, "Error"));
}

#[tokio::test]
async fn a_trap_is_an_exit_code_and_a_message() {
    let stage = Stage::new().await;
    let exit = stage.run(&stage.spec(&["trap"])).await;
    assert_eq!((exit.code, exit.reason.as_str()), (134, "Error"));
    assert!(exit.message.contains("unreachable"), "{}", exit.message);
}

#[tokio::test]
async fn more_memory_than_the_limit_is_the_end() {
    let stage = Stage::new().await;
    let mut spec = stage.spec(&["grows"]);
    spec.limits.memory_bytes = Some(4 << 20);
    let exit = stage.run(&spec).await;
    assert_eq!((exit.code, exit.reason.as_str()), (137, "OOMKilled"));
    assert!(exit.message.contains("its limit is 4194304"), "{}", exit.message);
}

#[tokio::test]
async fn the_message_of_the_end_is_in_the_file_of_the_kubelet() {
    let stage = Stage::new().await;
    let message = stage.dir.path().join("message");
    std::fs::write(&message, "").unwrap();
    let mut spec = stage.spec(&["message"]);
    spec.mounts = vec![Mount::new(&message, "/dev/termination-log")];
    assert_eq!(stage.run(&spec).await.code, 4);
    assert_eq!(std::fs::read_to_string(&message).unwrap(), "it had enough");
    stage.wasm.remove(&spec.key).await.unwrap();
    assert!(message.exists());
}

#[tokio::test]
async fn a_read_only_root_has_folders_that_can_be_written() {
    let stage = Stage::new().await;
    let message = stage.dir.path().join("message");
    std::fs::write(&message, "").unwrap();
    let mut spec = stage.spec(&["writes", "3"]);
    spec.read_only_root = true;
    spec.mounts = vec![Mount::new(&message, "/dev/termination-log")];
    // The root is opened as 3, and the next one as 4.
    assert_eq!(stage.run(&spec).await.code, 1);
    spec.key.attempt = 1;
    spec.args = vec!["writes".to_owned(), "4".to_owned()];
    assert_eq!(stage.run(&spec).await.code, 0);
    assert_eq!(std::fs::read_to_string(&message).unwrap(), "it had enough");
}

#[tokio::test]
async fn a_stop_ends_a_busy_module_at_once() {
    let stage = Stage::new().await;
    let spec = stage.spec(&["busy"]);
    stage.wasm.start(&spec).await.unwrap();
    let is_busy = async || stage.wasm.usage(&spec.key).await.ok().filter(|usage| !usage.cpu.is_zero());
    until("CPU time", is_busy).await;
    stage.wasm.stop(&spec.key, LONG).await.unwrap();
    assert_eq!(stage.exit(&spec).await.code, 143);
}

#[tokio::test]
async fn a_module_that_reads_its_input_has_the_grace_period() {
    let stage = Stage::new().await;
    let mut spec = stage.spec(&["reads"]);
    spec.stdin = true;
    stage.wasm.start(&spec).await.unwrap();
    until("its first line", async || (!stage.log().is_empty()).then_some(())).await;
    stage.wasm.stop(&spec.key, LONG).await.unwrap();
    assert_eq!(stage.exit(&spec).await.code, 7);

    spec.key.attempt = 1;
    spec.args = vec!["busy".to_owned()];
    stage.wasm.start(&spec).await.unwrap();
    stage.wasm.stop(&spec.key, Duration::from_millis(1)).await.unwrap();
    assert_eq!(stage.exit(&spec).await.code, 137);
}

#[tokio::test]
async fn output_goes_to_the_new_file_after_a_rotation() {
    let stage = Stage::new().await;
    let spec = stage.spec(&["counts"]);
    stage.wasm.start(&spec).await.unwrap();
    let lines =
        async |at_least| until("lines", async || Some(stage.log()).filter(|log| log.len() >= at_least)).await;
    lines(2).await;
    std::fs::rename(stage.dir.path().join("log"), stage.dir.path().join("log.1")).unwrap();
    stage.wasm.reopen(&spec.key).await.unwrap();
    lines(1).await;
    stage.wasm.stop(&spec.key, Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn a_terminal_is_refused() {
    let stage = Stage::new().await;
    let mut spec = stage.spec(&["forever"]);
    spec.tty = true;
    let error = stage.wasm.start(&spec).await.unwrap_err();
    assert!(error.message.contains("no terminal"), "{error}");
    assert!(stage.wasm.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn nothing_runs_after_the_shutdown() {
    let stage = Stage::new().await;
    let spec = stage.spec(&["forever"]);
    stage.wasm.start(&spec).await.unwrap();
    stage.wasm.shutdown().await;
    assert_eq!(stage.exit(&spec).await.code, 137);
}
