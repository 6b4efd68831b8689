//! A node without a cluster: pods are processes of this machine, and `kubectl` drives them.
//!
//! ```console
//! $ cargo run -p kubelet-agent --features api --example node-for-kubectl -- 127.0.0.1:6443 ~/my-node
//! $ KUBECONFIG=~/my-node/kubeconfig kubectl get pods
//! ```

#![allow(clippy::print_stdout, reason = "a program")]

use std::path::PathBuf;
use std::sync::Arc;

use kubelet_agent::{NodeAgent, Settings};
use kubelet_cri::process::ProcessRuntime;
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (address, folder) = (
        arguments.next().ok_or("an address is missing")?.parse()?,
        PathBuf::from(arguments.next().ok_or("a folder is missing")?),
    );
    let processes = ProcessRuntime::builder(folder.join("processes")).open().await?;
    let agent = NodeAgent::builder(Settings::new(folder))
        .containers(Arc::new(processes)) // or `.cri()`, or your own runtime
        .serve_kubectl(address)
        .build()
        .await?;
    let (handle, shutdown) = (agent.handle(), CancellationToken::new());
    let api = handle.api_server().ok_or("no API server")?;
    println!("serves https://{}; export KUBECONFIG={}", api.address(), api.kubeconfig().display());
    let running = tokio::spawn(agent.run(shutdown.clone()));
    tokio::signal::ctrl_c().await?;
    shutdown.cancel(); // the pods run on, and the next agent on this folder takes them over
    Ok(running.await??)
}
