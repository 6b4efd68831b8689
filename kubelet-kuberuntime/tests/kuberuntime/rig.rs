//! A manager on a runtime in memory, with its events.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::Pod;
use kubelet_core::runtime::{PodStatus, PodSyncResult};
use kubelet_core::{Clock, Event, EventRecorder, PodExt, RootDir, Runtime, RuntimeReader};
use kubelet_kuberuntime::{CriRuntime, CriRuntimeBuilder, NodeSettings};
use serde_json::Value;
use tokio::time::Instant;

use crate::fake::Fake;

/// A runtime, its manager, and the recorded events.
pub(crate) struct Rig {
    pub(crate) fake: Arc<Fake>,
    pub(crate) events: Arc<Events>,
    pub(crate) manager: CriRuntime,
    pub(crate) dir: tempfile::TempDir,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        let clock = Clock::starting_at("2024-01-01T00:00:00Z".parse().unwrap());
        let fake = Arc::new(Fake::new(clock));
        let dir = tempfile::tempdir().unwrap();
        let events = Arc::new(Events::default());
        let manager = builder(&fake, &events, &dir).build().await.unwrap();
        Self {
            fake,
            events,
            manager,
            dir,
        }
    }

    /// Another manager on the same runtime, as after a restart of the agent.
    pub(crate) async fn restart(&mut self) {
        self.manager = self.builder().build().await.unwrap();
    }

    pub(crate) fn builder(&self) -> CriRuntimeBuilder {
        builder(&self.fake, &self.events, &self.dir)
    }

    pub(crate) async fn status(&self, pod: &Pod) -> Arc<PodStatus> {
        match self.manager.pod(&pod.uid()).await.unwrap() {
            Some(listed) => self.manager.pod_status(&listed).await.unwrap(),
            None => Arc::new(PodStatus::empty(pod.uid(), pod.key(), Instant::now())),
        }
    }

    pub(crate) async fn sync(&self, pod: &Arc<Pod>) -> PodSyncResult {
        let status = self.status(pod).await;
        self.manager.sync_pod(pod, &status).await
    }

    /// Syncs and expects success.
    pub(crate) async fn sync_ok(&self, pod: &Arc<Pod>) {
        let result = self.sync(pod).await;
        assert!(result.is_ok(), "{:?}", result.summary());
    }
}

fn builder(fake: &Arc<Fake>, events: &Arc<Events>, dir: &tempfile::TempDir) -> CriRuntimeBuilder {
    let mut node = NodeSettings::default();
    node.root_dir = RootDir::new(dir.path().join("root"));
    node.pod_logs_dir = dir.path().join("logs");
    node.resolv_conf = None;
    node.cluster_dns = vec![[10, 96, 0, 10].into()];
    CriRuntime::builder(fake.clone(), fake.clone())
        .node(node)
        .clock(fake.clock)
        .events(events.clone())
}

/// A pod of the namespace `ns`; its name is its UID.
pub(crate) fn pod(name: &str, spec: Value) -> Arc<Pod> {
    Arc::new(
        serde_json::from_value(serde_json::json!({
            "metadata": { "name": name, "namespace": "ns", "uid": name },
            "spec": spec,
        }))
        .unwrap(),
    )
}

/// Events as `reason part: message`.
#[derive(Default)]
pub(crate) struct Events(Mutex<Vec<String>>);

impl Events {
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Only the reasons.
    pub(crate) fn take_reasons(&self) -> Vec<String> {
        let reason = |event: String| event.split(' ').next().unwrap().to_owned();
        self.take().into_iter().map(reason).collect()
    }
}

impl EventRecorder for Events {
    fn record(&self, event: Event<'_>) {
        let part = event.field_path.unwrap_or_default();
        let text = format!("{} {part}: {}", event.reason, event.message);
        self.0.lock().unwrap().push(text);
    }
}
