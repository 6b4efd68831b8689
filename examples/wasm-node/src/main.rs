//! A node whose pods are WebAssembly modules.
//!
//! ```console
//! $ cargo run -- --api 127.0.0.1:6443     # a node without a cluster, for kubectl
//! # wasm-node --config /var/lib/kubelet/config.yaml --kubeconfig /etc/kubernetes/kubelet.conf
//! ```
//!
//! With `--kubeconfig` and the other flags of a kubelet, it is a node of a cluster.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use kubelet_agent::program::{Command, Program, signalled};
use kubelet_agent::{NodeAgent, Settings};
use pico_args::Arguments;
use tokio_util::sync::CancellationToken;
use wasm_node::WasmRuntime;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = Arguments::from_env();
    match arguments.opt_value_from_str("--api")? {
        Some(address) => without_cluster(arguments, address).await,
        None => of_cluster(arguments).await,
    }
}

/// A node with an API server in its own process. It ends with Ctrl-C, and its modules with it.
async fn without_cluster(mut arguments: Arguments, address: SocketAddr) -> Result<()> {
    let root: Option<PathBuf> = arguments.opt_value_from_str("--root-dir")?;
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state/wasm-node"));
    let settings = Settings::new(std::path::absolute(root.or_else(home).ok_or("--root-dir is missing")?)?);
    let wasm = Flags::parse(&mut arguments)?.open(&settings)?;
    if let [unknown, ..] = &arguments.finish()[..] {
        return Err(format!("unknown argument {unknown:?}").into());
    }
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN).init();
    let agent = NodeAgent::builder(settings).containers(wasm.clone()).serve_kubectl(address).build().await?;
    let (handle, shutdown) = (agent.handle(), CancellationToken::new());
    let api = handle.api_server().ok_or("no API server")?;
    writeln!(std::io::stdout(), "export KUBECONFIG={}", api.kubeconfig().display())?;
    let running = tokio::spawn(agent.run(shutdown.clone()));
    signalled()?.await;
    shutdown.cancel();
    running.await??;
    wasm.shutdown().await;
    Ok(())
}

/// A kubelet: with its flags, its configuration and its kubeconfig.
async fn of_cluster(mut arguments: Arguments) -> Result<()> {
    let flags = Flags::parse(&mut arguments)?;
    let Command::Run(program) = Program::parse("wasm-node", arguments.finish())? else { return Ok(()) };
    let (verbosity, metrics) = (program.start_log()?, program.start_metrics()?);
    let settings = program.settings()?;
    let wasm = flags.open(&settings)?;
    let agent = NodeAgent::builder(settings).containers(wasm.clone()).verbosity(verbosity).metrics(metrics);
    program.run(agent.build(), signalled()?).await?;
    wasm.shutdown().await;
    Ok(())
}

/// The flags that a kubelet does not have.
struct Flags {
    modules: PathBuf,
    insecure_registries: Vec<String>,
}

impl Flags {
    fn parse(arguments: &mut Arguments) -> Result<Self> {
        let modules = arguments.opt_value_from_str("--modules")?;
        Ok(Self {
            modules: modules.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/modules").into()),
            insecure_registries: arguments.values_from_str("--insecure-registry")?,
        })
    }

    fn open(self, settings: &Settings) -> Result<Arc<WasmRuntime>> {
        let runtime = WasmRuntime::builder(settings.root_dir.join("wasm")).modules(self.modules);
        Ok(Arc::new(runtime.insecure_registries(self.insecure_registries).open()?))
    }
}
