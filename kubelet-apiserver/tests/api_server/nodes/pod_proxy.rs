//! `pods/proxy`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kubelet_apiserver::{ApiServer, User};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::fake::whole;
use super::{Cluster, closed_port, status, text};

/// The servers of a pod: one of HTTP, one of HTTPS.
struct FakePod {
    http: SocketAddr,
    https: SocketAddr,
    _tasks: JoinSet<()>,
}

impl FakePod {
    async fn start() -> Self {
        let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["pod".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key.into())
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let (plain, secure) = (listen().await, listen().await);
        let (http, https) = (plain.local_addr().unwrap(), secure.local_addr().unwrap());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            loop {
                answer("http", plain.accept().await.unwrap().0).await;
            }
        });
        tasks.spawn(async move {
            loop {
                let stream = secure.accept().await.unwrap().0;
                answer("https", acceptor.accept(stream).await.unwrap()).await;
            }
        });
        Self {
            http,
            https,
            _tasks: tasks,
        }
    }
}

async fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

/// Answers the requests of a connection with what came.
async fn answer(scheme: &'static str, stream: impl AsyncRead + AsyncWrite + Unpin) {
    let service = service_fn(move |request: Request<Incoming>| async move {
        assert!(!request.headers().contains_key("authorization"));
        let line = format!("{scheme} {} {}", request.method(), request.uri());
        Ok::<_, Infallible>(whole(200, &line))
    });
    let server = hyper::server::conn::http1::Builder::new();
    let _ = server.serve_connection(TokioIo::new(stream), service).await;
}

/// A pod at this address, which declares this port in its second container.
fn create(server: &ApiServer, name: &str, address: Option<&str>, port: u16) {
    let pod = json!({"metadata": {"name": name}, "spec": {"nodeName": "one", "containers": [
        {"name": "first", "image": "busybox:1.36"},
        {"name": "second", "image": "busybox:1.36", "ports": [{"name": "web", "containerPort": port}]},
    ]}});
    let mut pod = server
        .create::<Pod>(&serde_json::from_value(pod).unwrap())
        .unwrap();
    let addresses: Vec<_> = address.iter().map(|ip| json!({"ip": ip})).collect();
    pod.status = serde_json::from_value(json!({"podIP": address, "podIPs": addresses})).unwrap();
    server.replace_status(&pod).unwrap();
}

#[tokio::test]
async fn goes_to_the_pods_address_and_port() {
    let cluster = Cluster::start().await;
    let pod = FakePod::start().await;
    create(&cluster.server, "p", Some("127.0.0.1"), pod.http.port());
    let (http, https) = (pod.http.port(), pod.https.port());
    for (name, scheme) in [
        ("p".to_owned(), "http"),
        (format!("p:{http}"), "http"),
        ("http:p:".to_owned(), "http"),
        (format!("http:p:{http}"), "http"),
        (format!("https:p:{https}"), "https"),
    ] {
        for (method, path) in [
            ("GET", "/"),
            ("GET", "/a%2Fb//?c=d"),
            ("POST", "/x"),
            ("DELETE", "/y"),
        ] {
            let request = Request::builder()
                .method(method)
                .uri(format!("/api/v1/namespaces/default/pods/{name}/proxy{path}"));
            let response = cluster.send(User::admin(), request, "").await;
            assert_eq!(response.status(), StatusCode::OK, "{name}");
            assert_eq!(text(response).await, format!("{scheme} {method} {path}"));
        }
    }
    let response = cluster.get("/api/v1/namespaces/default/pods/p/proxy?a=b").await;
    assert_eq!(response.status(), StatusCode::MOVED_PERMANENTLY);
    let to = "/api/v1/namespaces/default/pods/p/proxy/?a=b";
    assert_eq!(response.headers()["location"], to);
    cluster.end().await;
}

#[tokio::test]
async fn refuses_in_the_api_servers_words() {
    let cluster = Cluster::start().await;
    let (_bound, port) = closed_port();
    create(&cluster.server, "p", Some("127.0.0.1"), port);
    create(&cluster.server, "new", None, port);
    create(&cluster.server, "odd", Some("169.254.0.1"), port);
    let bad = |text: &str| (400, "BadRequest".to_owned(), text.to_owned());
    let unavailable = |why: &str| {
        let message = format!("error trying to reach service: {why}");
        (503, "ServiceUnavailable".to_owned(), message)
    };
    let refused = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
    for (name, expected) in [
        ("gone", (404, "NotFound".into(), "pods \"gone\" not found".into())),
        ("a:b:c:d", bad("invalid pod request \"a:b:c:d\"")),
        ("ftp:p:21", bad("invalid pod request \"ftp:p:21\"")),
        ("new", bad("address not allowed")),
        ("odd", bad("address not allowed")),
        ("p", unavailable(&refused)),
        // The name of a port is not looked up. kube-apiserver closes the connection instead.
        ("p:web", unavailable("dial tcp: unknown port 127.0.0.1:web")),
    ] {
        let path = format!("/api/v1/namespaces/default/pods/{name}/proxy/");
        assert_eq!(status(cluster.get(&path).await).await, expected);
    }
    let path = "/api/v1/namespaces/default/pods/p/proxy/";
    let response = cluster.send(User::node("one"), Request::get(path), "").await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    cluster.end().await;
}
