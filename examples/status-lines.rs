//! A status sink of your own: an agent on processes that prints a line for each change of a pod's phase.
//!
//! `cargo run --example status-lines`

#![allow(clippy::print_stdout, reason = "that is what it is for")]

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_config::{FileSource, PodConfig};
use kubelet_core::{Kubelet, PodCache, PodExt, StatusSink};
use kubelet_cri::CriAdapter;
use kubelet_cri::process::ProcessRuntime;
use kubelet_kuberuntime::CriRuntime;
use kubelet_pleg::GenericPleg;
use kubelet_status::StatusManager;
use tokio_util::sync::CancellationToken;

struct StatusLines;

#[async_trait]
impl StatusSink for StatusLines {
    async fn patch_status(
        &self,
        pod: &Arc<Pod>,
        old: &PodStatus,
        new: &PodStatus,
    ) -> kubelet_core::Result<Option<Arc<Pod>>> {
        let phase = |status: &PodStatus| status.phase.clone().unwrap_or_else(|| "new".to_owned());
        let containers = new.container_statuses.as_deref().unwrap_or_default();
        let ready = containers.iter().filter(|container| container.ready).count();
        println!("{} {} -> {}, {ready}/{} ready", pod.key(), phase(old), phase(new), containers.len());
        Ok(None)
    }

    async fn forget(&self, pod: &Arc<Pod>) -> kubelet_core::Result<()> {
        println!("{} is deleted", pod.key());
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = std::env::temp_dir().join("status-lines");
    let manifests = std::env::args().nth(1);
    let manifests = manifests.unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/manifests").to_owned());

    let processes = Arc::new(ProcessRuntime::builder(root.join("processes")).open().await?);
    let services = Arc::new(CriAdapter::builder(processes).records_dir(root.join("cri")).build());
    let runtime =
        CriRuntime::builder(services.clone(), services).root_dir(&root).pod_logs_dir(root.join("logs"));
    let runtime = Arc::new(runtime.build().await?);
    let cache = PodCache::new();
    let kubelet = Kubelet::builder()
        .pods(PodConfig::builder().source(FileSource::new(manifests, "node-1")).build()?)
        .pleg(GenericPleg::new(runtime.clone(), cache.clone()), cache)
        .runtime(runtime)
        .statuses(StatusManager::new(StatusLines))
        .root_dir(&root)
        .build()?;
    let (handle, shutdown) = (kubelet.handle(), CancellationToken::new());
    let agent = tokio::spawn(kubelet.run(shutdown.clone()));
    tokio::signal::ctrl_c().await?;
    handle.end_pods(None).await;
    shutdown.cancel();
    Ok(agent.await??)
}
