//! All of the program that is about Kubernetes: the two nodes that it can be.

use std::ffi::OsString;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use kubelet_agent::program::{Command, Program, signalled};
use kubelet_agent::{NodeAgent, Settings};
use tokio_util::sync::CancellationToken;
use wasm_node::WasmRuntime;

use crate::Result;

/// A node with an API server in its own process. It ends with Ctrl-C, and its modules with it.
pub(crate) async fn without_cluster(
    settings: Settings,
    wasm: Arc<WasmRuntime>,
    address: SocketAddr,
) -> Result<()> {
    let agent = NodeAgent::builder(settings).containers(wasm).serve_kubectl(address).build().await?;
    let (handle, shutdown) = (agent.handle(), CancellationToken::new());
    let api = handle.api_server().ok_or("no API server")?;
    writeln!(std::io::stdout(), "export KUBECONFIG={}", api.kubeconfig().display())?;
    let running = tokio::spawn(agent.run(shutdown.clone()));
    signalled()?.await;
    shutdown.cancel();
    Ok(running.await??)
}

/// A kubelet, with its flags, its configuration and its kubeconfig.
pub(crate) async fn of_cluster(
    arguments: Vec<OsString>,
    open: impl FnOnce(&Settings) -> Result<Arc<WasmRuntime>>,
) -> Result<()> {
    let program = match Program::parse("wasm-node", arguments)? {
        Command::Run(program) => program,
        Command::Preflight(program) if program.preflight().await? => return Ok(()),
        Command::Preflight(_) => return Err("the node would not start, or cannot join its cluster".into()),
        _ => return Ok(()),
    };
    let (verbosity, metrics) = (program.start_log()?, program.start_metrics()?);
    let settings = program.settings()?;
    let wasm = open(&settings)?;
    let agent = NodeAgent::builder(settings).containers(wasm).verbosity(verbosity).metrics(metrics);
    Ok(program.run(agent.build(), signalled()?).await?)
}
