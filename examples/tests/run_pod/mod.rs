//! The example `run-pod`, with processes and with containerd: its output, its exit code, and that it leaves nothing.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use kubelet_testing::Containerd;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::program::program;

/// Longer than anything here takes; only a failing test gets there.
const GUARD: Duration = Duration::from_secs(120);

/// One container and one that prepares it; what is written to where, and an exit code.
const JOB: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: job
spec:
  hostNetwork: true
  restartPolicy: Never
  initContainers:
  - name: first
    image: docker.io/library/busybox:1.36
    command: ["sh", "-c", "echo prepared"]
  containers:
  - name: main
    image: docker.io/library/busybox:1.36
    env: [{name: WHO, value: world}]
    command: ["sh", "-c", "echo hello $(WHO); echo oops >&2; exit 7"]
"#;

/// A job with volumes.
const VOLUMES: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: volumes
spec:
  hostNetwork: true
  restartPolicy: Never
  volumes:
  - {name: scratch, emptyDir: {}}
  - {name: info, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}
  containers:
  - name: main
    image: docker.io/library/busybox:1.36
    volumeMounts: [{name: scratch, mountPath: /scratch}, {name: info, mountPath: /info}]
    command: ["sh", "-c", "cat /info/name && touch /scratch/file"]
"#;

/// A container that runs until SIGTERM.
const SERVER: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  name: server
spec:
  hostNetwork: true
  containers:
  - name: main
    image: docker.io/library/busybox:1.36
    command: ["sh", "-c", "trap 'echo bye; exit 0' TERM; echo up; while true; do sleep 1 & wait $!; done"]
"#;

fn command(runtime: &str, temp: &Path, manifest: &str) -> Command {
    let file = temp.join("pod.yaml");
    std::fs::write(&file, manifest).unwrap();
    let mut command = Command::new(program("run-pod"));
    command.args(["--runtime", runtime]).arg(file).env("TMPDIR", temp).env_remove("RUST_LOG");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

async fn run(runtime: &str, temp: &Path, manifest: &str) -> Output {
    timeout(GUARD, command(runtime, temp, manifest).output()).await.expect("it takes too long").unwrap()
}

async fn shows_and_ends_as_its_pod(runtime: &str) {
    let temp = tempfile::tempdir().unwrap();
    let output = run(runtime, temp.path(), JOB).await;
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "[first] prepared\n[main] hello world\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "[main] oops\n");

    let well = JOB.replace("exit 7", "exit 0");
    assert_eq!(run(runtime, temp.path(), &well).await.status.code(), Some(0));
    let unprepared = JOB.replace("echo prepared", "exit 3");
    let output = run(runtime, temp.path(), &unprepared).await;
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert_eq!(output.stdout, b"");
    leaves_nothing(temp.path());
}

/// Runs a pod whose container needs its volumes, which the process runtime does not show it.
async fn has_its_volumes(runtime: &str, are_shown: bool) {
    let temp = tempfile::tempdir().unwrap();
    let output = run(runtime, temp.path(), VOLUMES).await;
    assert_eq!(output.status.success(), are_shown, "{output:?}");
    let name = String::from_utf8_lossy(&output.stdout);
    assert_eq!(name.starts_with("volumes-"), are_shown, "{output:?}");
    leaves_nothing(temp.path());
}

async fn is_deleted_with_ctrl_c(runtime: &str) {
    let temp = tempfile::tempdir().unwrap();
    let mut child = command(runtime, temp.path(), SERVER).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    timeout(GUARD, stdout.read_line(&mut line)).await.expect("it does not come up").unwrap();
    assert_eq!(line, "up\n");
    let pid = Pid::from_raw(child.id().unwrap().cast_signed()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let mut rest = String::new();
    timeout(GUARD, stdout.read_to_string(&mut rest)).await.expect("it does not end").unwrap();
    assert_eq!(rest, "bye\n");
    assert_eq!(child.wait().await.unwrap().code(), Some(130));
    leaves_nothing(temp.path());
}

fn leaves_nothing(temp: &Path) {
    let left: Vec<_> = std::fs::read_dir(temp).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["pod.yaml"]);
}

#[tokio::test]
async fn on_processes() {
    shows_and_ends_as_its_pod("process").await;
    is_deleted_with_ctrl_c("process").await;
    has_its_volumes("process", false).await;
}

#[tokio::test]
async fn on_containerd() {
    let Some(containerd) = Containerd::start().await.unwrap() else { return };
    shows_and_ends_as_its_pod(&containerd.endpoint()).await;
    is_deleted_with_ctrl_c(&containerd.endpoint()).await;
    has_its_volumes(&containerd.endpoint(), true).await;
    assert_eq!(containerd.containers().await.unwrap(), [""; 0], "neither container nor sandbox");
    assert_eq!(containerd.tasks().await.unwrap(), []);
}

#[tokio::test]
async fn what_is_no_pod_is_said() {
    let temp = tempfile::tempdir().unwrap();
    let output = run("process", temp.path(), "kind: Pod\n").await;
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.starts_with("run-pod: ") && stderr.contains("pod.yaml"), "{stderr}");
    leaves_nothing(temp.path());
    let mut help = Command::new(program("run-pod"));
    let output = help.arg("--help").output().await.unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("--runtime <process|ENDPOINT>"));
}
