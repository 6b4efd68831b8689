//! Clients over TLS, whose certificate lives five minutes.
//!
//! Sockets answer in real time, so virtual time must not run while they are waited for: it [stands](Still) but for the steps
//! that a test takes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Node;
use kube_client::api::{Patch, PatchParams, PostParams, WatchEvent};
use kube_client::{Api, Client};
use kubelet_core::{Clock, Disk, Jitter};
use kubelet_node::Error;
use kubelet_node::certificate::{ApiServerAccess, ApiServerAccessBuilder, Connections};
use kubelet_testing::{ApiServer, User};
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::rig::{NODE, Running};

/// Keeps virtual time where it is, but for `tokio::time::advance`, until it is dropped: a paused clock is not moved on while a
/// blocking task runs.
struct Still {
    _until_dropped: std::sync::mpsc::Sender<()>,
}

impl Still {
    fn new() -> Self {
        let (_until_dropped, dropped) = std::sync::mpsc::channel();
        tokio::task::spawn_blocking(move || dropped.recv());
        Still { _until_dropped }
    }
}

struct Served {
    _still: Still,
    dir: TempDir,
    clock: Clock,
    server: ApiServer,
    address: SocketAddr,
    shutdown: CancellationToken,
    task: JoinHandle<std::io::Result<()>>,
}

impl Served {
    async fn start() -> Self {
        // The certificate of the server is judged by the time that it really is.
        let clock = Clock::starting_at(Clock::system().now());
        let server = ApiServer::builder()
            .clock(clock)
            .sign_certificates()
            .signing_duration(Duration::from_secs(300));
        let server = server.build();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (shutdown, served) = (CancellationToken::new(), server.clone());
        let stop = shutdown.clone();
        let task = tokio::spawn(async move { served.serve_tls(listener, stop).await });
        Served {
            _still: Still::new(),
            dir: tempfile::tempdir().unwrap(),
            clock,
            server,
            address,
            shutdown,
            task,
        }
    }

    fn access(&self) -> ApiServerAccessBuilder {
        ApiServerAccess::builder(
            NODE,
            self.dir.path().join("kubelet.conf"),
            self.dir.path().join("pki"),
        )
        .clock(self.clock)
        .disk(Disk::inline())
        .jitter(Jitter::from_seed(3))
    }

    /// A node that has its first certificate.
    async fn join(&self) -> (Running, Connections) {
        let bootstrap = self.dir.path().join("bootstrap-kubelet.conf");
        let text = self
            .server
            .kubeconfig_tls(self.address, User::bootstrapper("abcdef"));
        std::fs::write(&bootstrap, text).unwrap();
        let access = self
            .access()
            .bootstrap_kubeconfig(bootstrap)
            .open()
            .await
            .unwrap();
        let connections = access.connections().clone();
        let running = Running::start(access);
        running.next().await;
        let node: Node = serde_json::from_value(json!({"metadata": {"name": NODE}})).unwrap();
        nodes(&running.client)
            .create(&PostParams::default(), &node)
            .await
            .unwrap();
        (running, connections)
    }

    async fn end(self, running: Running) {
        running.end().await;
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap();
    }
}

fn nodes(client: &Client) -> Api<Node> {
    Api::all(client.clone())
}

async fn beat(client: &Client, count: usize) -> kube_client::Result<()> {
    let patch = json!({"metadata": {"annotations": {"beat": count.to_string()}}});
    nodes(client)
        .patch_status(NODE, &PatchParams::default(), &Patch::Strategic(patch))
        .await
        .map(|_| ())
}

/// A watch of the node that is open for two hours.
async fn watch(
    client: &Client,
) -> futures::stream::BoxStream<'static, kube_client::Result<WatchEvent<Node>>> {
    let path = format!(
        "/api/v1/nodes?watch=true&timeoutSeconds=7200&resourceVersion=0&fieldSelector=metadata.name%3D{NODE}"
    );
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    client.request_events(request).await.unwrap().boxed()
}

#[tokio::test(start_paused = true)]
async fn outlive_their_certificates() {
    let served = Served::start().await;
    let (running, connections) = served.join().await;
    let heartbeats = connections.apart(|config| config.read_timeout = Some(Duration::from_secs(40)));
    let (client, heart) = (running.client.clone(), heartbeats.client());
    let mut events = watch(&client).await;

    let mut certificates = vec![running.certificates.current().unwrap()];
    for count in 0..30 * 6 {
        tokio::time::advance(Duration::from_secs(10)).await;
        // On connections whose certificate is over, these would be refused.
        beat(&heart, count).await.unwrap();
        nodes(&client).get(NODE).await.unwrap();
        let newest = running.certificates.current().unwrap();
        if !Arc::ptr_eq(&newest, certificates.last().unwrap()) {
            certificates.push(newest);
        }
        // The watch was opened with the first certificate, and still receives all events.
        loop {
            let event = events.try_next().await.unwrap().unwrap();
            let (WatchEvent::Added(node) | WatchEvent::Modified(node)) = event else {
                continue;
            };
            if node.metadata.annotations.unwrap_or_default().get("beat") == Some(&count.to_string()) {
                break;
            }
        }
    }
    assert!(certificates.len() >= 7, "{}", certificates.len());
    assert!(
        certificates
            .iter()
            .all(|certificate| certificate.lifetime().as_secs() == 600),
        "five minutes from now"
    );
    assert!(certificates[0].is_expired(served.clock.now()));
    drop(events);
    served.end(running).await;
}

#[tokio::test(start_paused = true)]
async fn are_closed_when_it_is_asked_for() {
    let served = Served::start().await;
    let (running, connections) = served.join().await;
    let client = running.client.clone();
    let mut events = watch(&client).await;
    events.try_next().await.unwrap().unwrap();

    connections.close_idle();
    beat(&client, 1).await.unwrap();
    events.try_next().await.unwrap().unwrap();

    connections.close_all();
    assert!(
        !matches!(events.try_next().await, Ok(Some(_))),
        "the watch goes with its connection"
    );
    beat(&client, 2).await.unwrap();
    let mut events = watch(&client).await;
    events.try_next().await.unwrap().unwrap();
    drop(events);
    served.end(running).await;
}

/// As those of the kubelet, which speaks HTTP/2: a storm of requests does not leave as many connections behind.
#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn are_shared_by_all_requests() {
    let served = Served::start().await;
    let (running, _) = served.join().await;
    let requests = (0..50).map(|_| {
        let nodes = nodes(&running.client);
        async move { nodes.get(NODE).await }
    });
    futures::future::try_join_all(requests).await.unwrap();
    let mut events = watch(&running.client).await;
    events.try_next().await.unwrap().unwrap();
    // That of the bootstrap token, and one more.
    let open = open_connections(served.address.port());
    assert!(open <= 2, "{open}");
    drop(events);
    served.end(running).await;
}

/// More watches than a server allows on one connection do not block other requests.
#[tokio::test]
async fn are_as_many_as_watches_need() {
    let served = Served::start().await;
    let (running, _) = served.join().await;
    let mut watches = Vec::new();
    for _ in 0..250 {
        let mut events = watch(&running.client).await;
        events.try_next().await.unwrap().unwrap();
        watches.push(events);
    }
    nodes(&running.client).get(NODE).await.unwrap();
    #[cfg(target_os = "linux")]
    {
        // That of the bootstrap token, and three more.
        let open = open_connections(served.address.port());
        assert!((3..=4).contains(&open), "{open}");
    }
    drop(watches);
    served.end(running).await;
}

/// How many connections of this process to a port are established.
#[cfg(target_os = "linux")]
fn open_connections(port: u16) -> usize {
    let connections = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let to = format!(":{port:04X}");
    let is_one = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields[2].ends_with(&to) && fields[3] == "01"
    };
    connections.lines().skip(1).filter(is_one).count()
}

/// Without a token there is no way back. Who starts the agent again may have new credentials by then.
#[tokio::test(start_paused = true)]
async fn a_node_that_slept_too_long_ends() {
    let served = Served::start().await;
    let (running, _) = served.join().await;
    running.end().await;
    tokio::time::advance(Duration::from_secs(3600)).await;
    let started = served.clock.now();
    let running = Running::start(served.access().open().await.unwrap());
    let client = running.client.clone();
    let refused = nodes(&client).get(NODE).await.unwrap_err();
    assert!(
        matches!(&refused, kube_client::Error::Api(status) if [401, 403].contains(&status.code)),
        "{refused}"
    );
    let mut ended = std::pin::pin!(running.ended());
    let ended = loop {
        // What the node asked for in a step is answered about as soon as this is.
        let step = async {
            nodes(&client).get(NODE).await.unwrap_err();
            tokio::time::advance(Duration::from_secs(1)).await;
        };
        tokio::select! {
            biased;
            ended = &mut ended => break ended,
            () = step => {}
        }
    };
    let error = ended.unwrap_err();
    let Error::NoValidCertificate { last_error, .. } = &error else {
        panic!("{error}")
    };
    assert!(last_error.contains("Unauthorized"), "{error}");
    let lived = served.clock.now().duration_since(started).as_secs();
    assert!((300..=320).contains(&lived), "{lived} s");
    served.shutdown.cancel();
    served.task.await.unwrap().unwrap();
}
