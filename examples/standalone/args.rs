//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Runs the pods of a folder of manifests, on processes of this machine or on any CRI runtime.
#[derive(Debug, Parser)]
#[command(name = "standalone")]
pub struct Args {
    /// A folder of pod manifests, or one manifest; YAML or JSON.
    #[arg(long, value_name = "DIR|FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests"))]
    pub manifests: PathBuf,

    /// What runs the pods: processes of this machine, or the CRI runtime at this endpoint
    /// (unix:///run/containerd/containerd.sock, tcp://host:port).
    #[arg(long, value_name = "process|ENDPOINT", default_value = "process")]
    pub runtime: String,

    /// Where what belongs to the pods is kept; a restarted agent finds its pods by it. Default: `kubelet` in
    /// the folder for temporary files.
    #[arg(long, value_name = "DIR")]
    pub root_dir: Option<PathBuf>,

    /// Where the containers' logs go. Default: `logs` in the root dir; on a CRI runtime /var/log/pods.
    #[arg(long, value_name = "DIR")]
    pub pod_logs_dir: Option<PathBuf>,

    /// The node's name, which static pods bear in theirs. Default: the host's name.
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,

    /// A live table of pods, or a line of JSON for each changed status. Default: the table on a terminal.
    #[arg(long, value_enum)]
    pub output: Option<Output>,

    /// Start what the manifests hold, wait until each pod runs or has ended, print how, and exit: with an error
    /// if one failed.
    #[arg(long)]
    pub run_once: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Table,
    Json,
}

impl Args {
    pub fn output(&self) -> Output {
        let default = if crate::show::on_terminal() || self.run_once { Output::Table } else { Output::Json };
        self.output.unwrap_or(default)
    }

    pub fn root_dir(&self) -> PathBuf {
        self.root_dir.clone().unwrap_or_else(|| std::env::temp_dir().join("kubelet"))
    }
}
