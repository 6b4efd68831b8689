//! The command line.

#[cfg(feature = "api")]
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Runs the pods of a folder of manifests, as processes of this machine or on any CRI runtime.
#[derive(Debug, Parser)]
#[command(name = "standalone")]
pub(crate) struct Args {
    /// A folder of pod manifests, or a single manifest; YAML or JSON. Default: the examples' manifests; with --api none.
    #[arg(long, value_name = "DIR|FILE")]
    pub(crate) manifests: Option<PathBuf>,

    /// Serve kubectl on this address: apply, get, describe, logs, exec, port-forward, delete. What was applied is kept in the root
    /// dir, by default ~/.local/state/kubelet-standalone.
    #[cfg(feature = "api")]
    #[arg(long, value_name = "ADDRESS", value_parser = address, conflicts_with_all = ["run_once", "output", "pleg"])]
    pub(crate) api: Option<SocketAddr>,

    /// With --api: serve pages to look at the node on this address of the loopback. Every user of this machine can read them.
    #[cfg(feature = "api")]
    #[arg(long, value_name = "ADDRESS", value_parser = address, requires = "api")]
    pub(crate) console: Option<SocketAddr>,

    /// Without the feature `api`: only to say what is missing.
    #[cfg(not(feature = "api"))]
    #[arg(long, value_name = "ADDRESS", hide = true, value_parser = needs_api)]
    pub(crate) api: Option<String>,

    /// Without the feature `api`: only to say what is missing.
    #[cfg(not(feature = "api"))]
    #[arg(long, value_name = "ADDRESS", hide = true, value_parser = needs_api)]
    pub(crate) console: Option<String>,

    /// The runtime: processes of this machine, or the CRI runtime at this endpoint
    /// (unix:///run/containerd/containerd.sock, tcp://host:port).
    #[arg(long, value_name = "process|ENDPOINT", default_value = "process")]
    pub(crate) runtime: String,

    /// How to detect changes of containers: list them every second (generic), or use the runtime's events and
    /// list more rarely (evented). Without events, as in containerd before 1.7, both do the same.
    #[arg(long, value_enum, default_value_t = Pleg::Generic)]
    pub(crate) pleg: Pleg,

    /// The folder for the state of pods; a restarted agent needs it to find its pods. Default:
    /// kubelet-standalone-UID in the folder for temporary files, deleted when the pods end with the agent.
    #[arg(long, value_name = "DIR")]
    pub(crate) root_dir: Option<PathBuf>,

    /// The folder for container logs. Default: `logs` in the root dir; on a CRI runtime /var/log/pods.
    #[arg(long, value_name = "DIR")]
    pub(crate) pod_logs_dir: Option<PathBuf>,

    /// The node's name, which is part of the names of static pods. Default: the host name.
    #[arg(long, value_name = "NAME")]
    pub(crate) node_name: Option<String>,

    /// Show a live table of pods, or print a line of JSON for each changed status. Default: the table on a
    /// terminal.
    #[arg(long, value_enum)]
    pub(crate) output: Option<Output>,

    /// Start the pods, wait until each is running or has ended, print the result, and exit; with an error if a
    /// pod failed.
    #[arg(long)]
    pub(crate) run_once: bool,

    /// With --run-once: a pod that is not running and has not ended after this time has failed.
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

    pub(crate) fn manifests(&self) -> PathBuf {
        let examples = || concat!(env!("CARGO_MANIFEST_DIR"), "/manifests").into();
        self.manifests.clone().unwrap_or_else(examples)
    }

    pub(crate) fn root_dir(&self) -> PathBuf {
        #[cfg(feature = "api")]
        if self.api.is_some() {
            return self.kept_root_dir();
        }
        let dir = self.root_dir.clone().unwrap_or_else(temporary);
        std::path::absolute(&dir).unwrap_or(dir)
    }

    /// The root folder for what lasts.
    #[cfg(feature = "api")]
    fn kept_root_dir(&self) -> PathBuf {
        let state = || match (std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME")) {
            (Some(dir), _) if !dir.is_empty() => PathBuf::from(dir).join("kubelet-standalone"),
            (_, Some(home)) if !home.is_empty() => {
                PathBuf::from(home).join(".local/state/kubelet-standalone")
            }
            // Not the folder of an agent without --api, which deletes it.
            _ => temporary().with_extension("api"),
        };
        let dir = self.root_dir.clone().unwrap_or_else(state);
        std::path::absolute(&dir).unwrap_or(dir)
    }
}

/// An address with a port.
#[cfg(feature = "api")]
fn address(text: &str) -> Result<SocketAddr, String> {
    let number = text.replacen("localhost:", "127.0.0.1:", 1);
    number.parse().map_err(|_| "not an address with a port, such as 127.0.0.1:6443".to_owned())
}

/// Refuses an argument of builds with the feature `api`.
#[cfg(not(feature = "api"))]
fn needs_api(_: &str) -> Result<String, String> {
    Err("this build lacks the feature `api`: cargo run --features api --example standalone -- --api 127.0.0.1:6443".to_owned())
}

/// This user's folder in the folder for temporary files.
fn temporary() -> PathBuf {
    let of_this_user = format!("kubelet-standalone-{}", rustix::process::geteuid().as_raw());
    std::env::temp_dir().join(of_this_user)
}
