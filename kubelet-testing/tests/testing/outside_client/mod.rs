//! A CRI client that has only the protocol file calls the runtime in memory: Python's gRPC, with messages made by
//! `protoc`.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::Clock;
use kubelet_cri::{CriServer, CriSocket};
use kubelet_testing::memory_cri::{ExecReply, RemoteImage};
use kubelet_testing::{MemoryCri, Run};
use tempfile::TempDir;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

/// A Python from pyenv rarely has gRPC; the distribution's Python has it, once it is installed.
const PYTHONS: [&str; 2] = ["/usr/bin/python3", "python3"];

/// The Python with gRPC. `None` if the host lacks something; this prints a line.
async fn tools() -> Option<&'static str> {
    let works = async |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output().await;
        output.is_ok_and(|output| output.status.success())
    };
    if works("protoc", &["--version"]).await && protocol().exists() {
        for python in PYTHONS {
            if works(python, &["-c", "import grpc, google.protobuf"]).await {
                return Some(python);
            }
        }
    }
    let needs = "python3-grpcio, protobuf-compiler and the protocol file of kubelet-cri";
    assert!(
        std::env::var_os("CI").is_none_or(|ci| ci != "true"),
        "the outside client needs {needs}"
    );
    // Not `eprintln!`: the test harness would capture it.
    let _ = writeln!(io::stderr(), "SKIPPED: the outside client needs {needs}");
    None
}

fn protocol() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../kubelet-cri/proto/runtime/v1/api.proto")
}

/// The Python module `api_pb2`, in this folder.
async fn make_messages(folder: &Path) {
    // An option that older compilers do not know. It does not change the messages.
    let text = std::fs::read_to_string(protocol())
        .unwrap()
        .replace(" [debug_redact = true]", "");
    std::fs::write(folder.join("api.proto"), text).unwrap();
    let mut protoc = Command::new("protoc");
    protoc.arg("--python_out=.").arg("api.proto").current_dir(folder);
    succeeded(&protoc.output().await.unwrap());
}

#[track_caller]
fn succeeded(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outside_client_drives_the_runtime() {
    let Some(python) = tools().await else { return };
    let folder = TempDir::new().unwrap();
    make_messages(folder.path()).await;

    let runtime = MemoryCri::builder(Clock::system())
        .write_logs_below(folder.path())
        .build();
    runtime.script("main", [Run::forever().prints("hello").uses(100, 8 << 20)]);
    runtime.script("crash", [Run::exits(3).after(Duration::from_millis(20))]);
    runtime.script_exec("main", [ExecReply::exits(7).stdout("out\n").stderr("err\n")]);
    runtime.publish(RemoteImage::new("busybox:1.36").pull_takes(Duration::from_millis(50)));
    runtime.publish(RemoteImage::new("gone:1").missing());

    let socket = folder.path().join("cri.sock");
    let listener = CriSocket::bind(&socket, 0o600).await.unwrap();
    let shutdown = CancellationToken::new();
    let server = CriServer::new(Arc::new(runtime.clone()), Arc::new(runtime.clone()));
    let serving = tokio::spawn(server.serve(listener, shutdown.clone()));

    let mut client = Command::new(python);
    client
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testing/outside_client/client.py"))
        .arg(format!("unix://{}", socket.display()))
        .arg(folder.path())
        .env("PYTHONPATH", folder.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(120), client.output())
        .await
        .unwrap()
        .unwrap();
    succeeded(&output);

    runtime.calls().assert_order([
        "RunPodSandbox web#0",
        "PullImage gone:1",
        "PullImage busybox:1.36",
        "CreateContainer web/main#0",
        "StartContainer web/main#0",
        "ExecSync web/main#0",
        "StopContainer web/main#0",
        "RemoveContainer web/main#0",
        "StopPodSandbox web#0",
        "RemovePodSandbox web#0",
    ]);
    assert_eq!((runtime.sandboxes().len(), runtime.containers().len()), (0, 0));
    runtime.assert_consistent();
    shutdown.cancel();
    serving.await.unwrap().unwrap();
}
