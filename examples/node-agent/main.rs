//! A node agent: a node that runs the pods of a cluster, and those of files and of a URL, with a kubelet's command line
//! and configuration file.
//!
//! ```console
//! # node-agent --config /var/lib/kubelet/config.yaml --kubeconfig /etc/kubernetes/kubelet.conf
//! # node-agent preflight --config …   # says what keeps the node from its cluster, and what to do about it
//! ```
//!
//! Without `--kubeconfig` it stands alone: static pods, and nobody to tell. SIGTERM and Ctrl-C end it and leave its
//! containers running; the next one takes them over.

mod agent;
mod log;
mod node;
mod settings;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use kubelet_config::flags::{CommandLine, Version};
use kubelet_config::kubelet_configuration::validation::Host;
use kubelet_node::LockFile;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The kubelet that it behaves like.
const VERSION: &str = "v1.36.2";

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    match run().await {
        Ok(code) => code,
        Err(error) => {
            // Not through `tracing`: it may not be set up yet.
            let _ = writeln!(std::io::stderr(), "node-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<ExitCode, Error> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let only_preflight = arguments.next_if(|argument| argument == "preflight").is_some();
    let command_line = CommandLine::parse(arguments)?;
    if command_line.help() {
        let preflight =
            "`node-agent preflight` with the same flags says what keeps the node from its cluster.";
        CommandLine::command().name("node-agent").after_help(preflight).print_help()?;
        return Ok(ExitCode::SUCCESS);
    }
    let version = match command_line.version() {
        Version::False => VERSION,
        Version::Reported(version) => version,
        _ => return Ok(writeln!(std::io::stdout(), "Kubernetes {VERSION}").map(|()| ExitCode::SUCCESS)?),
    };
    let server = command_line.load(&Host::detect())?;
    log::init(&server.configuration.logging)?;
    if only_preflight {
        return node::preflight(&server, version).await;
    }
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
    let (lock_file, exit) = (&server.flags.lock_file_path, server.flags.exit_on_lock_contention);
    let lock = match lock_file.as_str() {
        "" if exit => return Err("cannot exit on lock file contention: no lock file specified".into()),
        "" => None,
        path => match shutdown.run_until_cancelled(LockFile::acquire(Path::new(path), exit)).await {
            Some(lock) => Some(lock?),
            None => return Ok(ExitCode::SUCCESS),
        },
    };
    if let Err(error) = set_oom_score(server.configuration.oom_score_adj) {
        tracing::warn!(%error, "Failed to ApplyOOMScoreAdj");
    }
    let agent = agent::run(&server, version, shutdown.clone());
    let ended = match lock {
        None => agent.await,
        Some(lock) => {
            let contended = || {
                tracing::info!("another agent wants the lock file");
                shutdown.cancel();
            };
            lock.hold(agent, contended).await
        }
    };
    ended.map(|()| ExitCode::SUCCESS)
}

/// How soon the kernel ends the agent where memory is short: after its containers (`ApplyOOMScoreAdj`).
fn set_oom_score(score: i32) -> std::io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", score.to_string())
}
