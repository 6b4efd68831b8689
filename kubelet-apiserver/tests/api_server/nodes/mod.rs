//! What the API server forwards to nodes.

mod fake;
mod kubectl;
mod logs;
mod metrics;
mod pod_proxy;
mod proxy;
mod streams;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Node, Pod};
use kubelet_apiserver::{ApiServer, User};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use fake::FakeNode;

/// The second request of a test must not scrape again.
const METRIC_RESOLUTION: Duration = Duration::from_secs(600);

/// An API server on a port. Its pods: `web` with one container and `pair` with two, on the node `one`; `waiting` has no
/// node.
struct Cluster {
    server: ApiServer,
    address: SocketAddr,
    shutdown: CancellationToken,
    task: JoinHandle<std::io::Result<()>>,
}

impl Cluster {
    async fn start() -> Cluster {
        let server = ApiServer::builder()
            .sign_certificates()
            .metrics_server(METRIC_RESOLUTION)
            .build();
        for (name, containers, node) in [
            ("web", &["main"][..], Some("one")),
            ("pair", &["a", "b"], Some("one")),
            ("waiting", &["main"], None),
        ] {
            let containers: Vec<Value> = containers
                .iter()
                .map(|name| json!({"name": name, "image": "busybox:1.36"}))
                .collect();
            let pod =
                json!({"metadata": {"name": name}, "spec": {"nodeName": node, "containers": containers}});
            server
                .create::<Pod>(&serde_json::from_value(pod).unwrap())
                .unwrap();
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, shutdown) = (listener.local_addr().unwrap(), CancellationToken::new());
        let (served, stop) = (server.clone(), shutdown.clone());
        let task = tokio::spawn(async move { served.serve(listener, stop).await });
        Cluster {
            server,
            address,
            shutdown,
            task,
        }
    }

    /// Registers the node `one` with the server at this port.
    fn register(&self, port: u16) {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "one"}})).unwrap();
        let mut node = self.server.create(&node).unwrap();
        node.status = serde_json::from_value(json!({
            "addresses": [{"type": "Hostname", "address": "nowhere"}, {"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        }))
        .unwrap();
        self.server.replace_status(&node).unwrap();
    }

    fn register_fake(&self, node: &FakeNode) {
        self.register(node.address.port());
    }

    async fn end(self) {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap();
    }

    /// A request of a user to the server, on a connection of its own.
    async fn send(
        &self,
        user: User,
        request: http::request::Builder,
        body: &'static str,
    ) -> Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection.with_upgrades());
        let request: Request<Full<Bytes>> = request
            .header("Host", "api.example")
            .header("Authorization", format!("Bearer {}", self.server.token_for(user)))
            .body(Full::new(Bytes::from(body)))
            .unwrap();
        sender.send_request(request).await.unwrap()
    }

    async fn get(&self, path: &str) -> Response<Incoming> {
        self.send(User::admin(), Request::get(path), "").await
    }
}

async fn text(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

/// The code, the reason and the message of a `Status`.
async fn status(response: Response<Incoming>) -> (u16, String, String) {
    let code = response.status().as_u16();
    let status: Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(status["code"], code);
    let field = |name: &str| status[name].as_str().unwrap_or_default().to_owned();
    (code, field("reason"), field("message"))
}

/// A port that refuses connections. Nobody else gets it while its socket is there.
fn closed_port() -> (TcpSocket, u16) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

#[tokio::test]
async fn discovery_lists_what_nodes_serve() {
    let cluster = Cluster::start().await;
    let list: Value = serde_json::from_str(&text(cluster.get("/api/v1").await).await).unwrap();
    let find = |name: &str| {
        let resources = list["resources"].as_array().unwrap();
        resources
            .iter()
            .find(|resource| resource["name"] == name)
            .unwrap()
    };
    for (name, kind, verbs) in [
        ("pods/log", "Pod", json!(["get"])),
        ("pods/exec", "PodExecOptions", json!(["create", "get"])),
        ("pods/attach", "PodAttachOptions", json!(["create", "get"])),
        (
            "pods/portforward",
            "PodPortForwardOptions",
            json!(["create", "get"]),
        ),
        (
            "pods/ephemeralcontainers",
            "Pod",
            json!(["get", "patch", "update"]),
        ),
        (
            "pods/proxy",
            "PodProxyOptions",
            json!(["create", "delete", "get", "patch", "update"]),
        ),
        (
            "nodes/proxy",
            "NodeProxyOptions",
            json!(["create", "delete", "get", "patch", "update"]),
        ),
    ] {
        assert_eq!(
            (&find(name)["kind"], &find(name)["verbs"]),
            (&json!(kind), &verbs),
            "{name}"
        );
    }
    let response = cluster.get("/apis/authentication.k8s.io/v1").await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(text(response).await.contains("tokenreviews"));
    cluster.end().await;
}
