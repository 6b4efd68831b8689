//! Containers as child processes of the host: no root, no daemon, no image. Feature `process`, Linux (5.3 or newer).
//!
//! Use it on laptops, in tests and in demonstrations, or as the model for your own runtime on the [five
//! verbs](crate::verbs). It has what a container runtime has, as far as a process allows: CRI-format logs, signals,
//! grace periods, exit codes, commands in a container, CPU time and memory, events, and containers that keep running
//! while the agent restarts.
//!
//! # What it does not support
//!
//! * **Isolation.** There are no namespaces: a container sees the host's files, processes, network, host name and DNS
//!   settings, and every pod uses the host's ports. There are no limits of CPU or memory. There are no users: all
//!   containers run as the agent's own user and group. A container that asks for another user or group (`runAsUser`,
//!   `runAsGroup`) is refused, and so is a pod with sysctls. Capabilities, seccomp, SELinux, AppArmor,
//!   `allowPrivilegeEscalation`, supplemental groups and a read-only root are ignored. Run in it only what you would
//!   run in a shell.
//! * **Images.** Nothing is pulled or unpacked. An image is a name in a table of commands
//!   ([`ProcessRuntimeBuilder::image`]). By default any other name counts as present too. A container of such an image
//!   is refused if it has no `command`.
//! * **Volumes.** Mounts are not made: a container sees what is at the path on the host. If that is not what its pod
//!   declares, the agent logs a warning. The working folder is a new folder, unless the pod sets one, and is
//!   removed with the container. It has a link to each volume: one that is mounted at `/etc/app` is at `etc/app`. Nothing
//!   enforces that a volume is read-only.
//! * **Terminals of containers.** A container with `tty` is refused, because a terminal ends with the agent that holds
//!   it. A command in a container (`kubectl exec -it`) does get a terminal.
//!
//! # The environment of a container
//!
//! A container gets the pod's variables, the agent's `PATH`, and `HOSTNAME` if the pod has its own host name. It gets
//! nothing else of the agent's environment.
//!
//! * `TMPDIR` is a folder of its pod. The pod's containers share it, and it is removed when the pod ends.
//! * `TERMINATION_LOG_PATH` is the path of the file from which the kubelet reads the termination message, because `/dev/termination-log`
//!   cannot be mounted.
//!
//! A container does not inherit the signals that the agent ignores because it runs under `nohup` or in the background of a script: such
//! a signal gets a handler that does nothing, which holds for all children of the process.
//!
//! # Exec, attach and port-forward
//!
//! A command runs as a child process of the agent, in a process group of its own, which is killed when its client goes
//! away or its container ends. In a terminal it is the leader of a session, with `TERM=xterm`.
//!
//! An attached client gets the output from then on. The log has it, too. The container does not wait for a slow client:
//! a client that is more than 1 MiB behind is disconnected with an error. A container with `stdin` reads what attached
//! clients send. Its input stays open between clients and over a restart of the agent. With `stdinOnce`, its input ends
//! when the first client has left, or with the agent that started it; a later client that sends input is refused.
//!
//! A forwarded port is the port of the host: `127.0.0.1`, else `::1`.
//!
//! # How a container ends
//!
//! Each container is the leader of a process group. A stop sends the stop signal (`SIGTERM` by default) once to the
//! whole group, and `SIGKILL` after the grace period. When the leader has ended for any reason, the rest of the group
//! is killed, as with a pid namespace. The exit code is the leader's, or 128+n if signal n ended it. The reason is
//! `Completed` for 0 and `Error` for any other code. A process that leaves the group (`setsid`) is not followed.
//!
//! # Restart of the agent
//!
//! Containers write to named pipes that they hold open themselves. So they survive the end of the agent, even if it is
//! killed. They block when 64 KiB of output are unread. Output that the agent had read and not yet written when it was
//! killed is lost.
//!
//! A file under the root folder has the record of each container. The next [`ProcessRuntime`] on that folder takes over
//! the containers that still run, and does not start them again. It recognizes a process by its pid and start time.
//!
//! The exit code of a container that ended meanwhile is unknown. Such a container is reported with 137 and the reason
//! `ContainerStatusUnknown`, as in the kubelet. So is a container that was taken over and ends later. Output that was
//! still in the pipe of an ended container is lost.
//!
//! [`ProcessRuntime::shutdown`] ends all containers. If you drop the runtime instead, they keep running, and the next
//! runtime can open the folder as soon as all unfinished starts have ended.

mod adopt;
mod attach;
mod command;
mod container;
mod exec;
mod exec_streams;
mod group;
mod images;
mod launch;
mod log;
mod pods;
mod port_forward;
mod proc_fs;
mod record;
mod signals;
mod terminal;
mod usage;

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use kubelet_core::{Clock, PodUid};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::verbs::{
    Attach, ByteStream, ClientStreams, Container, ContainerKey, ContainerRuntime, ContainerSpec, Ends,
    Events, Exec, ExecOutput, Images, Logs, PodKey, Pods, PortForward, Result, RuntimeError, Stats, Usage,
};
use container::Process;
use images::ImageTable;
use usage::Snapshot;

/// Runs containers as child processes. See the [module](self) for the details.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use kubelet_cri::CriAdapter;
/// use kubelet_cri::process::ProcessRuntime;
///
/// # let root = tempfile::tempdir()?;
/// # let root = root.path();
/// let processes = Arc::new(ProcessRuntime::builder(root.join("processes")).open().await?);
/// let runtime = CriAdapter::builder(processes.clone()).records_dir(root.join("records")).build();
/// // … `runtime` is a `RuntimeService` and an `ImageService` …
/// # drop(runtime);
/// processes.shutdown(Duration::from_secs(10)).await;
/// # Ok(())
/// # }
/// ```
pub struct ProcessRuntime {
    shared: Arc<Shared>,
    /// Set: no container is started any more.
    closed: AtomicBool,
    _abandon: DropGuard,
    lock: Arc<Lock>,
}

/// Stays locked as long as the runtime lives or a start is unfinished.
struct Lock(File);

impl Drop for Lock {
    /// Closing the file is not enough: a process that is being forked holds it open for a moment.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// What the tasks share with the runtime.
struct Shared {
    root: PathBuf,
    containers_dir: PathBuf,
    pods_dir: PathBuf,
    images: ImageTable,
    clock: Clock,
    slots: Mutex<BTreeMap<ContainerKey, Slot>>,
    tasks: TaskTracker,
    /// Set when the runtime is dropped: the tasks end and leave the processes as they are.
    abandon: CancellationToken,
    ended: Ends,
    usage: tokio::sync::Mutex<Option<Arc<Snapshot>>>,
}

/// A place in the list.
enum Slot {
    /// Being started; the sender is dropped once that is over.
    Starting(watch::Receiver<()>),
    Started(Arc<Process>),
}

/// Configures a [`ProcessRuntime`].
#[must_use]
pub struct ProcessRuntimeBuilder {
    root: PathBuf,
    images: ImageTable,
    clock: Clock,
}

impl ProcessRuntimeBuilder {
    /// Adds an image and the command of its containers (entry point and arguments), which a pod can override. `name` is
    /// the image name in pods; a missing tag means `latest`.
    pub fn image<T: Into<String>>(
        mut self,
        name: impl Into<String>,
        command: impl IntoIterator<Item = T>,
    ) -> Self {
        self.images
            .insert(name.into(), command.into_iter().map(Into::into).collect());
        self
    }

    /// Whether an image that is not in the table counts as present; `true` by default. With `false`, such an image
    /// cannot be pulled, and its pods wait in `ErrImagePull`.
    pub fn any_image(mut self, any: bool) -> Self {
        self.images.any = any;
        self
    }

    /// The clock of logs and records; the system's clock by default.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Opens the root folder, creates it if needed, and takes over the containers that still run.
    ///
    /// # Errors
    ///
    /// The folder cannot be created or read, or another runtime uses it ([`io::ErrorKind::WouldBlock`]). The message
    /// names the folder. A container whose record cannot be read is logged and skipped.
    ///
    /// # Cancel safety
    ///
    /// May be dropped, and called again.
    pub async fn open(self) -> io::Result<ProcessRuntime> {
        let root = self.root;
        let named = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("process runtime in {}: {error}", root.display()),
            )
        };
        signals::do_not_inherit_ignored().map_err(named)?;
        make_dir(&root).map_err(named)?;
        let root = root.canonicalize().map_err(named)?;
        let lock = lock(&root.join("lock")).map_err(named)?;
        let containers_dir = root.join("containers");
        let pods_dir = root.join("pods");
        for dir in [&containers_dir, &pods_dir] {
            make_dir(dir).map_err(named)?;
        }

        let abandon = CancellationToken::new();
        let runtime = ProcessRuntime {
            shared: Arc::new(Shared {
                root,
                containers_dir,
                pods_dir,
                images: self.images,
                clock: self.clock,
                slots: Mutex::default(),
                tasks: TaskTracker::new(),
                abandon: abandon.clone(),
                ended: Ends::new(),
                usage: tokio::sync::Mutex::default(),
            }),
            closed: AtomicBool::new(false),
            _abandon: abandon.drop_guard(),
            lock: Arc::new(lock),
        };
        adopt::all(&runtime.shared).map_err(named)?;
        Ok(runtime)
    }
}

impl ProcessRuntime {
    /// Returns a builder of a runtime that keeps its state in the folder `root`.
    pub fn builder(root: impl Into<PathBuf>) -> ProcessRuntimeBuilder {
        ProcessRuntimeBuilder {
            root: root.into(),
            images: ImageTable::default(),
            clock: Clock::system(),
        }
    }

    /// Stops all containers in parallel, each with this grace period. Returns when all their processes are gone and all
    /// tasks have ended. After that, no container can be started; containers that ended can still be listed and
    /// removed.
    ///
    /// # Cancel safety
    ///
    /// May be dropped, and called again, with a shorter grace for instance.
    pub async fn shutdown(&self, grace: Duration) {
        self.closed.store(true, Ordering::SeqCst);
        self.shared.stop_all(None, grace).await;
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    async fn process(&self, key: &ContainerKey) -> Result<Arc<Process>> {
        let found = self.shared.find(key).await;
        found.ok_or_else(|| RuntimeError::gone(key, "no such container"))
    }
}

/// The right to start a container. When it is dropped, the place of a container that was not started is free again.
struct StartTurn {
    shared: Arc<Shared>,
    key: ContainerKey,
    /// A start continues when the runtime is dropped. Until it is over, no other runtime may use the folder.
    _lock: Arc<Lock>,
    /// Dropped last.
    _over: watch::Sender<()>,
}

impl Drop for StartTurn {
    fn drop(&mut self) {
        let mut slots = self.shared.slots.lock();
        if let Some(Slot::Starting(_)) = slots.get(&self.key) {
            slots.remove(&self.key);
        }
    }
}

impl Shared {
    /// Stops the containers of a pod, or all, in parallel, each with this grace period.
    async fn stop_all(&self, pod: Option<&PodKey>, grace: Duration) {
        let mut keys: Vec<_> = self.slots.lock().keys().cloned().collect();
        // First, because `find` waits for starts: those of other pods do not matter.
        keys.retain(|key| pod.is_none_or(|pod| key.pod == pod.uid));
        join_all(keys.iter().map(async |key| {
            if let Some(process) = self.find(key).await
                && pod.is_none_or(|pod| process.is_of(pod))
            {
                process.stop(grace).await;
            }
        }))
        .await;
    }

    /// The container of this key. Waits until its start is over.
    async fn find(&self, key: &ContainerKey) -> Option<Arc<Process>> {
        loop {
            let mut starting = match self.slots.lock().get(key)? {
                Slot::Started(process) => return Some(process.clone()),
                Slot::Starting(over) => over.clone(),
            };
            // Nothing is sent: this waits until the sender is dropped.
            while starting.changed().await.is_ok() {}
        }
    }
}

#[async_trait]
impl ContainerRuntime for ProcessRuntime {
    fn name(&self) -> &str {
        "process"
    }

    async fn list(&self) -> Result<Vec<Container>> {
        let slots = self.shared.slots.lock();
        let started = slots.values().filter_map(|slot| match slot {
            Slot::Started(process) => Some(process.container()),
            Slot::Starting(_) => None,
        });
        Ok(started.collect())
    }

    async fn inspect(&self, key: &ContainerKey) -> Result<Container> {
        Ok(self.process(key).await?.container())
    }

    async fn start(&self, spec: &ContainerSpec) -> Result<Container> {
        loop {
            if let Some(process) = self.shared.find(&spec.key).await {
                return Ok(process.container());
            }
            let turn = {
                let mut slots = self.shared.slots.lock();
                if self.closed.load(Ordering::SeqCst) {
                    return Err(RuntimeError::transient(
                        &spec.key,
                        "the process runtime is shut down",
                    ));
                }
                if slots.contains_key(&spec.key) {
                    continue;
                }
                let (over, starting) = watch::channel(());
                slots.insert(spec.key.clone(), Slot::Starting(starting));
                StartTurn {
                    shared: self.shared.clone(),
                    key: spec.key.clone(),
                    _lock: self.lock.clone(),
                    _over: over,
                }
            };
            // On its own thread: a slow disk or a hung working folder delays only this container. If this call is
            // dropped, the start continues to its end; the container is then listed or removed.
            let spec = spec.clone();
            let launch = self.shared.tasks.spawn_blocking(move || {
                let process = launch::launch(&turn.shared, &spec)?;
                let container = process.container();
                turn.shared.slots.lock().insert(spec.key, Slot::Started(process));
                Ok(container)
            });
            return match launch.await {
                Ok(launched) => launched,
                Err(error) => Err(RuntimeError::transient(self.name(), error.to_string())),
            };
        }
    }

    async fn stop(&self, key: &ContainerKey, grace: Duration) -> Result<()> {
        if let Some(process) = self.shared.find(key).await {
            process.stop(grace).await;
        }
        Ok(())
    }

    async fn remove(&self, key: &ContainerKey) -> Result<()> {
        let Some(process) = self.shared.find(key).await else {
            return Ok(());
        };
        process.stop(Duration::ZERO).await;
        match tokio::fs::remove_dir_all(process.dir()).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let message = format!("remove {}: {error}", process.dir().display());
                return Err(RuntimeError::transient(key, message));
            }
            _ => {}
        }
        self.shared.slots.lock().remove(key);
        Ok(())
    }

    fn data_dir(&self) -> Option<&Path> {
        Some(&self.shared.root)
    }

    fn pods(&self) -> Option<&dyn Pods> {
        Some(self)
    }

    fn exec(&self) -> Option<&dyn Exec> {
        Some(self)
    }

    fn attach(&self) -> Option<&dyn Attach> {
        Some(self)
    }

    fn port_forward(&self) -> Option<&dyn PortForward> {
        Some(self)
    }

    fn stats(&self) -> Option<&dyn Stats> {
        Some(self)
    }

    fn logs(&self) -> Option<&dyn Logs> {
        Some(self)
    }

    fn images(&self) -> Option<&dyn Images> {
        Some(&self.shared.images)
    }

    fn events(&self) -> Option<&dyn Events> {
        Some(&self.shared.ended)
    }
}

/// Runs with the container's environment and working folder, in a new process group, which is killed when the command
/// or the container ends. The first 16 MiB of each stream are kept, as in containerd.
#[async_trait]
impl Exec for ProcessRuntime {
    async fn exec_sync(&self, key: &ContainerKey, command: &[String]) -> Result<ExecOutput> {
        let process = self.process(key).await?;
        exec::exec_sync(&self.shared, &process, command).await
    }

    async fn exec(&self, key: &ContainerKey, command: &[String], streams: ClientStreams) -> Result<i32> {
        let process = self.process(key).await?;
        exec_streams::exec(&self.shared, &process, command, streams).await
    }
}

/// A client gets the output from now on. If it is more than about 1 MiB behind the container, it is disconnected with an
/// error: the container and its log do not wait for it.
#[async_trait]
impl Attach for ProcessRuntime {
    async fn attach(&self, key: &ContainerKey, streams: ClientStreams) -> Result<()> {
        let process = self.process(key).await?;
        attach::attach(&self.shared, &process, streams).await
    }
}

/// Connects to the host's own address, because all pods use the host's ports.
#[async_trait]
impl PortForward for ProcessRuntime {
    async fn connect(&self, _pod: &PodUid, port: u16) -> Result<Box<dyn ByteStream>> {
        port_forward::connect(port).await
    }
}

#[async_trait]
impl Logs for ProcessRuntime {
    async fn reopen(&self, key: &ContainerKey) -> Result<()> {
        self.process(key).await?.reopen_log().await
    }
}

/// Counts the container's process group, without the commands of `ExecSync`. The working set is the private memory of each
/// process, without mapped files; the usage is with them. Memory that processes share is counted more than once.
#[async_trait]
impl Stats for ProcessRuntime {
    async fn usage(&self, key: &ContainerKey) -> Result<Usage> {
        let process = self.process(key).await?;
        usage::usage(&self.shared, &process).await
    }
}

/// Readable only by the owner: environments and logs are private.
fn make_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

fn lock(path: &Path) -> io::Result<Lock> {
    let file = File::create(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(std::fs::TryLockError::WouldBlock) => Err(io::Error::new(
            io::ErrorKind::WouldBlock,
            "in use by another process runtime; this one needs another folder",
        )),
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}
