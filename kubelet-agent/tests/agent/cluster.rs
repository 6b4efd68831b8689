//! An agent in a cluster, with an API server in memory.

use std::path::Path;
use std::sync::Arc;

use k8s_openapi::api::authentication::v1::TokenReview;
use k8s_openapi::api::core::v1::{Event, Node, Pod, ServiceAccount};
use kube_client::Client;
use kube_client::api::{Api, PostParams};
use kubelet_agent::{NodeAgent, Result, Settings};
use kubelet_config::credential_provider::CredentialProviderConfig;
use kubelet_testing::{ApiServer, MemoryRuntime, PodBuilder, User, eventually};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::handle::clock;

const NODE: &str = "node-1";

fn settings(folder: &Path) -> Settings {
    let mut settings = Settings::new(folder);
    settings.node_name = NODE.to_owned();
    settings.node_ip = "127.0.0.1".to_owned();
    settings
}

/// Runs an agent with a runtime in memory, in the cluster of this client.
async fn join(settings: Settings, client: Client) -> (CancellationToken, JoinHandle<Result<()>>) {
    let agent = NodeAgent::builder(settings)
        .containers(Arc::new(MemoryRuntime::new(clock())))
        .client(client)
        .configure_node(|node| node.ready_check(Vec::new))
        .build()
        .await
        .unwrap();
    let shutdown = CancellationToken::new();
    (shutdown.clone(), tokio::spawn(agent.run(shutdown)))
}

#[tokio::test]
async fn a_node_joins_with_a_client_and_runs_a_pod() {
    let (folder, server) = (tempfile::tempdir().unwrap(), ApiServer::new());
    let mut settings = settings(folder.path());
    settings.node_labels.insert("tier".to_owned(), "edge".to_owned());
    let (shutdown, running) = join(settings, server.client_as(User::node(NODE))).await;

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

#[tokio::test]
async fn a_credential_provider_gets_a_token_of_the_pods_service_account() {
    let (folder, server) = (tempfile::tempdir().unwrap(), ApiServer::new());
    let account = serde_json::json!({"metadata": {"name": "builder", "namespace": "default",
        "annotations": {"example.com/role": "puller"}}});
    let account: ServiceAccount = serde_json::from_value(account).unwrap();
    server.create(&account).unwrap();
    let request = folder.path().join("request");
    let yaml = format!(
        "apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: test
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ['registry.example/team']
  defaultCacheDuration: 0s
  args: [-c, 'cat > {0}.new && mv {0}.new {0} && exit 1']
  tokenAttributes:
    serviceAccountTokenAudience: registry.example
    cacheType: Token
    requireServiceAccount: true
    requiredServiceAccountAnnotationKeys: [example.com/role]
",
        request.display()
    );
    let mut settings = settings(folder.path());
    let providers = CredentialProviderConfig::from_yaml(&yaml).unwrap().providers;
    settings.credential_providers = providers.into_iter().map(|it| ("/bin/sh".into(), it)).collect();
    let (shutdown, running) = join(settings, server.client()).await;
    eventually!(server.get::<Node>("", NODE).unwrap(), |node| node.is_some());
    let pod = PodBuilder::new("web")
        .container("main", "registry.example/team/app:1", |c| {
            c.image_pull_policy("Always")
        })
        .service_account_name("builder")
        .node_name(NODE)
        .build();
    server.create(&*pod).unwrap();

    let read = || std::fs::read(&request).unwrap_or_default();
    let request = eventually!(read(), |request| !request.is_empty());
    let request: serde_json::Value = serde_json::from_slice(&request).unwrap();
    assert_eq!(request["image"], "registry.example/team/app");
    let annotations = serde_json::json!({"example.com/role": "puller"});
    assert_eq!(request["serviceAccountAnnotations"], annotations);
    let token = request["serviceAccountToken"].as_str().unwrap();
    let review =
        serde_json::json!({"metadata": {}, "spec": {"token": token, "audiences": ["registry.example"]}});
    let review: TokenReview = serde_json::from_value(review).unwrap();
    let reviews = Api::<TokenReview>::all(server.client());
    let review = reviews.create(&PostParams::default(), &review).await.unwrap();
    let user = review.status.unwrap().user.unwrap();
    assert_eq!(
        user.username.as_deref(),
        Some("system:serviceaccount:default:builder")
    );

    shutdown.cancel();
    running.await.unwrap().unwrap();
}
