//! The node's server, by the official Python client: a whole input as one message, pieces, a terminal and a port.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use tokio::process::Command;
use tokio::time::timeout;

use super::cluster::Cluster;
use super::pods::pod;
use crate::standalone::GUARD;

/// The Python of the distribution: its package has the client.
const PYTHON: &str = "/usr/bin/python3";
/// The folder of another version of the client (`pip install --target`).
const FOLDER: &str = "KUBELET_TESTING_PYTHON_CLIENT";
/// The pod with a terminal.
pub(super) const TYPED: &str = "typed";

/// How many MiB a stream moves: `KUBELET_TESTING_STREAM_MIB`.
pub(super) fn stream_mib() -> usize {
    set("KUBELET_TESTING_STREAM_MIB", 8)
}

/// How many small files are copied: `KUBELET_TESTING_STREAM_FILES`.
pub(super) fn stream_files() -> usize {
    set("KUBELET_TESTING_STREAM_FILES", 200)
}

fn set(variable: &str, otherwise: usize) -> usize {
    match std::env::var(variable) {
        Ok(value) => value.parse().unwrap_or_else(|error| panic!("{variable}={value}: {error}")),
        Err(_) => otherwise,
    }
}

fn python() -> Command {
    let mut command = Command::new(PYTHON);
    if let Some(folder) = std::env::var_os(FOLDER) {
        command.env("PYTHONPATH", folder);
    }
    command.env_remove("PYTHONHOME").stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Whether the client is there. With `CI=true` it must be.
pub(super) async fn is_there() -> bool {
    let output = python().args(["-c", "import kubernetes"]).output().await;
    let there = output.is_ok_and(|output| output.status.success());
    if !there {
        let is_ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
        assert!(!is_ci, "python3-kubernetes is missing");
        // Not `eprintln!`: the test harness would capture it.
        drop(writeln!(std::io::stderr(), "SKIPPED: the Python client: python3-kubernetes is missing"));
    }
    there
}

/// A pod whose container is a shell in a terminal.
pub(super) fn typed() -> Pod {
    let mut typed = pod(TYPED, "exec sh", json!({}));
    let container = &mut typed.spec.as_mut().unwrap().containers[0];
    (container.stdin, container.tty) = (Some(true), Some(true));
    typed
}

/// Talks to a pod that repeats its input, and to one with a terminal, if there is one. An echo server listens on the port of the first.
pub(super) async fn talk(cluster: &Cluster, shell: &str, terminal: &str, port: u16) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("node_agent/python_client.py");
    let mut command = python();
    command.arg(script).arg(cluster.path("admin")).args([shell, terminal]);
    command.arg(port.to_string()).arg(stream_mib().to_string()).env("HOME", cluster.dir.path());
    let output = timeout(10 * GUARD, command.output()).await.expect("the Python client hangs").unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    #[expect(clippy::print_stdout, reason = "how long it took is shown, not judged")]
    {
        println!("{printed}");
    }
    printed
}
