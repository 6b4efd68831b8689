//! The command line.

use std::path::{Path, PathBuf};

use clap::Parser;

/// Kills the parts of a real node again and again, and checks what its agent makes of it.
///
/// Needs root, containerd, runc, CNI plugins, a static busybox, and etcd, kube-apiserver, kube-controller-manager and
/// kube-scheduler. Everything runs in namespaces of its own. Exits with 0 if no fault was found, and with 1 otherwise.
#[derive(Clone, Debug, Parser)]
#[command(name = "chaos")]
pub(crate) struct Args {
    /// The agent: a program with a kubelet's command line
    pub(crate) agent: PathBuf,
    /// Folder of programs, searched before PATH; may be repeated
    #[arg(long, value_name = "FOLDER")]
    pub(crate) programs: Vec<PathBuf>,
    /// How long the chaos lasts
    #[arg(long, default_value_t = 60.0)]
    pub(crate) minutes: f64,
    /// Repeats the schedule of a run; random by default
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// How many pods there are, about
    #[arg(long, default_value_t = 60)]
    pub(crate) pods: usize,
    /// A part that is left alone: agent, containerd, api-server, csi or network; may be repeated
    #[arg(long, value_name = "PART")]
    pub(crate) spare: Vec<String>,
    /// Folder for everything, the logs among it: new or empty. Kept after a run with faults. In TMPDIR by default
    #[arg(long)]
    pub(crate) folder: Option<PathBuf>,
    /// It is no fault if the agent ends by itself, as the Go kubelet does when it loses containerd
    #[arg(long)]
    pub(crate) may_end: bool,
    /// Keeps the folder in any case
    #[arg(long)]
    pub(crate) keep: bool,
    /// More arguments of the agent
    #[arg(last = true)]
    pub(crate) agent_arguments: Vec<String>,
}

impl Args {
    /// The path of a program in the folders or in PATH.
    pub(crate) fn find(&self, program: &str) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = self.programs.iter().cloned().chain(std::env::split_paths(&path));
        let mut candidates = folders.map(|folder| folder.join(program));
        candidates.find(|candidate| Path::is_file(candidate))
    }
}
