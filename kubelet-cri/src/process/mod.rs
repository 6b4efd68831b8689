//! Containers as child processes of the host: no root, no daemon, no image. Feature `process`, Linux (5.3 or newer).
//!
//! For laptops, tests and demonstrations, and as the model of a runtime on the [five verbs](crate::verbs). It behaves
//! as a container runtime does wherever a process can: CRI-format logs, signals, grace periods, exit codes, commands in
//! a container, CPU time and memory, events, and containers that go on while the agent is restarted.
//!
//! # What it does not offer
//!
//! * **Isolation.** No namespaces: a container sees the host's files, processes, network, host name and DNS settings, and
//!   every pod has the host's ports. No limits of CPU or memory. No users: all run as the agent's own user and group, and
//!   a container that asks for another (`runAsUser`, `runAsGroup`) is refused, as is a pod with sysctls. Capabilities,
//!   seccomp, SELinux, AppArmor, `allowPrivilegeEscalation`, supplemental groups and a read-only root mean nothing here.
//!   Run nothing in it that you would not run in a shell.
//! * **Images.** Nothing is fetched or unpacked. An image is a name, looked up in a table of commands if one is given
//!   ([`ProcessRuntimeBuilder::image`]); by default any other name counts as present too, and its container must bring
//!   its own `command`, or it is refused.
//! * **Volumes.** Mounts are not made: a container finds what is at the path on the host. One that would find something
//!   else than its pod declares is warned of, in the log of the agent. The working folder is an empty one of the
//!   container's own, unless the pod says otherwise, and goes with it.
//! * **Terminals and standard input.** `tty` and `stdin` are refused; what a container reads is empty.
//!
//! # The environment of a container
//!
//! The pod's variables, `PATH` as the agent has it, and `HOSTNAME` if the pod has one of its own; nothing else of the
//! agent's environment. Since `/dev/termination-log` cannot be mounted, `TERMINATION_LOG_PATH` names the file in
//! which the kubelet looks for the termination message.
//!
//! # How a container ends
//!
//! Each is the leader of a process group. A stop sends its stop signal (`SIGTERM` by default) to the whole group, once,
//! and `SIGKILL` when the grace is over. When the leader has ended, however it did, the rest of the group is killed, as
//! it would be with a pid namespace. The exit code is the leader's, or 128+n if signal n ended it; the reason is
//! `Completed` for 0 and `Error` for anything else. A process that leaves the group (`setsid`) is not followed: that
//! takes more than a process group.
//!
//! # Restart of the agent
//!
//! Containers write to named pipes that they hold open themselves, so that they do not die when the agent goes, however
//! it goes: they wait once 64 KiB are unread. What the agent had read and not yet written when it was killed is lost.
//! What is known of each container is in a file under the root folder. The next [`ProcessRuntime`] on that folder takes over what still runs, told from a process of the same pid
//! by its start time, and never starts it again. Of what ended meanwhile nobody saw the exit code: it is reported as 137
//! with reason `ContainerStatusUnknown`, as the kubelet does, and so is what was taken over and ends later. What its
//! last lines were, unread in the pipe, is lost.
//!
//! [`ProcessRuntime::shutdown`] ends all containers; dropping the runtime leaves them to the next one, which can open the
//! folder once the starts under way are over.

mod adopt;
mod command;
mod container;
mod exec;
mod group;
mod images;
mod launch;
mod log;
mod proc_fs;
mod record;
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
use futures::stream::{self, BoxStream, StreamExt};
use kubelet_core::Clock;
use parking_lot::Mutex;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::verbs::{
    Container, ContainerKey, ContainerRuntime, ContainerSpec, Events, Exec, ExecOutput, Images, Logs, Result,
    RuntimeError, Stats, Usage,
};
use container::Process;
use images::ImageTable;
use usage::Snapshot;

/// Runs containers as child processes. See the [module](self) for what that means.
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
    /// No more starts.
    closed: AtomicBool,
    _abandon: DropGuard,
    lock: Arc<Lock>,
}

/// Kept locked as long as the runtime lives, or some container that it began to start is not quite started.
struct Lock(File);

impl Drop for Lock {
    /// Closing the file would do, were it not that a process that is just being forked holds it open for a moment.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// What the tasks share with the runtime.
struct Shared {
    root: PathBuf,
    containers_dir: PathBuf,
    images: ImageTable,
    clock: Clock,
    slots: Mutex<BTreeMap<ContainerKey, Slot>>,
    tasks: TaskTracker,
    /// The runtime is gone: leave the processes alone and end.
    abandon: CancellationToken,
    ended: broadcast::Sender<ContainerKey>,
    usage: tokio::sync::Mutex<Option<Arc<Snapshot>>>,
}

/// A place in the list.
enum Slot {
    /// Being started; the sender is dropped once that is over.
    Starting(watch::Receiver<()>),
    Started(Arc<Process>),
}

/// How many containers may end before a slow reader of events misses one.
const EVENT_BUFFER: usize = 1024;

/// Configures a [`ProcessRuntime`].
#[must_use]
pub struct ProcessRuntimeBuilder {
    root: PathBuf,
    images: ImageTable,
    clock: Clock,
}

impl ProcessRuntimeBuilder {
    /// An image that is at hand and what its containers run, unless they say otherwise: its entry point and arguments.
    /// The name is that of pods; a missing tag means `latest`.
    pub fn image<T: Into<String>>(
        mut self,
        name: impl Into<String>,
        command: impl IntoIterator<Item = T>,
    ) -> Self {
        self.images
            .insert(name.into(), command.into_iter().map(Into::into).collect());
        self
    }

    /// Whether an image that is not in the table counts as present, which it does by default. Otherwise it cannot be
    /// pulled, and its pods wait in `ErrImagePull` as they would for a real one.
    pub fn any_image(mut self, any: bool) -> Self {
        self.images.any = any;
        self
    }

    /// Where the time of logs and records comes from; the system's clock if not set.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Opens the root folder, makes it if need be, and takes over what still runs from before.
    ///
    /// # Errors
    ///
    /// The folder cannot be made or read, or is in use by another runtime, which is [`io::ErrorKind::WouldBlock`]; the
    /// message names it. A container whose record cannot be read is reported and left out.
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
        make_dir(&root).map_err(named)?;
        let root = root.canonicalize().map_err(named)?;
        let lock = lock(&root.join("lock")).map_err(named)?;
        let containers_dir = root.join("containers");
        make_dir(&containers_dir).map_err(named)?;

        let abandon = CancellationToken::new();
        let runtime = ProcessRuntime {
            shared: Arc::new(Shared {
                root,
                containers_dir,
                images: self.images,
                clock: self.clock,
                slots: Mutex::default(),
                tasks: TaskTracker::new(),
                abandon: abandon.clone(),
                ended: broadcast::Sender::new(EVENT_BUFFER),
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
    /// Starts to configure a runtime that keeps its state in the folder `root`.
    pub fn builder(root: impl Into<PathBuf>) -> ProcessRuntimeBuilder {
        ProcessRuntimeBuilder {
            root: root.into(),
            images: ImageTable::default(),
            clock: Clock::system(),
        }
    }

    /// Ends all containers, each with this grace, all at once, and returns when no process of theirs is left and all
    /// tasks have ended. Nothing can be started any more; what ended can still be listed and removed.
    ///
    /// # Cancel safety
    ///
    /// May be dropped, and called again, with a shorter grace for instance.
    pub async fn shutdown(&self, grace: Duration) {
        self.closed.store(true, Ordering::SeqCst);
        let keys: Vec<_> = self.shared.slots.lock().keys().cloned().collect();
        join_all(keys.iter().map(async |key| {
            if let Some(process) = self.shared.find(key).await {
                process.stop(grace).await;
            }
        }))
        .await;
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    async fn process(&self, key: &ContainerKey) -> Result<Arc<Process>> {
        let found = self.shared.find(key).await;
        found.ok_or_else(|| RuntimeError::gone(key, "no such container"))
    }
}

/// The right to start a container. When it is over, the place of one that was not started is free again.
struct StartTurn {
    shared: Arc<Shared>,
    key: ContainerKey,
    /// A start goes on when the runtime is dropped: until it is over no other runtime must look at the folder.
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
    /// The container of this key, once its start is over if it is being started.
    async fn find(&self, key: &ContainerKey) -> Option<Arc<Process>> {
        loop {
            let mut starting = match self.slots.lock().get(key)? {
                Slot::Started(process) => return Some(process.clone()),
                Slot::Starting(over) => over.clone(),
            };
            // Nothing is ever sent: this waits for the sender to be dropped.
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
            // On a thread of its own: a slow disk or a hung working folder holds up this container alone. It goes on
            // to its end if this call is dropped, and is listed or undone then.
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

    fn exec(&self) -> Option<&dyn Exec> {
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
        Some(self)
    }
}

/// With the container's environment and working folder, in a process group of its own, which is killed when the
/// command or the container ends. Of each stream 16 MiB are kept, as by containerd.
#[async_trait]
impl Exec for ProcessRuntime {
    async fn exec_sync(&self, key: &ContainerKey, command: &[String]) -> Result<ExecOutput> {
        let process = self.process(key).await?;
        exec::exec_sync(&self.shared, &process, command).await
    }
}

#[async_trait]
impl Logs for ProcessRuntime {
    async fn reopen(&self, key: &ContainerKey) -> Result<()> {
        self.process(key).await?.reopen_log().await
    }
}

/// Of the container's process group; commands that are run in the container are not counted. Memory is what each process
/// has for itself: files that it has mapped are not counted, and what parent and child share is counted twice.
#[async_trait]
impl Stats for ProcessRuntime {
    async fn usage(&self, key: &ContainerKey) -> Result<Usage> {
        let process = self.process(key).await?;
        usage::usage(&self.shared, &process).await
    }
}

impl Events for ProcessRuntime {
    fn watch(&self) -> BoxStream<'static, ContainerKey> {
        stream::unfold(self.shared.ended.subscribe(), async |mut ended| {
            loop {
                match ended.recv().await {
                    Ok(key) => return Some((key, ended)),
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            }
        })
        .boxed()
    }
}

/// For the owner alone: environments and logs are private.
fn make_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

fn lock(path: &Path) -> io::Result<Lock> {
    let file = File::create(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(std::fs::TryLockError::WouldBlock) => Err(io::Error::new(
            io::ErrorKind::WouldBlock,
            "in use by another process runtime",
        )),
        Err(std::fs::TryLockError::Error(error)) => Err(error),
    }
}
