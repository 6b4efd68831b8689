//! An agent in a cluster, with an API server in memory.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kubelet_agent::{NodeAgent, Settings};
use kubelet_testing::{ApiServer, MemoryRuntime, PodBuilder, User, eventually};
use tokio_util::sync::CancellationToken;

use crate::handle::clock;

const NODE: &str = "node-1";

#[tokio::test]
async fn a_node_joins_with_a_client_and_runs_a_pod() {
    let (folder, server) = (tempfile::tempdir().unwrap(), ApiServer::new());
    let mut settings = Settings::new(folder.path());
    settings.node_name = NODE.to_owned();
    settings.node_ip = "127.0.0.1".to_owned();
    settings.node_labels.insert("tier".to_owned(), "edge".to_owned());
    let agent = NodeAgent::builder(settings)
        .containers(Arc::new(MemoryRuntime::new(clock())))
        .client(server.client_as(User::node(NODE)))
        .configure_node(|node| node.ready_check(Vec::new))
        .build()
        .await
        .unwrap();
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(agent.run(shutdown.clone()));

    let node = || server.get::<Node>("", NODE).unwrap();
    let node = eventually!(node(), |node| node.is_some()).unwrap();
    assert_eq!(node.metadata.labels.unwrap()["tier"], "edge");
    let pod = PodBuilder::new("web")
        .container("main", "nginx", |c| c)
        .node_name(NODE)
        .build();
    server.create(&*pod).unwrap();
    let phase = || server.get::<Pod>("default", "web").unwrap()?.status?.phase;
    eventually!(phase(), |phase| phase.as_deref() == Some("Running"));
    let started = || {
        server
            .list::<Event>()
            .unwrap()
            .into_iter()
            .any(|it| it.reason.as_deref() == Some("Started"))
    };
    eventually!(started(), |started| *started);

    shutdown.cancel();
    running.await.unwrap().unwrap();
}
