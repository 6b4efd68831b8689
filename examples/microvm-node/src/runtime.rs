//! The five verbs, and what else the runtime can do: images, logs, attach, port-forward, events.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use kubelet_core::PodUid;
use kubelet_cri::verbs::{
    Attach, ByteStream, ClientStreams, Container, ContainerKey, ContainerRuntime, ContainerSpec, Ends,
    Events, Images, Logs, PodKey, Pods, PortForward, Result, RuntimeError,
};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use crate::images::ImageStore;
use crate::machine::Machine;
use crate::network::Subnet;
use crate::pod::VmPod;
use crate::record::{self, ContainerRecord};

/// Runs containers as virtual machines. If it is dropped, they go on, and the next runtime takes them over.
pub struct MicrovmRuntime {
    pub(crate) shared: Arc<Shared>,
    _abandon: DropGuard,
}

/// What the tasks share with the runtime.
pub(crate) struct Shared {
    pub(crate) engine: PathBuf,
    root: PathBuf,
    pub(crate) pods_dir: PathBuf,
    containers_dir: PathBuf,
    images: ImageStore,
    pub(crate) subnet: Option<Subnet>,
    pub(crate) pods: Mutex<BTreeMap<PodKey, Arc<VmPod>>>,
    slots: Mutex<BTreeMap<ContainerKey, Slot>>,
    ended: Ends,
    tasks: TaskTracker,
    /// Set when the runtime is dropped.
    abandon: CancellationToken,
    _lock: Lock,
}

/// Two agents would take the consoles from each other.
struct Lock(File);

impl Lock {
    fn take(path: &Path) -> io::Result<Self> {
        let file = File::create(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::Error(error)) => Err(error),
            Err(TryLockError::WouldBlock) => {
                let message = format!("another agent has {}", path.display());
                Err(io::Error::new(io::ErrorKind::WouldBlock, message))
            }
        }
    }
}

impl Drop for Lock {
    /// Closing the file is not enough: a process that is being forked has it open for a moment.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// A place in the list.
enum Slot {
    /// Being started; the sender is dropped once that is over.
    Starting(watch::Receiver<()>),
    Started(Arc<Machine>),
}

/// Configures a [`MicrovmRuntime`].
#[must_use]
pub struct MicrovmRuntimeBuilder {
    root: PathBuf,
    images: PathBuf,
    engine: PathBuf,
    subnet: Option<Subnet>,
}

impl MicrovmRuntimeBuilder {
    /// The program of the engine; `cloud-hypervisor` by default.
    pub fn engine(mut self, program: impl Into<PathBuf>) -> Self {
        self.engine = program.into();
        self
    }

    /// The addresses of the guests. Without it, they have no network.
    pub fn subnet(mut self, subnet: Subnet) -> Self {
        self.subnet = Some(subnet);
        self
    }

    /// Opens the root folder, creates it if needed, and takes over the VMs of an earlier runtime.
    ///
    /// # Errors
    ///
    /// If the folder cannot be created or read, or another runtime has it ([`io::ErrorKind::WouldBlock`]).
    pub async fn open(self) -> io::Result<MicrovmRuntime> {
        let root = std::path::absolute(self.root)?;
        let (pods_dir, containers_dir) = (root.join("pods"), root.join("containers"));
        for dir in [&pods_dir, &containers_dir] {
            // Only for this user: who can speak to an engine has the VM.
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let lock = Lock::take(&root.join("lock"))?;
        let abandon = CancellationToken::new();
        let shared = Arc::new(Shared {
            engine: self.engine,
            root,
            pods_dir,
            containers_dir,
            images: ImageStore::new(self.images),
            subnet: self.subnet,
            pods: Mutex::default(),
            slots: Mutex::default(),
            ended: Ends::new(),
            tasks: TaskTracker::new(),
            abandon: abandon.clone(),
            _lock: lock,
        });
        shared.adopt_pods().await?;
        shared.adopt_machines().await?;
        Ok(MicrovmRuntime { shared, _abandon: abandon.drop_guard() })
    }
}

impl MicrovmRuntime {
    /// Returns a builder of a runtime that keeps its state in the folder `root`, and has its images in the folder `images`.
    pub fn builder(root: impl Into<PathBuf>, images: impl Into<PathBuf>) -> MicrovmRuntimeBuilder {
        MicrovmRuntimeBuilder {
            root: root.into(),
            images: images.into(),
            engine: "cloud-hypervisor".into(),
            subnet: None,
        }
    }

    /// Ends all pods, and returns when nothing of them runs.
    pub async fn shutdown(&self) {
        let pods: Vec<_> = self.shared.pods.lock().keys().cloned().collect();
        for ended in join_all(pods.iter().map(|key| self.end(key))).await {
            if let Err(error) = ended {
                tracing::warn!(%error, "cannot end a pod");
            }
        }
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }

    async fn get(&self, key: &ContainerKey) -> Result<Arc<Machine>> {
        self.shared.find(key).await.ok_or_else(|| RuntimeError::gone(key, "no such container"))
    }
}

impl Shared {
    /// The container of this key. Waits until its start is over.
    async fn find(&self, key: &ContainerKey) -> Option<Arc<Machine>> {
        loop {
            let mut starting = match self.slots.lock().get(key)? {
                Slot::Started(machine) => return Some(machine.clone()),
                Slot::Starting(over) => over.clone(),
            };
            // Nothing is sent: this waits until the sender is dropped.
            while starting.changed().await.is_ok() {}
        }
    }

    fn machines(&self) -> Vec<Arc<Machine>> {
        let slots = self.slots.lock();
        let started = |slot: &Slot| match slot {
            Slot::Started(machine) => Some(machine.clone()),
            Slot::Starting(_) => None,
        };
        slots.values().filter_map(started).collect()
    }

    /// Starts a container. Runs to its end, even if the caller has gone.
    async fn start(self: &Arc<Self>, spec: &ContainerSpec) -> Result<Arc<Machine>> {
        let key = &spec.key;
        let image = self.images.find(&spec.image)?;
        let pod = self.pod(&spec.pod_key()).filter(|pod| pod.is_up());
        let pod = pod.ok_or_else(|| RuntimeError::transient(key, "its pod has not begun, or has ended"))?;
        let _turn = pod.turn.lock().await;
        let other =
            self.machines().into_iter().find(|other| other.is_in(&pod) && other.container().is_running());
        if let Some(other) = other {
            let name = &other.key.container;
            let message = format!("a pod has one virtual machine at a time, and {name:?} is running");
            return Err(RuntimeError::permanent(key, message));
        }
        let dir = self.containers_dir.join(format!("{}_{}_{}", key.pod, key.container, key.attempt));
        let machine = Machine::boot(pod.clone(), image, spec, dir).await?;
        self.slots.lock().insert(key.clone(), Slot::Started(machine.clone()));
        self.supervise(machine.clone());
        Ok(machine)
    }

    fn supervise(self: &Arc<Self>, machine: Arc<Machine>) {
        let (ended, abandon) = (self.ended.clone(), self.abandon.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                // First: the next agent takes the console, and its end is then not that of the guest.
                biased;
                () = abandon.cancelled() => {}
                () = machine.run() => {
                    ended.report(machine.key.clone());
                }
            }
        });
    }

    /// Takes over the containers of an earlier agent.
    async fn adopt_machines(self: &Arc<Self>) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.containers_dir)? {
            let dir = entry?.path();
            let pod = record::read::<ContainerRecord>(&dir)?.and_then(|record| self.pod(&record.pod_key()));
            if let Some(machine) = Machine::adopt(dir, pod).await? {
                self.slots.lock().insert(machine.key.clone(), Slot::Started(machine.clone()));
                if machine.container().is_running() {
                    self.supervise(machine);
                }
            }
        }
        Ok(())
    }
}

/// The right to start a container. When it is dropped, the place of a container that was not started is free again.
struct StartTurn {
    shared: Arc<Shared>,
    key: ContainerKey,
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

#[async_trait::async_trait]
impl ContainerRuntime for MicrovmRuntime {
    fn name(&self) -> &str {
        "microvm"
    }

    async fn list(&self) -> Result<Vec<Container>> {
        Ok(self.shared.machines().iter().map(|machine| machine.container()).collect())
    }

    async fn inspect(&self, key: &ContainerKey) -> Result<Container> {
        let machine = self.get(key).await?;
        let mut container = machine.container();
        if container.is_running() {
            container.info.extend(machine.counters().await.map(|counters| ("counters".to_owned(), counters)));
        }
        Ok(container)
    }

    async fn start(&self, spec: &ContainerSpec) -> Result<Container> {
        loop {
            if let Some(machine) = self.shared.find(&spec.key).await {
                return Ok(machine.container());
            }
            let turn = {
                let mut slots = self.shared.slots.lock();
                if slots.contains_key(&spec.key) {
                    continue;
                }
                let (over, starting) = watch::channel(());
                slots.insert(spec.key.clone(), Slot::Starting(starting));
                StartTurn { shared: self.shared.clone(), key: spec.key.clone(), _over: over }
            };
            // A task of its own: if this call is dropped, the start goes on, and its result is in the list.
            let spec = spec.clone();
            let start = self.shared.tasks.spawn(async move { turn.shared.start(&spec).await });
            return match start.await {
                Ok(started) => started.map(|machine| machine.container()),
                Err(error) => Err(RuntimeError::transient(self.name(), error.to_string())),
            };
        }
    }

    async fn stop(&self, key: &ContainerKey, grace: Duration) -> Result<()> {
        if let Some(machine) = self.shared.find(key).await {
            machine.stop(grace).await;
        }
        Ok(())
    }

    async fn remove(&self, key: &ContainerKey) -> Result<()> {
        if let Some(machine) = self.shared.find(key).await {
            machine.remove()?;
            self.shared.slots.lock().remove(key);
        }
        Ok(())
    }

    fn data_dir(&self) -> Option<&Path> {
        Some(&self.shared.root)
    }

    fn pods(&self) -> Option<&dyn Pods> {
        Some(self)
    }

    fn images(&self) -> Option<&dyn Images> {
        Some(&self.shared.images)
    }

    fn attach(&self) -> Option<&dyn Attach> {
        Some(self)
    }

    fn port_forward(&self) -> Option<&dyn PortForward> {
        Some(self)
    }

    fn logs(&self) -> Option<&dyn Logs> {
        Some(self)
    }

    fn events(&self) -> Option<&dyn Events> {
        Some(&self.shared.ended)
    }
}

#[async_trait::async_trait]
impl Attach for MicrovmRuntime {
    async fn attach(&self, key: &ContainerKey, streams: ClientStreams) -> Result<()> {
        let machine = self.get(key).await?;
        if streams.stdin.is_some() && !machine.has_input {
            return Err(RuntimeError::permanent(
                key,
                "nobody can type at its console: its spec does not set stdin",
            ));
        }
        let (mut said, keyboard) = (machine.console.listen(), machine.console.keyboard());
        let (stdin, mut stdout) = (streams.stdin, streams.stdout);
        let typing = async {
            if let Some(mut stdin) = stdin {
                let mut buffer = vec![0; 1024];
                while let Ok(count @ 1..) = stdin.read(&mut buffer).await {
                    if keyboard.send(Bytes::copy_from_slice(&buffer[..count])).await.is_err() {
                        break;
                    }
                }
            }
            std::future::pending::<()>().await;
        };
        let listening = async {
            loop {
                let piece = tokio::select! {
                    biased;
                    piece = said.recv() => piece,
                    () = machine.ended() => return Ok(()),
                };
                match (piece, &mut stdout) {
                    (Ok(piece), Some(client)) => {
                        if client.write_all(&piece).await.is_err() || client.flush().await.is_err() {
                            return Ok(());
                        }
                    }
                    (Ok(_), None) => {}
                    (Err(RecvError::Closed), _) => return Ok(()),
                    (Err(RecvError::Lagged(_)), _) => {
                        return Err(RuntimeError::transient(
                            key,
                            "the client reads more slowly than the guest writes",
                        ));
                    }
                }
            }
        };
        tokio::select! {
            ended = listening => ended,
            () = typing => Ok(()),
        }
    }
}

#[async_trait::async_trait]
impl PortForward for MicrovmRuntime {
    async fn connect(&self, pod: &PodUid, port: u16) -> Result<Box<dyn ByteStream>> {
        let guest = {
            let pods = self.shared.pods.lock();
            let mut up = pods.iter().filter(|(key, vm)| key.uid == *pod && vm.is_up());
            up.find_map(|(_, vm)| vm.guest())
        };
        let guest = guest.ok_or_else(|| RuntimeError::permanent(format!("pod {pod}"), "has no address"))?;
        match TcpStream::connect((guest, port)).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(RuntimeError::transient(format!("{guest}:{port}"), error.to_string())),
        }
    }
}

#[async_trait::async_trait]
impl Logs for MicrovmRuntime {
    async fn reopen(&self, key: &ContainerKey) -> Result<()> {
        let reopened = self.get(key).await?.console.reopen();
        reopened.map_err(|error| RuntimeError::transient(key, error.to_string()))
    }
}
