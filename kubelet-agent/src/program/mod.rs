//! What a program needs around an agent: the command line of a kubelet, the log, signals, the lock file, the limits of the process.
//!
//! `examples/node-agent` is such a program. Every step is a call of its own, so that yours can leave one out.
//!
//! ```no_run
//! use kubelet_agent::program::{Command, Program};
//! use kubelet_agent::{Error, NodeAgent};
//!
//! # async fn example() -> Result<(), Error> {
//! let arguments = std::env::args_os().skip(1);
//! let Command::Run(program) = Program::parse("my-agent", arguments)? else { return Ok(()) };
//! program.start_log()?;
//! let agent = NodeAgent::builder(program.settings()?);
//! # Ok(())
//! # }
//! ```

mod follow;
mod limits;
mod log;
mod preflight;
mod problems;
mod signals;
#[cfg(feature = "otlp")]
mod traces;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use kubelet_config::flags::{CommandLine, KubeletServer, Version};
use kubelet_config::kubelet_configuration::Decoding;
use kubelet_config::kubelet_configuration::validation::Host;
use kubelet_config::{FeatureGates, FeatureStage};
use kubelet_node::LockFile;
use kubelet_server::LogVerbosity;
use kubelet_server::prometheus::Metrics;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::agent::NodeAgent;
use crate::error::{Error, Result};
use crate::settings::{KUBELET_VERSION, Settings};

pub use self::problems::{Machine, problems};

const NO_LOCK_FILE: &str = "cannot exit on lock file contention: no lock file specified";

/// What the command line asks for.
#[derive(Debug)]
#[non_exhaustive]
pub enum Command {
    /// Run the agent.
    Run(Program),
    /// Report why the agent would not start, and why the node cannot join its cluster (`preflight`).
    Preflight(Program),
    /// Nothing more: the help or the version was printed.
    Answered,
}

/// A program with a kubelet's command line.
#[derive(Debug)]
pub struct Program {
    command_line: CommandLine,
    server: KubeletServer,
    version: String,
    /// The configuration files as they were before they were read.
    files: follow::Version,
    #[cfg(feature = "otlp")]
    traces: std::sync::OnceLock<traces::Traces>,
}

impl Program {
    /// Reads the arguments, without the name of the program, and loads the configuration. Answers `--help` and `--version` on
    /// stdout. Blocks while it reads the files.
    ///
    /// # Errors
    ///
    /// If a flag or the configuration is not valid.
    pub fn parse(name: &'static str, arguments: impl IntoIterator<Item = OsString>) -> Result<Command> {
        let mut arguments = arguments.into_iter().peekable();
        let only_preflight = arguments.next_if(|argument| argument == "preflight").is_some();
        let command_line = CommandLine::parse(arguments)?;
        let failed = |source| Error::Io {
            what: "cannot write to stdout".to_owned(),
            source,
        };
        if command_line.help() {
            let preflight = format!(
                "`{name} preflight` with the same flags reports all for which the agent would not start, and why the node cannot \
                 join its cluster."
            );
            CommandLine::command()
                .name(name)
                .after_help(preflight)
                .print_help()
                .map_err(failed)?;
            return Ok(Command::Answered);
        }
        let version = match command_line.version() {
            Version::False => KUBELET_VERSION.to_owned(),
            Version::Reported(version) => version.clone(),
            _ => {
                writeln!(std::io::stdout(), "Kubernetes {KUBELET_VERSION}").map_err(failed)?;
                return Ok(Command::Answered);
            }
        };
        let flags = command_line.flags();
        let files = follow::version(
            Path::new(&flags.kubelet_config_file),
            Path::new(&flags.kubelet_dropin_config_directory),
        );
        let server = match only_preflight {
            true => command_line.examine(&Host::detect(), Decoding::LenientFallback)?,
            false => command_line.load(&Host::detect())?,
        };
        let program = Self {
            command_line,
            server,
            version,
            files,
            #[cfg(feature = "otlp")]
            traces: Default::default(),
        };
        Ok(if only_preflight {
            Command::Preflight(program)
        } else {
            Command::Run(program)
        })
    }

    /// The settings of the agent. Blocks while it reads files.
    ///
    /// # Errors
    ///
    /// If the credential providers are not valid.
    pub fn settings(&self) -> Result<Settings> {
        let mut settings = Settings::of_kubelet(&self.server)?;
        settings.version.clone_from(&self.version);
        let flags = self.command_line.values().into_iter();
        settings.flags = flags.map(|(name, value)| (name.to_owned(), value)).collect();
        Ok(settings)
    }

    /// Starts the log of the process on stderr, as the section `logging` configures it; `RUST_LOG` overrides it. What is
    /// returned changes the verbosity later. With the feature `otlp`, spans are sent as the section `tracing` configures it, until
    /// [`run`](Self::run) ends; it must be called in a tokio runtime then.
    ///
    /// # Errors
    ///
    /// If the process has a log already, or `tracing.endpoint` cannot be used.
    pub fn start_log(&self) -> Result<Arc<dyn LogVerbosity>> {
        #[cfg(feature = "otlp")]
        if let Some(config) = &self.server.configuration.tracing {
            let traces = traces::Traces::new(config, self.settings()?.hostname()?)?;
            let layer = traces.layer();
            drop(self.traces.set(traces));
            return log::init_with(&self.server.configuration.logging, layer);
        }
        log::init(&self.server.configuration.logging)
    }

    /// Logs deprecated flags and ignored fields of the configuration.
    pub fn warn(&self) {
        for flag in self.command_line.deprecated() {
            tracing::warn!(
                flag = flag.name(),
                "deprecated: {}",
                flag.deprecated().unwrap_or_default()
            );
        }
        for ignored in &self.server.ignored {
            tracing::warn!("ignored in the configuration: {ignored}");
        }
    }

    /// Makes the metrics of all parts those of this process. The version and the feature gates are among them.
    ///
    /// # Errors
    ///
    /// If the process has other metrics already.
    pub fn start_metrics(&self) -> Result<Arc<Metrics>> {
        let metrics = Metrics::new();
        describe(&metrics, &self.server.feature_gates);
        metrics::set_global_recorder(metrics.recorder())
            .map_err(|error| Error::Program(error.to_string()))?;
        Ok(Arc::new(metrics))
    }

    /// Sets the OOM score of the process and how many files it may open, as far as it is permitted.
    pub fn set_limits(&self) {
        limits::set_oom_score(self.server.configuration.oom_score_adj);
        limits::set_max_open_files(self.server.configuration.max_open_files);
    }

    /// Runs the agent that `build` makes, until `ending` ends, e.g. by [`signalled`]. Meanwhile the process holds the lock file of
    /// `--lock-file`, and changes of the configuration files are [applied](Self::follow_configuration). If the settings delay the
    /// shutdown of the host, SIGPWR ends the pods in order, and then the agent; an init system other than systemd sends it and
    /// waits for the end of the process. The agent of a cluster runs five seconds longer, for its last reports.
    ///
    /// # Errors
    ///
    /// Those of the lock file, of the builder and of the agent.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future aborts the agent and releases the lock.
    pub async fn run(
        &self,
        build: impl Future<Output = Result<NodeAgent>>,
        ending: impl Future<Output = ()>,
    ) -> Result<()> {
        let shutdown = CancellationToken::new();
        let ends = async {
            ending.await;
            shutdown.cancel();
            std::future::pending().await
        };
        let ended = tokio::select! {
            biased;
            ended = self.run_until(Box::pin(build), shutdown.clone()) => ended,
            ended = ends => ended,
        };
        #[cfg(feature = "otlp")]
        if let Some(traces) = self.traces.get() {
            traces.end().await;
        }
        ended
    }

    async fn run_until(
        &self,
        build: impl Future<Output = Result<NodeAgent>>,
        shutdown: CancellationToken,
    ) -> Result<()> {
        let flags = &self.server.flags;
        let lock = match flags.lock_file_path.as_str() {
            "" if flags.exit_on_lock_contention => {
                return Err(Error::Program(NO_LOCK_FILE.to_owned()));
            }
            "" => None,
            path => {
                let acquired = LockFile::acquire(Path::new(path), flags.exit_on_lock_contention);
                match shutdown.run_until_cancelled(acquired).await {
                    Some(lock) => Some(lock?),
                    None => return Ok(()),
                }
            }
        };
        let contended = shutdown.clone();
        let agent = Box::pin(async {
            self.set_limits();
            match shutdown.run_until_cancelled(build).await {
                Some(agent) => {
                    let agent = agent?;
                    let handle = agent.handle();
                    tokio::select! {
                        ended = signals::run(agent, shutdown.clone()) => ended,
                        () = self.follow_configuration(&handle) => Ok(()),
                    }
                }
                None => Ok(()),
            }
        });
        let Some(lock) = lock else { return agent.await };
        let contended = || {
            tracing::info!("another agent wants the lock file");
            contended.cancel();
        };
        lock.hold(agent, contended).await
    }
}

/// Ends upon SIGTERM or Ctrl-C. The process handles these signals from now on.
///
/// # Errors
///
/// If the process cannot handle signals.
pub fn signalled() -> Result<impl Future<Output = ()> + Send> {
    let failed = |source| Error::Io {
        what: "cannot handle signals".to_owned(),
        source,
    };
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// The version and the feature gates, as metrics.
fn describe(metrics: &Metrics, gates: &FeatureGates) {
    let platform = format!("linux/{}", std::env::consts::ARCH);
    metrics.set_build_info(&[
        ("git_version", KUBELET_VERSION),
        ("platform", &platform),
        ("compiler", "rustc"),
    ]);
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
