//! A node agent that runs pods as processes of this machine, without root and without a daemon. It reads the pods of
//! a folder and prints their statuses as lines of JSON.
//!
//! `cargo run --example agent-on-processes`

use std::sync::Arc;

use kubelet_config::{FileSource, PodConfig};
use kubelet_core::{Kubelet, PodCache};
use kubelet_cri::CriAdapter;
use kubelet_cri::process::ProcessRuntime;
use kubelet_kuberuntime::CriRuntime;
use kubelet_pleg::GenericPleg;
use kubelet_status::{JsonLines, StatusManager};
use kubelet_volume::{InTreePlugins, NodeVolumes};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let root = std::env::temp_dir().join("agent-on-processes");
    let manifests = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests");

    let processes = Arc::new(ProcessRuntime::builder(root.join("processes")).open().await?);
    let services = Arc::new(CriAdapter::builder(processes).records_dir(root.join("cri")).build());
    let volumes = NodeVolumes::builder(&root).plugins(InTreePlugins::new(&root).build()).build()?;
    let mounted = Arc::new(volumes.handle());
    let runtime = CriRuntime::builder(services.clone(), services).volumes(mounted.clone()).root_dir(&root);
    let runtime = Arc::new(runtime.pod_logs_dir(root.join("logs")).build().await?);
    let cache = PodCache::new();
    let kubelet = Kubelet::builder()
        .pods(PodConfig::builder().source(FileSource::new(manifests, "node-1")).build()?)
        .pleg(GenericPleg::new(runtime.clone(), cache.clone()), cache)
        .runtime(runtime)
        .statuses(StatusManager::new(JsonLines::stdout()))
        .volumes(mounted)
        .root_dir(&root)
        .build()?;
    let (handle, shutdown) = (kubelet.handle(), CancellationToken::new());
    tokio::spawn(volumes.run(CancellationToken::new()));
    let agent = tokio::spawn(kubelet.run(shutdown.clone()));
    tokio::signal::ctrl_c().await?;
    handle.end_pods(None).await; // or leave them running: the next agent on this folder takes them over
    shutdown.cancel();
    Ok(agent.await??)
}
