//! Static pods and their mirrors: an agent of this project on an API server in memory, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on")]

use std::sync::Arc;
use std::time::Duration;

use futures::stream::unfold;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube_client::Api;
use kube_client::api::{DeleteParams, PostParams};
use kubelet_config::{ApiServerSource, PodConfig, StreamSource};
use kubelet_core::{Clock, Jitter, Kubelet, PodCache, PodExt, annotations};
use kubelet_cri::{CriAdapter, CriRuntime};
use kubelet_pleg::GenericPleg;
use kubelet_status::{
    ApiServerMirrorClient, ApiServerNode, ApiServerSink, StatusManager, StatusManagerConfig,
};
use kubelet_testing::{ApiServer, MemoryRuntime};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

struct Agent {
    server: ApiServer,
    manifests: watch::Sender<Vec<Arc<Pod>>>,
    shutdown: CancellationToken,
    running: JoinHandle<kubelet_core::Result<()>>,
    _root: TempDir,
}

impl Agent {
    async fn start() -> Self {
        let clock = Clock::starting_at(Timestamp::constant(1_767_225_600, 0));
        let server = ApiServer::builder().clock(clock).seed(7).build();
        let nodes: Api<Node> = Api::all(server.client());
        nodes.create(&PostParams::default(), &node()).await.unwrap();

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
        let adapter = Arc::new(
            CriAdapter::builder(Arc::new(MemoryRuntime::new(clock)))
                .clock(clock)
                .build(),
        );
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
        let statuses = StatusManager::with_config(ApiServerSink::new(server.client()), statuses);
        let kubelet = Kubelet::builder()
            .pods(config)
            .runtime(runtime.clone())
            .pleg(GenericPleg::new(runtime, cache.clone()).with_clock(clock), cache)
            .statuses(statuses)
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
            manifests,
            shutdown,
            running,
            _root: root,
        }
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.server.client(), "default")
    }

    /// The pod `web` on the server, once it is as it should be. Looked at each virtual second.
    async fn until(&self, what: &str, reached: impl Fn(Option<&Pod>) -> bool) -> Option<Pod> {
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

    /// The mirror that shows the static pod of this hash, and that it runs.
    async fn mirror_of(&self, hash: &str) -> Pod {
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

    async fn stop(self) {
        self.shutdown.cancel();
        self.running.await.unwrap().unwrap();
    }
}

fn node() -> Node {
    let node = json!({"metadata": {"name": "node-1"}, "status": {"allocatable": {"pods": "10"}}});
    serde_json::from_value(node).unwrap()
}

/// As a source of manifests makes it: with a hash, and a UID that is made of it.
fn static_pod(hash: &str) -> Arc<Pod> {
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

#[tokio::test(start_paused = true)]
async fn a_static_pod_is_shown_by_a_mirror_while_it_is_there() {
    let agent = Agent::start().await;
    agent.manifests.send_replace(vec![static_pod("one")]);
    let first = agent.mirror_of("one").await;
    let owners = first.metadata.owner_references.clone().unwrap();
    let node: Node = Api::all(agent.server.client()).get("node-1").await.unwrap();
    assert_eq!(owners.len(), 1);
    assert_eq!(
        (&*owners[0].kind, Some(&owners[0].uid)),
        ("Node", node.metadata.uid.as_ref())
    );
    assert_ne!(first.uid_str(), "uid-of-one", "the mirror has a UID of its own");

    // Somebody deletes it: there is another at once.
    let now = DeleteParams::default().grace_period(0);
    agent.pods().delete("web", &now).await.unwrap();
    let second = agent.mirror_of("one").await;
    assert_ne!(second.uid_str(), first.uid_str());

    // Somebody deletes it with a grace period: it is deleted for good and made anew.
    agent
        .pods()
        .delete("web", &DeleteParams::default())
        .await
        .unwrap();
    let again = |pod: Option<&Pod>| pod.is_some_and(|pod| pod.uid_str() != second.uid_str());
    agent.until("a mirror that is not being deleted", again).await;

    // The manifest changes.
    agent.manifests.send_replace(vec![static_pod("two")]);
    agent.mirror_of("two").await;

    // The manifest goes, and with it the mirror.
    agent.manifests.send_replace(vec![]);
    agent.until("no mirror", |pod| pod.is_none()).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_mirror_that_was_left_behind_is_deleted() {
    let agent = Agent::start().await;
    agent.manifests.send_replace(vec![static_pod("one")]);
    let left = agent.mirror_of("one").await;
    agent.manifests.send_replace(vec![]);
    agent.until("no mirror", |pod| pod.is_none()).await;
    // As one of a former agent that was stopped before it could.
    let mut left = left.clone();
    left.metadata.resource_version = None;
    left.metadata.uid = None;
    left.status = None;
    agent.pods().create(&PostParams::default(), &left).await.unwrap();
    agent.until("no mirror", |pod| pod.is_none()).await;
    agent.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_its_node_there_is_no_mirror() {
    let agent = Agent::start().await;
    let nodes: Api<Node> = Api::all(agent.server.client());
    nodes.delete("node-1", &DeleteParams::default()).await.unwrap();
    agent.manifests.send_replace(vec![static_pod("one")]);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(agent.pods().get_opt("web").await.unwrap().is_none());

    nodes.create(&PostParams::default(), &node()).await.unwrap();
    agent.mirror_of("one").await;
    agent.stop().await;
}
