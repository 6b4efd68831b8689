use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kubelet_core::{ContainerId, PodExt, PodManager, PodStatusInput, PodStatusReporter, PodUid};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};

use super::v1alpha1::grpc_client::pods_client::PodsClient;
use super::v1alpha1::{EventType, GetPodRequest, ListPodsRequest, WatchPodsEvent, WatchPodsRequest};
use super::{PodsApi, bind, encode};

#[derive(Default)]
struct Statuses(Mutex<HashMap<PodUid, Arc<PodStatus>>>);

impl PodStatusReporter for Statuses {
    fn generate(&self, _: &PodStatusInput<'_>) -> PodStatus {
        PodStatus::default()
    }

    fn pod_status(&self, uid: &PodUid) -> Option<Arc<PodStatus>> {
        self.0.lock().get(uid).cloned()
    }

    fn set_pod_status(&self, pod: &Arc<Pod>, status: PodStatus) {
        self.0.lock().insert(pod.uid(), Arc::new(status));
    }

    fn terminate_pod(&self, _: &Arc<Pod>) {}
    fn observe_pod(&self, _: &Arc<Pod>) {}
    fn remove_orphaned_statuses(&self, _: &HashSet<PodUid>) {}
    fn set_container_readiness(&self, _: &PodUid, _: &ContainerId, _: bool) {}
    fn set_container_startup(&self, _: &PodUid, _: &ContainerId, _: bool) {}
}

fn pod(uid: &str, image: &str) -> Arc<Pod> {
    let pod = serde_json::json!({
        "metadata": {"name": format!("name-{uid}"), "namespace": "default", "uid": uid},
        "spec": {"containers": [{"name": "c", "image": image}]},
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn status(phase: &str) -> PodStatus {
    PodStatus {
        phase: Some(phase.to_owned()),
        ..PodStatus::default()
    }
}

/// An API on a socket in a folder of its own.
struct Served {
    _folder: TempDir,
    path: PathBuf,
    pods: PodManager,
    statuses: Arc<Statuses>,
    api: PodsApi,
    shutdown: CancellationToken,
    serving: JoinHandle<()>,
}

impl Served {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(super::SOCKET);
        let (pods, statuses) = (PodManager::new(), Arc::new(Statuses::default()));
        let api = PodsApi::new(pods.clone(), statuses.clone());
        let shutdown = CancellationToken::new();
        let listener = bind(&path).unwrap();
        let (served, until) = (api.clone(), shutdown.clone());
        let serving = tokio::spawn(async move { served.serve(listener, until).await });
        Self {
            _folder: folder,
            path,
            pods,
            statuses,
            api,
            shutdown,
            serving,
        }
    }

    async fn client(&self) -> PodsClient<Channel> {
        let path = self.path.clone();
        let connect = tower::service_fn(move |_| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        let endpoint = Endpoint::from_static("http://node");
        PodsClient::new(endpoint.connect_with_connector(connect).await.unwrap())
    }

    async fn watch(&self) -> Streaming<WatchPodsEvent> {
        let mut client = self.client().await;
        client.watch_pods(WatchPodsRequest {}).await.unwrap().into_inner()
    }
}

async fn next(watch: &mut Streaming<WatchPodsEvent>) -> (EventType, Vec<u8>) {
    let event = watch.message().await.unwrap().unwrap();
    (event.r#type(), event.pod)
}

fn encoded(pod: &Pod, status: Option<&PodStatus>) -> Vec<u8> {
    encode::pod(pod, status).unwrap()
}

#[tokio::test]
async fn lists_and_gets_pods_with_their_statuses() {
    let served = Served::new();
    let (a, b) = (pod("a", "1"), pod("b", "1"));
    served.pods.set_pod(b.clone());
    served.pods.set_pod(a.clone());
    served.statuses.set_pod_status(&b, status("Running"));
    let b = encoded(&b, Some(&status("Running")));
    let mut client = served.client().await;
    let list = client.list_pods(ListPodsRequest {}).await.unwrap().into_inner();
    assert_eq!(list.pods, [encoded(&a, None), b.clone()]);
    let request = GetPodRequest { pod_uid: "b".into() };
    assert_eq!(client.get_pod(request).await.unwrap().into_inner().pod, b);
    let request = GetPodRequest { pod_uid: "c".into() };
    let error = client.get_pod(request).await.unwrap_err();
    assert_eq!(
        (error.code(), error.message()),
        (Code::NotFound, "pod with UID c not found")
    );
}

#[tokio::test]
async fn watches_pods_and_statuses() {
    let served = Served::new();
    let (a, b) = (pod("a", "1"), pod("b", "1"));
    served.pods.set_pod(b.clone());
    served.pods.set_pod(a.clone());
    let mut watch = served.watch().await;
    assert_eq!(next(&mut watch).await, (EventType::Added, encoded(&a, None)));
    assert_eq!(next(&mut watch).await, (EventType::Added, encoded(&b, None)));
    assert_eq!(
        next(&mut watch).await,
        (EventType::InitialSyncComplete, Vec::new())
    );

    let c = pod("c", "1");
    served.pods.set_pod(c.clone());
    assert_eq!(next(&mut watch).await, (EventType::Added, encoded(&c, None)));
    let c = pod("c", "2");
    served.pods.set_pod(c.clone());
    assert_eq!(next(&mut watch).await, (EventType::Modified, encoded(&c, None)));
    served.statuses.set_pod_status(&a, status("Running"));
    served.api.status_changed(&a.uid());
    let running = encoded(&a, Some(&status("Running")));
    assert_eq!(next(&mut watch).await, (EventType::Modified, running));
    served.pods.remove_pod(&a);
    let mut left = Pod::default();
    left.metadata.name = Some("name-a".to_owned());
    left.metadata.namespace = Some("default".to_owned());
    left.metadata.uid = Some("a".to_owned());
    assert_eq!(next(&mut watch).await, (EventType::Deleted, encoded(&left, None)));
    // A status that comes after the pod is gone is no event.
    served.api.status_changed(&a.uid());
    served.pods.set_pod(pod("d", "1"));
    assert_eq!(
        next(&mut watch).await,
        (EventType::Added, encoded(&pod("d", "1"), None))
    );
}

#[tokio::test]
async fn slow_watch_gets_last_states_and_others_do_not_wait() {
    let served = Served::new();
    let (mut quick, mut slow) = (served.watch().await, served.watch().await);
    for watch in [&mut quick, &mut slow] {
        assert_eq!(next(watch).await.0, EventType::InitialSyncComplete);
    }
    // More than fits into the windows of a connection that nobody reads.
    let image = "i".repeat(1000);
    let mut sent = 0;
    for n in 0..500 {
        let last = pod("a", &format!("{image}{n}"));
        served.pods.set_pod(last.clone());
        sent += encoded(&last, None).len();
        assert_eq!(next(&mut quick).await.1, encoded(&last, None));
    }
    let last = encoded(&pod("a", &format!("{image}499")), None);
    let mut received = 0;
    loop {
        let (_, pod) = next(&mut slow).await;
        received += pod.len();
        if pod == last {
            break;
        }
    }
    assert!(received <= sent, "{received} of {sent}");
}

#[tokio::test]
async fn requests_are_limited() {
    let served = Served::new();
    let mut client = served.client().await;
    // No token is added while time stands still.
    tokio::time::pause();
    let error = loop {
        if let Err(error) = client.list_pods(ListPodsRequest {}).await {
            break error;
        }
    };
    assert_eq!(
        (error.code(), error.message()),
        (Code::ResourceExhausted, "rejected by rate limit")
    );
}

#[tokio::test]
async fn shutdown_ends_watches_and_a_new_agent_takes_the_socket() {
    let served = Served::new();
    let mut watch = served.watch().await;
    assert_eq!(next(&mut watch).await.0, EventType::InitialSyncComplete);
    served.shutdown.cancel();
    served.serving.await.unwrap();
    assert!(watch.message().await.is_err());
    let listener = bind(&served.path).unwrap();
    let _client = UnixStream::connect(&served.path).await.unwrap();
    listener.accept().await.unwrap();
}
