//! The beginning of the guide's chapter: a node that runs modules of WASI preview 1, in a hundred lines.
//!
//! `cargo run --example one-module -- 127.0.0.1:6443 ~/one-module`

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use kubelet_agent::{NodeAgent, Settings};
use kubelet_core::Clock;
use kubelet_cri::verbs::{
    Container, ContainerKey, ContainerLog, ContainerRuntime, ContainerSpec, LogStream, Result, RuntimeError,
};
use parking_lot::Mutex;
use tokio::io::AsyncWrite;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use wasmtime::{Engine, Linker, Module, Store};
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p1::{WasiP1Ctx, add_to_linker_async};
use wasmtime_wasi::{I32Exit, WasiCtxBuilder};

/// A container, and the task that it is.
type Running = (Arc<Mutex<Container>>, AbortHandle);

struct Wasm {
    engine: Engine,
    modules: PathBuf,
    containers: Mutex<BTreeMap<ContainerKey, Running>>,
}

#[async_trait::async_trait]
impl ContainerRuntime for Wasm {
    fn name(&self) -> &str {
        "wasm"
    }
    async fn list(&self) -> Result<Vec<Container>> {
        Ok(self.containers.lock().values().map(|(container, _)| container.lock().clone()).collect())
    }
    async fn start(&self, spec: &ContainerSpec) -> Result<Container> {
        let mut containers = self.containers.lock();
        if let Some((container, _)) = containers.get(&spec.key) {
            return Ok(container.lock().clone());
        }
        let failed = |error: String| RuntimeError::permanent(&spec.key, error);
        let file = self.modules.join(&spec.image);
        let wasm = wat::parse_file(file).map_err(|error| failed(error.to_string()))?;
        let module = Module::new(&self.engine, wasm).map_err(|error| failed(format!("{error:#}")))?;
        let mut wasi = WasiCtxBuilder::new();
        wasi.arg(&spec.image).args(&spec.args);
        for variable in &spec.env {
            wasi.env(&variable.name, String::from_utf8_lossy(&variable.value));
        }
        if let Some(path) = &spec.log_path {
            let log = ContainerLog::open(path, Clock::system()).map_err(|error| failed(error.to_string()))?;
            wasi.stdout(Output(Arc::new(Mutex::new(log))));
        }
        let container = Arc::new(Mutex::new(Container::running(spec.key.clone(), Clock::system().now())));
        let (started, store) = (container.lock().clone(), Store::new(&self.engine, wasi.build_p1()));
        let ends = container.clone();
        let task = tokio::spawn(async move {
            let code = exit_code(run(module, store).await);
            ends.lock().exited(code, Clock::system().now());
        });
        containers.insert(spec.key.clone(), (container, task.abort_handle()));
        Ok(started)
    }
    async fn stop(&self, key: &ContainerKey, _grace: Duration) -> Result<()> {
        if let Some((container, task)) = self.containers.lock().get(key) {
            task.abort();
            container.lock().exited(143, Clock::system().now());
        }
        Ok(())
    }
    async fn remove(&self, key: &ContainerKey) -> Result<()> {
        self.containers.lock().remove(key);
        Ok(())
    }
}

async fn run(module: Module, mut store: Store<WasiP1Ctx>) -> wasmtime::Result<()> {
    let mut linker = Linker::new(store.engine());
    add_to_linker_async(&mut linker, |wasi| wasi)?;
    let instance = linker.instantiate_async(&mut store, &module).await?;
    instance.get_typed_func::<(), ()>(&mut store, "_start")?.call_async(&mut store, ()).await
}

fn exit_code(ended: wasmtime::Result<()>) -> i32 {
    match ended {
        Ok(()) => 0,
        Err(error) => error.downcast_ref::<I32Exit>().map_or(134, |exit| exit.0),
    }
}

#[derive(Clone)]
struct Output(Arc<Mutex<ContainerLog>>);

impl IsTerminal for Output {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Output {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }
}

impl AsyncWrite for Output {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(self.0.lock().write(LogStream::Stdout, bytes).map(|()| bytes.len()))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().ok_or("an address is missing")?.parse()?;
    let folder = arguments.next().ok_or("a folder is missing")?;
    let modules = concat!(env!("CARGO_MANIFEST_DIR"), "/modules").into();
    let wasm = Wasm { engine: Engine::default(), modules, containers: Mutex::default() };
    let agent = NodeAgent::builder(Settings::new(std::path::absolute(folder)?));
    let agent = agent.containers(Arc::new(wasm)).serve_kubectl(address).build().await?;
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(agent.run(shutdown.clone()));
    tokio::signal::ctrl_c().await?;
    shutdown.cancel();
    Ok(running.await??)
}
