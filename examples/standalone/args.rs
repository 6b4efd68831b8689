//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Runs the pods of a folder of manifests, on processes of this machine or on any CRI runtime.
#[derive(Debug, Parser)]
#[command(name = "standalone")]
pub(crate) struct Args {
    /// A folder of pod manifests, or one manifest; YAML or JSON.
    #[arg(long, value_name = "DIR|FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests"))]
    pub(crate) manifests: PathBuf,

    /// What runs the pods: processes of this machine, or the CRI runtime at this endpoint
    /// (unix:///run/containerd/containerd.sock, tcp://host:port).
    #[arg(long, value_name = "process|ENDPOINT", default_value = "process")]
    pub(crate) runtime: String,

    /// How changes of containers are seen: by listing them each second, or by the runtime's events, with lists that
    /// get rarer as the events prove right. Where a runtime has no events, as containerd before 1.7, both are one.
    #[arg(long, value_enum, default_value_t = Pleg::Generic)]
    pub(crate) pleg: Pleg,

    /// Where what belongs to the pods is kept; a restarted agent finds its pods by it. Default:
    /// kubelet-standalone-UID in the folder for temporary files; it is emptied when the pods ended with the agent.
    #[arg(long, value_name = "DIR")]
    pub(crate) root_dir: Option<PathBuf>,

    /// Where the containers' logs go. Default: `logs` in the root dir; on a CRI runtime /var/log/pods.
    #[arg(long, value_name = "DIR")]
    pub(crate) pod_logs_dir: Option<PathBuf>,

    /// The node's name, which static pods bear in theirs. Default: the host's name.
    #[arg(long, value_name = "NAME")]
    pub(crate) node_name: Option<String>,

    /// A live table of pods, or a line of JSON for each changed status. Default: the table on a terminal.
    #[arg(long, value_enum)]
    pub(crate) output: Option<Output>,

    /// Start what the manifests hold, wait until each pod runs or has ended, print how, and exit: with an error
    /// if one failed.
    #[arg(long)]
    pub(crate) run_once: bool,

    /// With --run-once: a pod that neither runs nor has ended after so many seconds has failed.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub(crate) timeout: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pleg {
    Generic,
    Evented,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    Json,
}

impl Args {
    pub(crate) fn output(&self) -> Output {
        let default = if crate::show::on_terminal() || self.run_once { Output::Table } else { Output::Json };
        self.output.unwrap_or(default)
    }

    pub(crate) fn root_dir(&self) -> PathBuf {
        let of_this_user = || format!("kubelet-standalone-{}", rustix::process::geteuid().as_raw());
        let default = || std::env::temp_dir().join(of_this_user());
        let dir = self.root_dir.clone().unwrap_or_else(default);
        std::path::absolute(&dir).unwrap_or(dir)
    }
}
