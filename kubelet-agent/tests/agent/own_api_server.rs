//! An agent with its own API server, driven over HTTPS with the kubeconfig that it writes.

use std::path::Path;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_client::api::{DeleteParams, ListParams, PostParams, WatchParams};
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Api, Client, Config, ResourceExt as _};
use kubelet_agent::{Error, NodeAgent, Reconfigured, Settings};
use kubelet_core::Clock;
use kubelet_cri::verbs::ContainerRuntime;
use kubelet_testing::MemoryRuntime;
use tokio_util::sync::CancellationToken;

const NODE: &str = "one";
const POD_IP: &str = "192.0.2.7";

fn settings(folder: &Path) -> Settings {
    let mut settings = Settings::new(folder.join("agent"));
    settings.node_name = NODE.to_owned();
    settings
}

async fn start(folder: &Path, runtime: impl ContainerRuntime + 'static) -> NodeAgent {
    let agent = NodeAgent::builder(settings(folder)).containers(Arc::new(runtime));
    let agent = agent.serve_kubectl(([127, 0, 0, 1], 0).into());
    agent
        .configure_adapter(|adapter| adapter.pod_ip(POD_IP.parse().unwrap()))
        .configure_node(|node| node.ready_check(Vec::new))
        .build()
        .await
        .unwrap()
}

/// A client as `kubectl` has it.
async fn client(agent: &NodeAgent) -> Client {
    let handle = agent.handle();
    let api = handle.api_server().unwrap();
    assert!(api.address().ip().is_loopback() && api.address().port() > 0);
    let config = Kubeconfig::read_from(api.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    Client::try_from(config.unwrap()).unwrap()
}

/// Asks again until the answer is right.
async fn until<T>(what: &str, mut answer: impl AsyncFnMut() -> Option<T>) -> T {
    let wait = async {
        loop {
            if let Some(answer) = answer().await {
                return answer;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(std::time::Duration::from_secs(120), wait).await;
    waited.unwrap_or_else(|_| panic!("not in time: {what}"))
}

fn pod() -> Pod {
    serde_json::from_value(serde_json::json!({
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "main", "image": "any"}], "terminationGracePeriodSeconds": 1},
    }))
    .unwrap()
}

async fn phase(pods: &Api<Pod>, phase: &str) {
    let is = async || {
        let pod = pods.get_opt("web").await.unwrap()?;
        (pod.status?.phase.as_deref() == Some(phase)).then_some(())
    };
    until("the phase of the pod", is).await;
}

#[tokio::test]
async fn what_is_created_over_https_runs() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = MemoryRuntime::new(Clock::system());
    let agent = start(folder.path(), runtime.clone()).await;
    let (client, shutdown) = (client(&agent).await, CancellationToken::new());
    let own = agent.handle().api_server().unwrap().client();
    let running = tokio::spawn(agent.run(shutdown.clone()));

    let nodes = Api::<Node>::all(client.clone());
    until("the node", async || nodes.get_opt(NODE).await.unwrap()).await;
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let created = pods.create(&PostParams::default(), &pod()).await.unwrap();
    phase(&pods, "Running").await;
    // A client that stays in the process sees the same.
    let own = Api::<Pod>::default_namespaced(own);
    let running_pod = own.get("web").await.unwrap();
    assert_eq!(running_pod.metadata.uid, created.metadata.uid);
    assert_eq!(running_pod.status.unwrap().pod_ip.as_deref(), Some(POD_IP));
    pods.delete("web", &DeleteParams::default()).await.unwrap();
    until("the pod is gone", async || {
        pods.get_opt("web").await.unwrap().is_none().then_some(())
    })
    .await;
    shutdown.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn agents_one_after_the_other_have_the_same_objects() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = MemoryRuntime::new(Clock::system());
    // What may outlive the first agent.
    let mut kept = Vec::new();
    let mut names = Vec::new();
    for name in ["one", "two"] {
        let agent = start(folder.path(), runtime.clone()).await;
        let (handle, shutdown) = (agent.handle(), CancellationToken::new());
        let client = handle.api_server().unwrap().client();
        let running = tokio::spawn(agent.run(shutdown.clone()));
        let maps = Api::<ConfigMap>::default_namespaced(client.clone());
        let watch = maps.watch(&WatchParams::default(), "0").await.unwrap();
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        };
        maps.create(&PostParams::default(), &map).await.unwrap();
        let listed = maps.list(&ListParams::default()).await.unwrap();
        names = listed.iter().map(|map| map.name_any()).collect();
        shutdown.cancel();
        running.await.unwrap().unwrap();
        kept.push((handle, client, watch.boxed()));
    }
    assert_eq!(names, ["kube-root-ca.crt", "one", "two"]);
}

#[tokio::test]
async fn an_agent_that_never_ran_leaves_the_folder_to_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = MemoryRuntime::new(Clock::system());
    let agent = start(folder.path(), runtime.clone()).await;
    let _kept = agent.handle();
    drop(agent);
    start(folder.path(), runtime.clone()).await;
}

#[tokio::test]
async fn the_fields_that_the_agent_sets_wait_for_no_restart() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = MemoryRuntime::new(Clock::system());
    let handle = start(folder.path(), runtime.clone()).await.handle();
    let mut wanted = settings(folder.path()).configuration;
    assert_eq!(handle.reconfigure(&wanted).unwrap(), Reconfigured::default());
    wanted.max_pods = 7;
    wanted.node_lease_duration_seconds += 1;
    let done = handle.reconfigure(&wanted).unwrap();
    assert_eq!(
        (&*done.applied, &*done.needs_restart),
        (&[][..], &["maxPods".to_owned()][..])
    );
}

#[tokio::test]
async fn a_pod_misses_no_dns_server_of_the_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = MemoryRuntime::new(Clock::system());
    let agent = start(folder.path(), runtime.clone()).await;
    let (handle, shutdown) = (agent.handle(), CancellationToken::new());
    let (mut events, client) = (handle.events(), handle.api_server().unwrap().client());
    let running = tokio::spawn(agent.run(shutdown.clone()));
    let pods = Api::<Pod>::default_namespaced(client);
    pods.create(&PostParams::default(), &pod()).await.unwrap();
    // The pod's container starts after its sandbox, which has the DNS settings.
    loop {
        let event = events.recv().await.unwrap();
        assert_ne!(event.reason, "MissingClusterDNS", "{event:?}");
        if event.reason == "Started" {
            break;
        }
    }
    shutdown.cancel();
    running.await.unwrap().unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_first_request_shows_the_usage_of_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let processes = kubelet_cri::process::ProcessRuntime::builder(folder.path().join("processes"));
    let agent = start(folder.path(), processes.open().await.unwrap()).await;
    let (client, shutdown) = (
        agent.handle().api_server().unwrap().client(),
        CancellationToken::new(),
    );
    let running = tokio::spawn(agent.run(shutdown.clone()));
    let nodes = Api::<Node>::all(client.clone());
    until("the node", async || nodes.get_opt(NODE).await.unwrap()).await;
    let request =
        kube_client::core::Request::new("/apis/metrics.k8s.io/v1beta1/nodes").list(&ListParams::default());
    let usage: serde_json::Value = client.request(request.unwrap()).await.unwrap();
    assert_eq!(usage["items"][0]["metadata"]["name"], NODE, "{usage}");
    let window = &usage["items"][0]["window"];
    assert!(
        window.as_str().is_some_and(|window| window.starts_with("1.")),
        "{window}"
    );
    shutdown.cancel();
    running.await.unwrap().unwrap();
}

#[tokio::test]
async fn one_api_server_is_enough() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = settings(folder.path());
    settings.kubeconfig = "/etc/kubernetes/kubelet.conf".into();
    settings.configuration.enable_server = true;
    let agent = NodeAgent::builder(settings).containers(Arc::new(MemoryRuntime::new(Clock::system())));
    match agent.serve_kubectl(([127, 0, 0, 1], 0).into()).build().await {
        Err(Error::Misconfigured { problems }) => {
            for words in ["a node has one API server", "without a port"] {
                let is_named = problems.iter().any(|problem| problem.contains(words));
                assert!(is_named, "{words}: {problems:#?}");
            }
        }
        other => panic!("{other:?}"),
    }
    assert!(!folder.path().join("agent").exists());
}

#[tokio::test]
async fn a_console_without_authentication_is_on_the_loopback_only() {
    let folder = tempfile::tempdir().unwrap();
    let agent = NodeAgent::builder(settings(folder.path()))
        .containers(Arc::new(MemoryRuntime::new(Clock::system())))
        .console(kubelet_agent::ConsoleAt::Loopback(([192, 0, 2, 1], 8080).into()));
    let refused = agent.build().await.unwrap_err().to_string();
    assert!(
        refused.contains("must be an address of the loopback"),
        "{refused}"
    );
}
