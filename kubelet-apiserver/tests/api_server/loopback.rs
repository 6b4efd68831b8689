//! The same server over TCP.

use std::net::SocketAddr;

use futures::{StreamExt, TryStreamExt};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::core::v1::Pod;
use kube_client::api::{PostParams, WatchEvent, WatchParams};
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Api, Client, Config};
use kubelet_apiserver::ApiServer;
use kubelet_apiserver::User;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{pod, server};

struct Served {
    address: SocketAddr,
    shutdown: CancellationToken,
    task: JoinHandle<std::io::Result<()>>,
}

async fn serve(server: &ApiServer) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let (server, token) = (server.clone(), shutdown.clone());
    let task = tokio::spawn(async move { server.serve(listener, token).await });
    Served {
        address,
        shutdown,
        task,
    }
}

impl Served {
    async fn end(self) {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap();
    }
}

async fn client(server: &ApiServer, served: &Served, user: User) -> Client {
    let text = server.kubeconfig(served.address, user);
    let config = Kubeconfig::from_yaml(&text).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await;
    Client::try_from(config.unwrap()).unwrap()
}

#[tokio::test]
async fn a_client_with_a_kubeconfig_sees_the_same() {
    let server = server();
    let served = serve(&server).await;
    let pods: Api<Pod> = Api::namespaced(client(&server, &served, User::admin()).await, "default");
    let mut watch = pods.watch(&WatchParams::default(), "0").await.unwrap().boxed();
    let made = pods.create(&PostParams::default(), &pod("web")).await.unwrap();
    assert_eq!(server.get::<Pod>("default", "web").unwrap(), Some(made.clone()));
    let Some(WatchEvent::Added(seen)) = watch.try_next().await.unwrap() else {
        panic!("no event")
    };
    assert_eq!(seen, made);
    // The watch ends with the server.
    served.end().await;
    assert!(!matches!(watch.try_next().await, Ok(Some(_))));
}

/// Responses to requests that no client library sends.
struct Raw {
    http: HttpClient<hyper_util::client::legacy::connect::HttpConnector, Full<bytes::Bytes>>,
    base: String,
    token: String,
}

impl Raw {
    async fn ask(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Response<Value> {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base));
        if !self.token.is_empty() {
            request = request.header("authorization", format!("Bearer {}", self.token));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(body.to_owned())).unwrap();
        let (head, body) = self.http.request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&body)
            .unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&body).into_owned()));
        Response::from_parts(head, body)
    }
}

#[tokio::test]
async fn answers_to_the_letter() {
    let server = server();
    let served = serve(&server).await;
    let mut raw = Raw {
        http: HttpClient::builder(TokioExecutor::new()).build_http(),
        base: format!("http://{}", served.address),
        token: server.token_for(User::admin()),
    };
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "main", "image": "busybox:1.36"}]},
    })
    .to_string();
    let yaml =
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: yam\nspec:\n  containers:\n  - {name: c, image: i}\n";
    let json_type = ("content-type", "application/json");
    for (method, path, header, body, code, reason) in [
        (Method::GET, "/version", json_type, "", 200, ""),
        (Method::GET, "/readyz", json_type, "", 200, ""),
        (Method::GET, "/bogus", json_type, "", 404, "NotFound"),
        (Method::POST, "/version", json_type, "", 405, "MethodNotAllowed"),
        (Method::POST, pods, json_type, &pod, 201, ""),
        (
            Method::POST,
            pods,
            ("content-type", "application/yaml"),
            yaml,
            201,
            "",
        ),
        (
            Method::POST,
            pods,
            ("content-type", "text/plain"),
            &pod,
            415,
            "UnsupportedMediaType",
        ),
        (
            Method::POST,
            "/api/v1/pods",
            json_type,
            &pod,
            405,
            "MethodNotAllowed",
        ),
        (
            Method::GET,
            pods,
            ("accept", "application/vnd.kubernetes.protobuf"),
            "",
            406,
            "NotAcceptable",
        ),
        (
            Method::GET,
            pods,
            ("accept", "application/vnd.kubernetes.protobuf,*/*"),
            "",
            200,
            "",
        ),
        (
            Method::GET,
            "/api/v1/namespaces/default/pods?limit=x",
            json_type,
            "",
            400,
            "BadRequest",
        ),
    ] {
        let answer = raw.ask(method.clone(), path, &[header], body).await;
        let text = format!("{method} {path} {header:?}: {:?}", answer.body());
        assert_eq!(answer.status().as_u16(), code, "{text}");
        assert_eq!(
            answer.body()["reason"].as_str().unwrap_or_default(),
            reason,
            "{text}"
        );
    }
    // A body of more than three mebibytes.
    let huge = raw
        .ask(Method::POST, pods, &[json_type], &" ".repeat(4 << 20))
        .await;
    assert_eq!(huge.status(), StatusCode::PAYLOAD_TOO_LARGE);

    raw.token = "unknown".into();
    assert_eq!(
        raw.ask(Method::GET, pods, &[], "").await.status(),
        StatusCode::UNAUTHORIZED
    );
    raw.token = String::new();
    assert_eq!(
        raw.ask(Method::GET, pods, &[], "").await.status(),
        StatusCode::FORBIDDEN
    );
    assert_eq!(
        raw.ask(Method::GET, "/healthz", &[], "").await.status(),
        StatusCode::OK
    );
    served.end().await;
}
