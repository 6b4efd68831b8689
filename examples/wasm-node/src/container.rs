//! A container: a module that runs, or has ended.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kubelet_core::Clock;
use kubelet_cri::verbs::{
    Container, ContainerKey, ContainerLog, ContainerSpec, ContainerState, LogStream, Result, RuntimeError,
    Usage,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wasmtime_wasi::WasiCtxBuilder;

use crate::cpu::{CpuTime, Metered};
use crate::files::{self, Root};
use crate::memory::Memory;
use crate::output::{Input, Log};
use crate::program::{Compiler, Ended, Program, State};

/// 128+n for signal n, as in a shell.
const KILLED: i32 = 128 + 9;
const TERMINATED: i32 = 128 + 15;

/// A container that was started.
pub(crate) struct Instance {
    key: ContainerKey,
    dir: PathBuf,
    has_input: bool,
    limit_millis: Option<u64>,
    /// Cancelled when it is asked to stop: its input ends.
    asked: CancellationToken,
    /// The exit code with which it is to end now.
    kill: watch::Sender<Option<i32>>,
    state: watch::Sender<ContainerState>,
    cpu: CpuTime,
    memory: Memory,
    log: Log,
}

impl Instance {
    /// Prepares a container in this folder, and what its module may use.
    pub(crate) fn new(spec: &ContainerSpec, dir: PathBuf, started_at: Timestamp) -> Result<(Self, State)> {
        let failed = |error: std::io::Error| RuntimeError::transient(&spec.key, error.to_string());
        if spec.tty {
            return Err(RuntimeError::permanent(&spec.key, "a WebAssembly module has no terminal (tty)"));
        }
        let log = spec.log_path.as_ref().map(|path| ContainerLog::open(path, Clock::system()));
        let root = Root::create(dir.clone()).map_err(failed)?;
        let instance = Self {
            key: spec.key.clone(),
            dir,
            has_input: spec.stdin,
            limit_millis: spec.limits.cpu_millis,
            asked: CancellationToken::new(),
            kill: watch::Sender::new(None),
            state: watch::Sender::new(ContainerState::Running { started_at }),
            cpu: CpuTime::default(),
            memory: Memory::new(spec.limits.memory_bytes),
            log: Log::new(log.transpose().map_err(failed)?),
        };
        let mut wasi = instance.wasi(spec);
        root.open(spec, &mut wasi).map_err(failed)?;
        root.keep();
        let state = State { wasi: wasi.build_p1(), memory: instance.memory.clone() };
        Ok((instance, state))
    }

    /// Arguments, environment, streams and network, as the pod declares them.
    fn wasi(&self, spec: &ContainerSpec) -> WasiCtxBuilder {
        let mut wasi = WasiCtxBuilder::new();
        match spec.command.is_empty() {
            // The name of the program comes first, as a shell has it.
            true => wasi.arg(&spec.image),
            false => wasi.args(&spec.command),
        };
        wasi.args(&spec.args);
        if !spec.pod.hostname.is_empty() {
            wasi.env("HOSTNAME", &spec.pod.hostname);
        }
        for variable in &spec.env {
            wasi.env(&variable.name, String::from_utf8_lossy(&variable.value));
        }
        if let Some(dir) = &spec.working_dir {
            wasi.initial_cwd(dir.to_string_lossy());
        }
        if self.has_input {
            wasi.stdin(Input(self.asked.clone()));
        }
        wasi.stdout(self.log.stream(LogStream::Stdout)).stderr(self.log.stream(LogStream::Stderr));
        // All pods have the network of the host.
        wasi.inherit_network().allow_ip_name_lookup(true).allow_tcp(true).allow_udp(true);
        wasi
    }

    /// Runs the module to its end, or until it is killed.
    pub(crate) async fn run(&self, compiler: Arc<Compiler>, program: Program, state: State) {
        let module = Metered::new(compiler.run(program, state), self.cpu.clone(), self.limit_millis);
        let mut kill = self.kill.subscribe();
        let ended = tokio::select! {
            ended = module => ended,
            Some(code) = async { *kill.wait_for(Option::is_some).await.ok()? } => Ended { code, message: String::new() },
        };
        self.log.end();
        let mut container = self.container();
        container.exited(ended.code, Clock::system().now());
        if let ContainerState::Exited(exit) = &mut container.state {
            exit.message = ended.message;
            if self.memory.was_exceeded() {
                (exit.code, exit.reason) = (KILLED, "OOMKilled".to_owned());
            }
        }
        tracing::debug!(uid = %self.key.pod, container = %self.key.container, code = ended.code, "container ended");
        self.state.send_replace(container.state);
    }

    pub(crate) fn container(&self) -> Container {
        let state = self.state.borrow().clone();
        let mut container = Container::running(self.key.clone(), state.started_at());
        container.state = state;
        container
    }

    /// WASI has no signals. A module that reads its input sees the end of it, and has the grace period; any other ends at once,
    /// as a process ends that does not handle SIGTERM.
    pub(crate) async fn stop(&self, grace: Duration) {
        self.asked.cancel();
        if grace.is_zero() {
            self.kill(KILLED);
        } else if !self.has_input {
            self.kill(TERMINATED);
        } else if tokio::time::timeout(grace, self.ended()).await.is_err() {
            self.kill(KILLED);
        }
        self.ended().await;
    }

    /// The first one decides the exit code.
    fn kill(&self, code: i32) {
        self.kill.send_if_modified(|kill| kill.replace(kill.unwrap_or(code)).is_none());
    }

    async fn ended(&self) {
        // The sender is in `self`.
        let _ = self.state.subscribe().wait_for(|state| matches!(state, ContainerState::Exited(_))).await;
    }

    pub(crate) fn usage(&self) -> Result<Usage> {
        if !self.container().is_running() {
            return Err(RuntimeError::gone(&self.key, "is not running"));
        }
        let memory = self.memory.used();
        Ok(Usage {
            at: Clock::system().now(),
            cpu: self.cpu.used(),
            memory_working_set_bytes: memory,
            memory_rss_bytes: Some(memory),
            memory_usage_bytes: Some(memory),
        })
    }

    pub(crate) fn reopen_log(&self) -> Result<()> {
        self.log.reopen().map_err(|error| RuntimeError::transient(&self.key, error.to_string()))
    }

    /// Deletes its files, except its log.
    pub(crate) fn remove(&self) -> Result<()> {
        files::remove(&self.dir).map_err(|error| RuntimeError::transient(&self.key, error.to_string()))
    }
}
