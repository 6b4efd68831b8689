//! A node agent with your own container runtime: implement five verbs, and it runs pods. This one runs nothing and
//! only keeps records; yours starts a microVM, a Wasm module or a batch job.
//!
//! `cargo run --example runtime-of-your-own`

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kubelet_config::{FileSource, PodConfig};
use kubelet_core::{Clock, Kubelet, PodCache};
use kubelet_cri::CriAdapter;
use kubelet_cri::verbs::{Container, ContainerKey, ContainerRuntime, ContainerSpec, Result};
use kubelet_kuberuntime::CriRuntime;
use kubelet_pleg::GenericPleg;
use kubelet_status::{JsonLines, StatusManager};
use kubelet_volume::{InTreePlugins, NodeVolumes};

#[derive(Default)]
struct Pretend(Mutex<BTreeMap<ContainerKey, Container>>);

#[async_trait::async_trait]
impl ContainerRuntime for Pretend {
    fn name(&self) -> &str {
        "pretend"
    }
    async fn list(&self) -> Result<Vec<Container>> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect())
    }
    async fn start(&self, spec: &ContainerSpec) -> Result<Container> {
        let mut containers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let started = || Container::running(spec.key.clone(), Clock::system().now());
        Ok(containers.entry(spec.key.clone()).or_insert_with(started).clone())
    }
    async fn stop(&self, key: &ContainerKey, _grace: Duration) -> Result<()> {
        if let Some(container) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(key) {
            container.exited(0, Clock::system().now());
        }
        Ok(())
    }
    async fn remove(&self, key: &ContainerKey) -> Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let root = std::env::temp_dir().join("runtime-of-your-own");
    let services = Arc::new(CriAdapter::builder(Arc::new(Pretend::default())).build());
    let volumes = NodeVolumes::builder(&root).plugins(InTreePlugins::new(&root).build()).build()?;
    let mounted = Arc::new(volumes.handle());
    let runtime = CriRuntime::builder(services.clone(), services).volumes(mounted.clone()).root_dir(&root);
    let runtime = Arc::new(runtime.pod_logs_dir(root.join("logs")).build().await?);
    let cache = PodCache::new();
    let manifests = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests");
    let kubelet = Kubelet::builder()
        .pods(PodConfig::builder().source(FileSource::new(manifests, "node-1")).build()?)
        .pleg(GenericPleg::new(runtime.clone(), cache.clone()), cache)
        .runtime(runtime)
        .statuses(StatusManager::new(JsonLines::stdout()))
        .volumes(mounted)
        .root_dir(&root)
        .build()?;
    tokio::spawn(volumes.run(Default::default()));
    Ok(kubelet.run(Default::default()).await?)
}
