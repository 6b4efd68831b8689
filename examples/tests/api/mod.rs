//! `standalone --api`: a node that `kubectl` drives.

mod killed;
mod kubectl;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::program::program;
use crate::standalone::GUARD;

/// A running agent. Drop kills it, but not its pods.
struct ApiAgent {
    child: Child,
}

impl ApiAgent {
    /// Starts an agent without waiting for it.
    fn spawn(root: &Path) -> Self {
        let mut command = Command::new(program("standalone"));
        command.args(["--api", "127.0.0.1:0", "--node-name", "one", "--root-dir"]).arg(root);
        let log =
            std::fs::File::options().create(true).append(true).open(root.with_extension("log")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).kill_on_drop(true);
        Self { child: command.spawn().unwrap() }
    }

    /// Starts an agent and waits until it serves.
    async fn start(root: &Path) -> Self {
        let mut agent = Self::spawn(root);
        agent.serves(root).await;
        agent
    }

    /// Waits until it serves.
    async fn serves(&mut self, root: &Path) {
        let mut lines = BufReader::new(self.child.stdout.take().unwrap()).lines();
        let serves = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                if line.contains("serves kubectl") {
                    return true;
                }
            }
            false
        };
        let serves = timeout(GUARD, serves).await.expect("the agent does not serve");
        let log = || std::fs::read_to_string(root.with_extension("log")).unwrap();
        assert!(serves, "the agent ended: {}", log());
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed())).expect("it runs");
        kill_process(pid, signal).unwrap();
    }

    /// Sends a signal and waits for the end.
    async fn end(mut self, signal: Signal) -> std::process::ExitStatus {
        self.signal(signal);
        timeout(GUARD, self.child.wait()).await.expect("the agent does not end").unwrap()
    }
}

fn kubeconfig(root: &Path) -> PathBuf {
    root.join("kubeconfig")
}

async fn client(root: &Path) -> Client {
    let config = Kubeconfig::read_from(kubeconfig(root)).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// The processes whose working folder is below this one: the containers of an agent.
fn processes(dir: &Path) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
        if std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir)) {
            found.push(pid);
        }
    }
    found
}

/// Kills the pods that an agent left running.
struct Leftovers(PathBuf);

impl Drop for Leftovers {
    fn drop(&mut self) {
        for pid in processes(&self.0) {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}
