//! The five verbs, and what else the runtime can do: images, logs, stats, events.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::net::Ipv4Addr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use kubelet_core::{Clock, PodUid};
use kubelet_cri::verbs::{
    ByteStream, Container, ContainerKey, ContainerRuntime, ContainerSpec, Ends, Events, Images, Logs,
    PortForward, Result, RuntimeError, Stats, Usage,
};
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;

use crate::container::Instance;
use crate::files;
use crate::images::ImageStore;
use crate::program::Compiler;

/// Runs WebAssembly modules as containers, on threads of their own.
pub struct WasmRuntime {
    containers_dir: PathBuf,
    images: ImageStore,
    compiler: Arc<Compiler>,
    containers: Mutex<BTreeMap<ContainerKey, Arc<Instance>>>,
    ended: Ends,
    tasks: TaskTracker,
    /// `None` only while it is dropped.
    threads: Option<tokio::runtime::Runtime>,
}

/// Configures a [`WasmRuntime`].
#[must_use]
pub struct WasmRuntimeBuilder {
    root: PathBuf,
    modules: Option<PathBuf>,
    insecure_registries: Vec<String>,
}

impl WasmRuntimeBuilder {
    /// The folder of the host with the images whose names begin with `file/`. Without it there are none.
    pub fn modules(mut self, dir: impl Into<PathBuf>) -> Self {
        self.modules = Some(dir.into());
        self
    }

    /// Pulls from these registries, `HOST:PORT`, without TLS.
    pub fn insecure_registries(mut self, registries: Vec<String>) -> Self {
        self.insecure_registries = registries;
        self
    }

    /// Opens the root folder, and creates it if needed. The containers of an earlier runtime ended with it.
    ///
    /// # Errors
    ///
    /// If the folder cannot be created or read, or WebAssembly cannot be compiled on this machine.
    pub fn open(self) -> std::io::Result<WasmRuntime> {
        let root = std::path::absolute(self.root)?;
        let containers_dir = root.join("containers");
        files::remove(&containers_dir)?;
        // Only for this user: the folders of containers have what their pods mount.
        DirBuilder::new().recursive(true).mode(0o700).create(&containers_dir)?;
        let images = ImageStore::open(root.join("images"), self.modules, self.insecure_registries)?;
        let compiler = Compiler::new(&root.join("images/compiled")).map_err(std::io::Error::other)?;
        let threads = tokio::runtime::Builder::new_multi_thread().enable_all().thread_name("wasm").build()?;
        Ok(WasmRuntime {
            containers_dir,
            images,
            compiler: Arc::new(compiler),
            containers: Mutex::default(),
            ended: Ends::new(),
            tasks: TaskTracker::new(),
            threads: Some(threads),
        })
    }
}

impl WasmRuntime {
    /// Returns a builder of a runtime that keeps its images in this folder.
    pub fn builder(root: impl Into<PathBuf>) -> WasmRuntimeBuilder {
        WasmRuntimeBuilder { root: root.into(), modules: None, insecure_registries: Vec::new() }
    }

    /// Kills all containers, and returns when their tasks have ended.
    pub async fn shutdown(&self) {
        let containers: Vec<_> = self.containers.lock().values().cloned().collect();
        join_all(containers.iter().map(|container| container.stop(Duration::ZERO))).await;
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn find(&self, key: &ContainerKey) -> Option<Arc<Instance>> {
        self.containers.lock().get(key).cloned()
    }

    fn get(&self, key: &ContainerKey) -> Result<Arc<Instance>> {
        self.find(key).ok_or_else(|| RuntimeError::gone(key, "no such container"))
    }
}

impl Drop for WasmRuntime {
    /// The modules end at their next epoch.
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

#[async_trait::async_trait]
impl ContainerRuntime for WasmRuntime {
    fn name(&self) -> &str {
        "wasm"
    }

    async fn list(&self) -> Result<Vec<Container>> {
        Ok(self.containers.lock().values().map(|container| container.container()).collect())
    }

    async fn inspect(&self, key: &ContainerKey) -> Result<Container> {
        Ok(self.get(key)?.container())
    }

    async fn start(&self, spec: &ContainerSpec) -> Result<Container> {
        if let Some(container) = self.find(&spec.key) {
            return Ok(container.container());
        }
        let program = self.images.program(&spec.image, &self.compiler).await?;
        // No await from here on: a start that its caller drops either did nothing or is complete.
        let mut containers = self.containers.lock();
        if let Some(container) = containers.get(&spec.key) {
            return Ok(container.container());
        }
        let ContainerKey { pod, container, attempt } = &spec.key;
        let dir = self.containers_dir.join(format!("{pod}_{container}_{attempt}"));
        let (instance, state) = Instance::new(spec, dir, Clock::system().now())?;
        let instance = Arc::new(instance);
        containers.insert(spec.key.clone(), instance.clone());
        let (compiler, ended, run) = (self.compiler.clone(), self.ended.clone(), instance.clone());
        let task = async move {
            run.run(compiler, program, state).await;
            ended.report(run.container().key);
        };
        if let Some(threads) = &self.threads {
            self.tasks.spawn_on(task, threads.handle());
        }
        Ok(instance.container())
    }

    async fn stop(&self, key: &ContainerKey, grace: Duration) -> Result<()> {
        if let Some(container) = self.find(key) {
            container.stop(grace).await;
        }
        Ok(())
    }

    async fn remove(&self, key: &ContainerKey) -> Result<()> {
        let mut containers = self.containers.lock();
        if let Some(container) = containers.get(key) {
            container.remove()?;
            containers.remove(key);
        }
        Ok(())
    }

    fn data_dir(&self) -> Option<&Path> {
        Some(&self.containers_dir)
    }

    fn images(&self) -> Option<&dyn Images> {
        Some(&self.images)
    }

    fn port_forward(&self) -> Option<&dyn PortForward> {
        Some(self)
    }

    fn logs(&self) -> Option<&dyn Logs> {
        Some(self)
    }

    fn stats(&self) -> Option<&dyn Stats> {
        Some(self)
    }

    fn events(&self) -> Option<&dyn Events> {
        Some(&self.ended)
    }
}

#[async_trait::async_trait]
impl PortForward for WasmRuntime {
    /// All pods have the network of the host.
    async fn connect(&self, _pod: &PodUid, port: u16) -> Result<Box<dyn ByteStream>> {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(RuntimeError::transient(format!("port {port}"), error.to_string())),
        }
    }
}

#[async_trait::async_trait]
impl Logs for WasmRuntime {
    async fn reopen(&self, key: &ContainerKey) -> Result<()> {
        self.get(key)?.reopen_log()
    }
}

#[async_trait::async_trait]
impl Stats for WasmRuntime {
    async fn usage(&self, key: &ContainerKey) -> Result<Usage> {
        self.get(key)?.usage()
    }
}
