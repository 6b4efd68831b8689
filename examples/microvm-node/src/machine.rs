//! A container: a VM that runs, or has ended.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kubelet_core::Clock;
use kubelet_cri::verbs::{
    Container, ContainerKey, ContainerLog, ContainerSpec, ContainerState, Exit, Result, RuntimeError,
};
use tokio::net::UnixStream;
use tokio::sync::watch;

use crate::api::{ApiError, Cpus, Memory, Payload, Serial, VmConfig};
use crate::console::Console;
use crate::disks::{Disks, is_variable};
use crate::engine::remove_dir;
use crate::images::Image;
use crate::pod::VmPod;
use crate::record::{self, ContainerRecord};

/// 128+n for signal n, as in a shell.
const KILLED: i32 = 128 + 9;
/// Of a VM without a limit.
const MEMORY: u64 = 256 << 20;
/// A size that each engine accepts: pages of 2 MiB.
const PAGE: u64 = 2 << 20;
/// How long between two looks at a VM that has no console yet.
const RETRY: Duration = Duration::from_millis(50);
/// How long the engine may take to end a VM.
const OFF_TIMEOUT: Duration = Duration::from_secs(5);

const SERIAL: &str = if cfg!(target_arch = "aarch64") { "ttyAMA0" } else { "ttyS0" };

pub(crate) struct Machine {
    pub(crate) key: ContainerKey,
    dir: PathBuf,
    /// `None` if its pod has ended.
    pod: Option<Arc<VmPod>>,
    pub(crate) console: Console,
    pub(crate) has_input: bool,
    killed: AtomicBool,
    state: watch::Sender<ContainerState>,
    record: ContainerRecord,
}

/// How a VM ended.
enum Ended {
    PoweredOff,
    Rebooted,
    WithItsEngine,
}

impl Machine {
    /// Boots a VM in this folder. The caller has the turn of the pod, and runs to the end.
    pub(crate) async fn boot(
        pod: Arc<VmPod>,
        image: Image,
        spec: &ContainerSpec,
        dir: PathBuf,
    ) -> Result<Arc<Self>> {
        check(spec)?;
        let failed = |error: io::Error| RuntimeError::transient(&spec.key, error.to_string());
        let log = spec.log_path.as_ref().map(|path| ContainerLog::open(path, Clock::system()));
        let log = log.transpose().map_err(failed)?;
        match boot_in(&dir, &pod, image, spec).await {
            Ok(record) => Ok(Self::of_record(record, dir, Some(pod), log)),
            Err(error) => {
                // It may have been created already.
                let _ = pod.engine.api.act("vm.delete").await;
                remove_dir(&dir).map_err(failed)?;
                Err(error)
            }
        }
    }

    /// The container of a folder, which an earlier agent may have started. `None` if its VM was never booted.
    pub(crate) async fn adopt(dir: PathBuf, pod: Option<Arc<VmPod>>) -> io::Result<Option<Arc<Self>>> {
        let mut record = record::read::<ContainerRecord>(&dir)?;
        if let (Some(record @ ContainerRecord { booted: false, .. }), Some(pod)) = (&mut record, &pod) {
            record.booted = pod.engine.api.info().await.is_ok_and(|info| info.state.is_up());
        }
        let Some(record) = record.filter(|record| record.booted) else {
            return remove_dir(&dir).map(|()| None);
        };
        let log = record.log_path.as_ref().and_then(|path| {
            let opened = ContainerLog::open(path, Clock::system());
            opened
                .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "a container has no log"))
                .ok()
        });
        Ok(Some(Self::of_record(record, dir, pod, log)))
    }

    fn of_record(
        record: ContainerRecord,
        dir: PathBuf,
        pod: Option<Arc<VmPod>>,
        log: Option<ContainerLog>,
    ) -> Arc<Self> {
        let running = ContainerState::Running { started_at: record.started_at };
        Arc::new(Self {
            key: record.key(),
            dir,
            pod,
            console: Console::new(log),
            has_input: record.stdin,
            killed: AtomicBool::new(false),
            state: watch::Sender::new(record.exit().map_or(running, ContainerState::Exited)),
            record,
        })
    }

    /// Follows the VM to its end, and records how it ended.
    pub(crate) async fn run(&self) {
        let ended = self.follow().await;
        self.console.end();
        let exit = self.exit(ended);
        let mut record = self.record.clone();
        record.set_exit(&exit);
        if let Err(error) = record::write(&self.dir, &record) {
            tracing::warn!(uid = %self.key.pod, container = %self.key.container, %error, "cannot record how it ended");
        }
        self.state.send_replace(ContainerState::Exited(exit));
    }

    /// The engine closes the console when the guest powers off or reboots, and when it ends itself.
    async fn follow(&self) -> Ended {
        let Some(pod) = &self.pod else { return Ended::WithItsEngine };
        loop {
            let connected = UnixStream::connect(console_socket(pod)).await;
            let had_console = connected.is_ok();
            if let Ok(stream) = connected
                && let Err(error) = self.console.carry(stream).await
            {
                tracing::debug!(uid = %self.key.pod, %error, "the console of a virtual machine broke off");
            }
            match pod.engine.api.info().await {
                Ok(info) if !info.state.is_up() => return Ended::PoweredOff,
                // A container does not start again by itself: that is for the kubelet to decide.
                Ok(_) if had_console => {
                    self.shut_down(pod).await;
                    return Ended::Rebooted;
                }
                Ok(_) | Err(_) => {}
            }
            if tokio::time::timeout(RETRY, pod.engine.ended()).await.is_ok() {
                return Ended::WithItsEngine;
            }
        }
    }

    /// The guest's own exit code counts, however it ended.
    fn exit(&self, ended: Ended) -> Exit {
        let written = Disks::in_dir(&self.dir).exit_code().unwrap_or_default();
        let killed = self.killed.load(Ordering::Relaxed);
        let (code, message) = match (written, ended) {
            (Some(code), _) => (code, ""),
            (None, _) if killed => (KILLED, ""),
            (None, Ended::PoweredOff) => (0, ""),
            (None, Ended::Rebooted) => (1, "the guest rebooted or panicked"),
            (None, Ended::WithItsEngine) => (KILLED, "the engine of the virtual machine ended"),
        };
        Exit {
            started_at: self.record.started_at,
            finished_at: Clock::system().now(),
            code,
            reason: if code == 0 { "Completed" } else { "Error" }.to_owned(),
            message: message.to_owned(),
        }
    }

    pub(crate) fn container(&self) -> Container {
        let mut container = Container::running(self.key.clone(), self.record.started_at);
        container.state = self.state.borrow().clone();
        container
    }

    pub(crate) fn is_in(&self, pod: &Arc<VmPod>) -> bool {
        self.pod.as_ref().is_some_and(|own| Arc::ptr_eq(own, pod))
    }

    /// Counters of the guest's devices, for `crictl inspect`.
    pub(crate) async fn counters(&self) -> Option<String> {
        let counters = self.pod.as_ref()?.engine.api.counters().await.ok()?;
        String::from_utf8(counters.into()).ok()
    }

    /// Presses the power button, and pulls the plug after the grace period.
    pub(crate) async fn stop(&self, grace: Duration) {
        let Some(pod) = self.pod.as_ref().filter(|_| self.container().is_running()) else {
            return self.ended().await;
        };
        let asked = async {
            if let Err(error) = pod.engine.api.act("vm.power-button").await {
                tracing::warn!(uid = %self.key.pod, container = %self.key.container, %error, "cannot ask a guest to power off");
            }
            self.ended().await;
        };
        if grace.is_zero() || tokio::time::timeout(grace, asked).await.is_err() {
            self.killed.store(true, Ordering::Relaxed);
            self.shut_down(pod).await;
            self.ended().await;
        }
    }

    /// Ends the VM; the engine too if it does not answer.
    async fn shut_down(&self, pod: &VmPod) {
        let off = pod.engine.api.act("vm.shutdown");
        match tokio::time::timeout(OFF_TIMEOUT, off).await {
            Ok(Ok(())) => {}
            // It has ended meanwhile.
            Ok(Err(ApiError::Refused(..))) => {}
            Ok(Err(ApiError::Unreachable(..))) | Err(_) => pod.engine.kill(),
        }
    }

    pub(crate) async fn ended(&self) {
        // The sender is in `self`.
        let _ = self.state.subscribe().wait_for(|state| matches!(state, ContainerState::Exited(_))).await;
    }

    /// Deletes its files, except its log.
    pub(crate) fn remove(&self) -> Result<()> {
        remove_dir(&self.dir).map_err(|error| RuntimeError::transient(&self.key, error.to_string()))
    }
}

/// What a VM cannot have.
fn check(spec: &ContainerSpec) -> Result<()> {
    let refused = |what: String| Err(RuntimeError::permanent(&spec.key, what));
    // The kubelet mounts these into each container. A guest has its own.
    let annotated = spec.annotations.get("io.kubernetes.container.terminationMessagePath");
    let own =
        |path: &Path| path == Path::new("/etc/hosts") || annotated.is_some_and(|own| path == Path::new(own));
    if let Some(volume) = spec.mounts.iter().find(|mount| !own(&mount.container_path)) {
        let path = volume.container_path.display();
        return refused(format!("a virtual machine has no volumes here, and the pod mounts one at {path}"));
    }
    match spec.env.iter().find(|variable| !is_variable(&variable.name)) {
        Some(variable) => refused(format!("the name of the variable {:?} is none of a shell", variable.name)),
        None => Ok(()),
    }
}

async fn boot_in(
    dir: &Path,
    pod: &Arc<VmPod>,
    image: Image,
    spec: &ContainerSpec,
) -> Result<ContainerRecord> {
    let failed = |error: io::Error| RuntimeError::transient(&spec.key, error.to_string());
    let refused = |error: ApiError| RuntimeError::transient(&spec.key, error.to_string());
    let now = Clock::system().now();
    let mut record = ContainerRecord::new(&spec.key, &spec.pod_key(), spec.log_path.clone(), spec.stdin, now);
    let disks = Disks::in_dir(dir);
    let prepare = {
        let (dir, record, spec, pod) = (dir.to_owned(), record.clone(), spec.clone(), pod.clone());
        let rootfs = image.rootfs;
        move || {
            DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
            // If the agent ends now, the next one sees that the VM was not booted.
            record::write(&dir, &record)?;
            Disks::in_dir(&dir).make(&rootfs, &spec, &pod.record.resolv_conf)
        }
    };
    let prepared = tokio::task::spawn_blocking(prepare).await;
    prepared.unwrap_or_else(|error| Err(io::Error::other(error))).map_err(failed)?;
    let socket = console_socket(pod);
    kubelet_core::files::remove(&socket).map_err(failed)?;

    let api = &pod.engine.api;
    // That of the pod's previous container.
    api.act("vm.delete").await.map_err(refused)?;
    api.create(&config(spec, pod, &disks, &image.kernel, &socket)).await.map_err(refused)?;
    api.act("vm.boot").await.map_err(refused)?;
    (record.booted, record.started_at) = (true, Clock::system().now());
    record::write(dir, &record).map_err(failed)?;
    Ok(record)
}

fn config<'a>(
    spec: &ContainerSpec,
    pod: &VmPod,
    disks: &'a Disks,
    kernel: &'a Path,
    socket: &'a Path,
) -> VmConfig<'a> {
    let cpus = spec.limits.cpu_millis.unwrap_or(1).div_ceil(1000).max(1);
    let mut cmdline = format!("console={SERIAL} root=/dev/vda rw quiet panic=-1");
    if let Some(lease) = &pod.record.lease {
        cmdline += " ";
        cmdline += &lease.kernel_parameter(&spec.pod.hostname);
    }
    VmConfig {
        cpus: Cpus { boot_vcpus: cpus, max_vcpus: cpus },
        memory: Memory { size: spec.limits.memory_bytes.unwrap_or(MEMORY).next_multiple_of(PAGE) },
        payload: Payload { kernel, cmdline },
        disks: disks.devices(),
        net: pod.record.lease.iter().map(|lease| lease.device()).collect(),
        serial: Serial { mode: "Socket", socket: Some(socket) },
        console: Serial { mode: "Off", socket: None },
    }
}

fn console_socket(pod: &VmPod) -> PathBuf {
    pod.dir.join("console.sock")
}
