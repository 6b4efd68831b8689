//! What outlives the agent: its manifests, its root folder, and the processes that it started.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;
use tokio::process::Command;

use super::agent::Agent;
use super::until;
use crate::program::program;

/// The suffix of static pods' names.
pub(crate) const NODE_NAME: &str = "node";
/// The image of all containers.
pub(crate) const IMAGE: &str = "docker.io/library/busybox:1.36";

/// A node for one test, without manifests. Drop kills the remaining processes.
pub(crate) struct Node {
    dir: TempDir,
    runtime: String,
}

impl Node {
    /// A node that runs pods as processes.
    pub(crate) fn on_processes() -> Self {
        Self::on("process")
    }

    /// A node with this `--runtime`.
    pub(crate) fn on(runtime: impl Into<String>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("manifests")).unwrap();
        Self { dir, runtime: runtime.into() }
    }

    /// The path of a manifest.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.dir.path().join("manifests").join(file)
    }

    /// Writes a manifest as editors do: into a temporary file that replaces the old one.
    pub(crate) fn write(&self, file: &str, text: &str) {
        let beside = self.path(&format!(".{file}.swp"));
        fs::write(&beside, text).unwrap();
        fs::rename(beside, self.path(file)).unwrap();
    }

    pub(crate) fn remove(&self, file: &str) {
        fs::remove_file(self.path(file)).unwrap();
    }

    /// Adds a sample manifest.
    pub(crate) fn add_sample(&self, name: &str) {
        let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests");
        let file = format!("{name}.yaml");
        let text = fs::read_to_string(samples.join(&file)).unwrap();
        self.write(&file, &text);
    }

    /// The command of an agent with these manifests, without further arguments.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(program("standalone"));
        let dir = self.dir.path();
        command.arg("--manifests").arg(dir.join("manifests"));
        command.arg("--root-dir").arg(self.root_dir());
        command.arg("--pod-logs-dir").arg(self.pod_logs_dir());
        command.args(["--node-name", NODE_NAME, "--runtime", &self.runtime]);
        command.env_remove("RUST_LOG");
        command
    }

    /// Starts an agent on the manifests.
    pub(crate) fn start(&self) -> Agent {
        Agent::spawn(self.command().args(["--output", "json"]))
    }

    /// The agent with `--run-once` and its table.
    pub(crate) async fn run_once(&self) -> std::process::Output {
        let output = self.command().arg("--run-once").kill_on_drop(true).output();
        tokio::time::timeout(super::GUARD, output).await.expect("it takes too long").unwrap()
    }

    pub(crate) fn root_dir(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// What the agent keeps of a pod.
    pub(crate) fn pod_dir(&self, uid: &str) -> PathBuf {
        self.root_dir().join("pods").join(uid)
    }

    pub(crate) fn pod_logs_dir(&self) -> PathBuf {
        self.dir.path().join("logs")
    }

    /// The standard output of a container. `attempt` is its restart count.
    pub(crate) fn log(&self, pod: &str, uid: &str, container: &str, attempt: u32) -> Option<String> {
        let pod = format!("default_{pod}-{NODE_NAME}_{uid}");
        let path = self.pod_logs_dir().join(pod).join(container).join(format!("{attempt}.log"));
        let text = fs::read_to_string(path).ok()?;
        // TIME STREAM TAG TEXT
        let written = |line: &str| Some(line.split_once(" stdout F ")?.1.to_owned() + "\n");
        Some(text.lines().filter_map(written).collect())
    }

    /// Waits until a container's first log holds this.
    pub(crate) async fn logged(&self, pod: &str, uid: &str, container: &str, expected: &str) {
        let what = format!("{expected:?} in the log of {container} of {pod}");
        let logged = async || self.log(pod, uid, container, 0)?.contains(expected).then_some(());
        until(&what, logged).await;
    }

    /// The processes of the process runtime's containers: all that have their working folder on this node.
    pub(crate) fn processes(&self) -> Vec<Process> {
        let containers = self.root_dir().join("processes/containers");
        let entries = fs::read_dir("/proc").unwrap().flatten();
        entries.filter_map(|entry| Process::of(&entry.path(), &containers)).collect()
    }

    /// The first processes of all containers of a pod, by container.
    pub(crate) fn leaders(&self, uid: &str) -> Vec<(String, i32)> {
        let of_pod =
            |process: &Process| process.container.strip_prefix(&format!("{uid}_")).map(str::to_owned);
        let leaders = self.processes().into_iter().filter(|process| process.pid == process.group);
        let mut leaders: Vec<_> = leaders.filter_map(|it| Some((of_pod(&it)?, it.pid))).collect();
        leaders.sort();
        leaders
    }

    /// Waits until no process of a pod is left.
    pub(crate) async fn no_process_of(&self, uid: &str) {
        let prefix = format!("{uid}_");
        let none = async || {
            let mut processes = self.processes().into_iter();
            (!processes.any(|process| process.container.starts_with(&prefix))).then_some(())
        };
        until(&format!("no process of {uid}"), none).await;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for process in self.processes() {
            if let Some(group) = Pid::from_raw(process.group) {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
    }
}

/// A process of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) group: i32,
    /// `UID_NAME_ATTEMPT`
    pub(crate) container: String,
}

impl Process {
    fn of(proc_dir: &Path, containers: &Path) -> Option<Self> {
        let pid = proc_dir.file_name()?.to_str()?.parse().ok()?;
        let working_dir = fs::read_link(proc_dir.join("cwd")).ok()?;
        let container = working_dir.strip_prefix(containers).ok()?.iter().next()?.to_str()?.to_owned();
        // The name of the program may hold anything; what comes behind it does not.
        let stat = fs::read_to_string(proc_dir.join("stat")).ok()?;
        let group = stat.rsplit(") ").next()?.split(' ').nth(2)?.parse().ok()?;
        Some(Self { pid, group, container })
    }

    /// `kill -9`
    pub(crate) fn kill(pid: i32) {
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }
}
