//! An agent without pods, to measure what a feature of this crate costs: `kubelet-agent/features` builds and measures it.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use kubelet_agent::{NodeAgent, Settings};
use kubelet_core::StreamSource;
use kubelet_cri::verbs::{Container, ContainerKey, ContainerRuntime, ContainerSpec, Result, RuntimeError};
use tokio_util::sync::CancellationToken;

/// A runtime without containers.
struct Empty;

#[async_trait::async_trait]
impl ContainerRuntime for Empty {
    fn name(&self) -> &str {
        "empty"
    }
    async fn list(&self) -> Result<Vec<Container>> {
        Ok(Vec::new())
    }
    async fn start(&self, spec: &ContainerSpec) -> Result<Container> {
        Err(RuntimeError::unsupported(&spec.key, "this agent runs no pods"))
    }
    async fn stop(&self, _: &ContainerKey, _: Duration) -> Result<()> {
        Ok(())
    }
    async fn remove(&self, _: &ContainerKey) -> Result<()> {
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("a folder is missing")?;
    let no_pods = StreamSource::new("none", stream::iter([Vec::new()]).chain(stream::pending()));
    let agent = NodeAgent::builder(Settings::new(folder)).containers(Arc::new(Empty)).source(no_pods);
    #[cfg(feature = "api")]
    let agent = agent.serve_kubectl(([127, 0, 0, 1], 0).into());
    #[cfg(feature = "server")]
    let agent = agent.console(kubelet_agent::ConsoleAt::Loopback(([127, 0, 0, 1], 0).into()));
    Ok(agent.build().await?.run(CancellationToken::new()).await?)
}
