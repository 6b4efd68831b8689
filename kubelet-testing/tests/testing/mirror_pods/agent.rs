//! An agent of this project that runs static pods and reports to an API server in memory.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::unfold;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube_client::Api;
use kube_client::api::PostParams;
use kubelet_config::{ApiServerSource, PodConfig, StreamSource};
use kubelet_core::{Clock, Jitter, Kubelet, PodCache, PodExt, annotations};
use kubelet_cri::CriAdapter;
use kubelet_kuberuntime::CriRuntime;
use kubelet_pleg::GenericPleg;
use kubelet_status::{
    ApiServerMirrorClient, ApiServerNode, ApiServerSink, StatusManager, StatusManagerConfig,
    StatusManagerHandle,
};
use kubelet_testing::{ApiServer, MemoryRuntime};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A node with static pods on an API server.
pub(crate) struct Agent {
    pub(crate) server: ApiServer,
    pub(crate) statuses: StatusManagerHandle,
    pub(crate) containers: Arc<MemoryRuntime>,
    pub(crate) manifests: watch::Sender<Vec<Arc<Pod>>>,
    shutdown: CancellationToken,
    running: JoinHandle<kubelet_core::Result<()>>,
    _root: TempDir,
}

impl Agent {
    /// In virtual time.
    pub(crate) async fn start() -> Self {
        Self::start_at(Self::virtual_clock()).await
    }

    pub(crate) async fn start_at(clock: Clock) -> Self {
        let agent = Self::start_unregistered(clock).await;
        agent.register().await;
        agent
    }

    pub(crate) fn virtual_clock() -> Clock {
        Clock::starting_at(Timestamp::constant(1_767_225_600, 0))
    }

    pub(crate) async fn register(&self) {
        let nodes: Api<Node> = Api::all(self.server.client());
        nodes.create(&PostParams::default(), &node()).await.unwrap();
    }

    /// The API server does not know the node yet.
    pub(crate) async fn start_unregistered(clock: Clock) -> Self {
        let server = ApiServer::builder().clock(clock).seed(7).build();
        let root = TempDir::new().unwrap();
        let manifests = watch::Sender::new(Vec::new());
        let desired = unfold((manifests.subscribe(), true), |(mut pods, first)| async move {
            if !first {
                pods.changed().await.ok()?;
            }
            let now: Vec<Arc<Pod>> = pods.borrow_and_update().clone();
            Some((now, (pods, false)))
        });
        let jitter = Jitter::from_seed(7);
        let config = PodConfig::builder()
            .source(StreamSource::new("file", desired))
            .source(ApiServerSource::new(server.client(), "node-1").jitter(jitter.clone()))
            .clock(clock)
            .build()
            .unwrap();
        let containers = Arc::new(MemoryRuntime::new(clock));
        let adapter = Arc::new(CriAdapter::builder(containers.clone()).clock(clock).build());
        let runtime = CriRuntime::builder(adapter.clone(), adapter)
            .root_dir(root.path().join("kubelet"))
            .pod_logs_dir(root.path().join("logs"))
            .clock(clock)
            .build()
            .await
            .unwrap();
        let (runtime, cache) = (Arc::new(runtime), PodCache::new());
        let mut statuses = StatusManagerConfig::default();
        statuses.clock = clock;
        let manager = StatusManager::with_config(ApiServerSink::new(server.client()), statuses);
        let statuses = manager.handle();
        let kubelet = Kubelet::builder()
            .pods(config)
            .runtime(runtime.clone())
            .pleg(GenericPleg::new(runtime, cache.clone()).with_clock(clock), cache)
            .statuses(manager)
            .node(Arc::new(
                ApiServerNode::new(server.client(), "node-1").with_initial_node(Arc::new(node())),
            ))
            .mirrors(Arc::new(ApiServerMirrorClient::new(server.client())))
            .root_dir(root.path().join("kubelet"))
            .clock(clock)
            .jitter(jitter)
            .build()
            .unwrap();
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(kubelet.run(shutdown.clone()));
        Self {
            server,
            statuses,
            containers,
            manifests,
            shutdown,
            running,
            _root: root,
        }
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.server.client(), "default")
    }

    /// The pod `web` on the server, once it fulfils the condition; checked every virtual second.
    pub(crate) async fn until(&self, what: &str, reached: impl Fn(Option<&Pod>) -> bool) -> Option<Pod> {
        let deadline = Instant::now() + Duration::from_secs(600);
        loop {
            let web = self.pods().get_opt("web").await.unwrap();
            if reached(web.as_ref()) {
                return web;
            }
            assert!(Instant::now() < deadline, "never: {what}; but {web:#?}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// The mirror pod with this static pod's hash, once it shows the pod running.
    pub(crate) async fn mirror_of(&self, hash: &str) -> Pod {
        let shows = |pod: Option<&Pod>| {
            pod.is_some_and(|pod| {
                let status = pod.status.as_ref();
                pod.annotation(annotations::CONFIG_MIRROR) == Some(hash)
                    && status.and_then(|status| status.phase.as_deref()) == Some("Running")
            })
        };
        self.until(&format!("a running mirror of {hash}"), shows)
            .await
            .unwrap()
    }

    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        self.running.await.unwrap().unwrap();
    }
}

pub(crate) fn node() -> Node {
    let node = json!({"metadata": {"name": "node-1"}, "status": {"allocatable": {"pods": "10"}}});
    serde_json::from_value(node).unwrap()
}

/// As from a source of manifests: with a hash, and a UID derived from it.
pub(crate) fn static_pod(hash: &str) -> Arc<Pod> {
    let pod = json!({
        "metadata": {
            "name": "web",
            "namespace": "default",
            "uid": format!("uid-of-{hash}"),
            "annotations": {annotations::CONFIG_HASH: hash},
        },
        "spec": {
            "nodeName": "node-1",
            "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "main", "image": "busybox:1.36"}],
        },
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}
