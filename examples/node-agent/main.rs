//! A node agent: a node that runs the pods of a cluster, and those of files and of a URL, with a kubelet's command line
//! and configuration file.
//!
//! ```console
//! # node-agent --config /var/lib/kubelet/config.yaml --kubeconfig /etc/kubernetes/kubelet.conf
//! ```
//!
//! Without `--kubeconfig` it stands alone: static pods, and nobody to tell. SIGTERM and Ctrl-C end it and leave its
//! containers running; the next one takes them over.

mod agent;
mod healthz;
mod lock;
mod log;
mod node;
mod settings;
mod systemd;

use std::io::Write as _;
use std::pin::pin;
use std::process::ExitCode;

use kubelet_config::flags::{CommandLine, Version};
use kubelet_config::kubelet_configuration::validation::Host;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use lock::Lock;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The kubelet that it behaves like.
const VERSION: &str = "v1.36.2";

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not through `tracing`: it may not be set up yet.
            let _ = writeln!(std::io::stderr(), "node-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Error> {
    let command_line = CommandLine::parse(std::env::args_os().skip(1))?;
    if command_line.help() {
        return Ok(CommandLine::command().name("node-agent").print_help()?);
    }
    let version = match command_line.version() {
        Version::False => VERSION,
        Version::Reported(version) => version,
        _ => return Ok(writeln!(std::io::stdout(), "Kubernetes {VERSION}")?),
    };
    let server = command_line.load(&Host::detect())?;
    log::init(&server.configuration.logging)?;
    for flag in command_line.deprecated() {
        tracing::warn!(flag = flag.name(), "deprecated: {}", flag.deprecated().unwrap_or_default());
    }
    for ignored in &server.ignored {
        tracing::warn!("ignored of the configuration: {ignored}");
    }

    let shutdown = CancellationToken::new();
    let (mut terminate, ending) = (signal(SignalKind::terminate())?, shutdown.clone());
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        ending.cancel();
    });
    let Some(lock) = shutdown.run_until_cancelled(Lock::acquire(&server.flags)).await else {
        return Ok(());
    };
    let lock = lock?;
    let mut agent = pin!(agent::run(&server, version, shutdown.clone()));
    tokio::select! {
        ended = &mut agent => return ended,
        () = lock.wanted_by_another() => tracing::info!("another agent wants the lock file"),
    }
    shutdown.cancel();
    agent.await
}
