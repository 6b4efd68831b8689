//! A node agent: it runs the pods of a cluster, of a folder and of a URL. It takes a kubelet's command line and
//! configuration file.
//!
//! ```console
//! # node-agent --config /var/lib/kubelet/config.yaml --kubeconfig /etc/kubernetes/kubelet.conf
//! # node-agent preflight --config …   # reports why the node cannot join its cluster, and how to fix it
//! ```
//!
//! Without `--kubeconfig` it runs static pods only. SIGTERM and Ctrl-C end the agent but not its containers;
//! the next agent takes them over.

mod agent;
mod api;
mod log;
mod node;
mod oom;
mod pods_api;
#[cfg(feature = "profiling")]
mod profiler;
mod settings;
mod shutdown;
mod volumes;

use std::io::{self, ErrorKind, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use kubelet_config::flags::{CommandLine, Version};
use kubelet_config::kubelet_configuration::validation::Host;
use kubelet_config::{FeatureGates, FeatureStage};
use kubelet_node::LockFile;
use kubelet_node::shutdown::ShutdownTrigger;
use kubelet_server::Profiler;
use kubelet_server::prometheus::Metrics;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::api::Process;
use crate::shutdown::HostShutdown;

/// It returns free memory to the system at once and has one arena, as `.cargo/config.toml` sets it. With 110 pods the agent is
/// 2 MB smaller than with glibc's allocator.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The version of the kubelet whose behaviour it has.
const VERSION: &str = "v1.36.2";

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    match run().await {
        Ok(code) => code,
        Err(error) => {
            // Not with `tracing`, which may not be set up yet.
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
            "`node-agent preflight` with the same flags reports why the node cannot join its cluster.";
        CommandLine::command().name("node-agent").after_help(preflight).print_help()?;
        return Ok(ExitCode::SUCCESS);
    }
    let version = match command_line.version() {
        Version::False => VERSION,
        Version::Reported(version) => version,
        _ => return Ok(writeln!(std::io::stdout(), "Kubernetes {VERSION}").map(|()| ExitCode::SUCCESS)?),
    };
    let server = command_line.load(&Host::detect())?;
    let verbosity = log::init(&server.configuration.logging)?;
    if only_preflight {
        return node::preflight(&server, version).await;
    }
    for flag in command_line.deprecated() {
        tracing::warn!(flag = flag.name(), "deprecated: {}", flag.deprecated().unwrap_or_default());
    }
    for ignored in &server.ignored {
        tracing::warn!("ignored in the configuration: {ignored}");
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
    set_oom_score(server.configuration.oom_score_adj);
    set_max_open_files(server.configuration.max_open_files);
    let metrics = Metrics::new();
    describe(&metrics, &server.feature_gates);
    metrics::set_global_recorder(metrics.recorder())?;
    let flags = command_line.values().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let (version_text, verbosity, profiler) = (version.to_owned(), Some(verbosity), profiler());
    let process = Process { version: version_text, flags, metrics, verbosity, profiler };
    let trigger = ShutdownTrigger::new();
    if shutdown::is_delayed(&server) && !shutdown::has_logind() {
        tokio::spawn(end_pods_on_signal(trigger.clone(), shutdown.clone())?);
    }
    let host = HostShutdown::new(&server, trigger);
    let agent = agent::run(&server, version, &process, host, shutdown.clone());
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

/// For hosts without systemd: upon SIGPWR the pods end as upon a shutdown of the host, then the agent ends.
fn end_pods_on_signal(
    trigger: ShutdownTrigger,
    shutdown: CancellationToken,
) -> io::Result<impl Future<Output = ()>> {
    let mut power_fails = signal(SignalKind::from_raw(Signal::POWER.as_raw()))?;
    Ok(async move {
        if let Some(Some(())) = shutdown.run_until_cancelled(power_fails.recv()).await {
            shutdown.run_until_cancelled(trigger.shut_down()).await;
            shutdown.cancel();
        }
    })
}

/// Sets how many files the agent may open (`rlimit.SetNumFiles`). A log that is followed is one.
fn set_max_open_files(files: i64) {
    let files = u64::try_from(files).ok();
    let allowed = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: files, maximum: files };
    let Err(error) = setrlimit(Resource::Nofile, wanted) else { return };
    // Without privilege, the most that is allowed is better than nothing.
    let most = Rlimit { current: allowed.maximum, ..allowed };
    match setrlimit(Resource::Nofile, most) {
        Ok(()) => {
            tracing::info!(?files, most = ?allowed.maximum, %error, "the agent may open fewer files than maxOpenFiles")
        }
        Err(error) => tracing::error!(?files, %error, "Failed to set rlimit on max file handles"),
    }
}

/// Makes profiles, with the feature `profiling`.
#[cfg(feature = "profiling")]
fn profiler() -> Option<Arc<dyn Profiler>> {
    Some(Arc::new(profiler::AgentProfiler::new()))
}

#[cfg(not(feature = "profiling"))]
fn profiler() -> Option<Arc<dyn Profiler>> {
    None
}

/// The version and the feature gates, as metrics.
fn describe(metrics: &Metrics, gates: &FeatureGates) {
    let platform = format!("linux/{}", std::env::consts::ARCH);
    metrics.set_build_info(&[("git_version", VERSION), ("platform", &platform), ("compiler", "rustc")]);
    for gate in FeatureGates::known() {
        let stage = match gate.stage {
            FeatureStage::Alpha => "ALPHA",
            FeatureStage::Beta => "BETA",
            FeatureStage::Deprecated => "DEPRECATED",
            _ => "",
        };
        metrics.set_feature(gate.name, stage, gates.enabled(gate.name));
    }
}

/// Sets when the kernel kills the agent if memory is short: after its containers (`ApplyOOMScoreAdj`).
fn set_oom_score(score: i32) {
    match std::fs::write("/proc/self/oom_score_adj", score.to_string()) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            tracing::info!(
                score,
                "the agent runs without the privilege to set its OOM score, and leaves it unchanged"
            );
        }
        Err(error) => tracing::warn!(score, %error, "cannot set the agent's OOM score"),
        Ok(()) => {}
    }
}
