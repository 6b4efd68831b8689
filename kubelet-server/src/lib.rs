//! The HTTPS API of a Kubernetes node, as the kubelet v1.36 serves it on port 10250: logs, exec, attach, port-forward, pods, metrics,
//! with authentication and authorization (`pkg/kubelet/server`).
//!
//! It is for node agents. You bring the pods ([`NodePods`]) and what runs them. `kubectl logs` needs [`ContainerLogs`], one method.
//! `kubectl exec` needs [`StreamingRuntime`]. No CRI is necessary, and no API server.
//!
//! This example serves the pods and the logs of a runtime of its own in thirty lines. Then it reads a log:
//!
//! ```
//! use std::sync::Arc;
//!
//! use futures::stream::{self, BoxStream, StreamExt as _};
//! use k8s_openapi::api::core::v1::{Pod, PodStatus};
//! use kubelet_core::runtime::streaming::StreamError;
//! use kubelet_core::runtime::{ContainerLogs, PodLogOptions};
//! use kubelet_server::authorization::AlwaysAllow;
//! use kubelet_server::{Authentication, Authorization, NodeApi, Server};
//! use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
//!
//! struct MyRuntime;
//! type Log = BoxStream<'static, Result<Vec<u8>, StreamError>>;
//!
//! #[async_trait::async_trait]
//! impl ContainerLogs for MyRuntime {
//!     async fn container_logs(
//!         &self, _: &Pod, _: &PodStatus, container: &str, options: PodLogOptions,
//!     ) -> Result<Log, StreamError> {
//!         let mut lines = vec![format!("{container} starts\n"), format!("{container} is ready\n")];
//!         if let Some(last) = options.tail_lines {
//!             lines.drain(..lines.len().saturating_sub(usize::try_from(last).unwrap_or(0)));
//!         }
//!         Ok(stream::iter(lines.into_iter().map(|line| Ok(line.into_bytes()))).boxed())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pod: Pod = serde_json::from_value(serde_json::json!({
//!     "metadata": { "namespace": "default", "name": "web", "uid": "0b57" },
//!     "spec": { "containers": [{ "name": "nginx" }] },
//! }))?;
//! let authorization = Authorization::new("node-1", Arc::new(AlwaysAllow));
//! let api = NodeApi::builder(Arc::new(vec![Arc::new(pod)]), Authentication::anonymous(), authorization)
//!     .logs(Arc::new(MyRuntime))
//!     .build();
//! let server = Server::bind_insecure("127.0.0.1:0".parse()?, api)?;
//! let (address, shutdown) = (server.local_addr(), tokio_util::sync::CancellationToken::new());
//! let serving = tokio::spawn(server.run(shutdown.clone()));
//!
//! // A client, as `kubectl logs --tail=1` by way of the API server:
//! let mut client = tokio::net::TcpStream::connect(address).await?;
//! let path = "/containerLogs/default/web/nginx?tailLines=1";
//! client.write_all(format!("GET {path} HTTP/1.1\r\nHost: node-1\r\nConnection: close\r\n\r\n").as_bytes()).await?;
//! let mut answer = String::new();
//! client.read_to_string(&mut answer).await?;
//! assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("nginx is ready\n"), "{answer}");
//! assert!(!answer.contains("nginx starts"));
//! shutdown.cancel();
//! serving.await?;
//! # Ok(())
//! # }
//! ```
//!
//! The example allows everything to everybody, so it listens on the loopback address. A node must not do so.
//!
//! # A node in a cluster
//!
//! The API server calls the node with a client certificate. A monitoring system calls it with a token. [`ClientCa`] verifies the
//! certificates. [`TokenCache`] and [`WebhookAuthorizer`] ask the API server through [`ApiServerReviews`] (feature `apiserver`), or a reviewer of
//! yours.
//!
//! ```no_run
//! # #[cfg(feature = "apiserver")]
//! # async fn serve(
//! #     client: kube_client::Client, pods: kubelet_core::PodManager, logs: std::sync::Arc<dyn kubelet_core::runtime::ContainerLogs>,
//! # ) -> Result<(), kubelet_server::Error> {
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use kubelet_server::authentication::TokenCache;
//! use kubelet_server::authorization::WebhookAuthorizer;
//! use kubelet_server::{ApiServerReviews, Authentication, Authorization, CertificateFiles, NodeApi, Server, TlsSettings};
//!
//! let (files, ca) = CertificateFiles::new().client_ca("/etc/kubernetes/pki/ca.crt".into()).await?;
//! let (files, certificate) = files.serving("/var/lib/node/tls.crt".into(), "/var/lib/node/tls.key".into()).await?;
//! let reviews = Arc::new(ApiServerReviews::new(client));
//! let authentication =
//!     Authentication::none().client_ca(ca).tokens(TokenCache::new(reviews.clone(), Duration::from_secs(120)));
//! let authorizer = WebhookAuthorizer::new(reviews, Duration::from_secs(300), Duration::from_secs(30));
//! let authorization = Authorization::new("node-1", Arc::new(authorizer));
//! let api = NodeApi::builder(Arc::new(pods), authentication, authorization).logs(logs).build();
//! let tls = TlsSettings::new(Arc::new(certificate));
//! let shutdown = tokio_util::sync::CancellationToken::new();
//! tokio::join!(
//!     files.run(shutdown.clone()), // reads the files again when they change
//!     Server::serve(([0, 0, 0, 0, 0, 0, 0, 0], 10250).into(), api, Some(&tls), shutdown),
//! );
//! # Ok(())
//! # }
//! ```
//!
//! `kubelet-node` has certificates that rotate. Its certificate manager's handle is a resolver for [`TlsSettings::new`]. The read-only port
//! of the kubelet is [`NodeApi::read_only`] with [`Server::bind_insecure`].
//!
//! # Endpoints
//!
//! An endpoint answers with status 404 until its method of [`NodeApiBuilder`] was called. [`Handlers`] turns groups of endpoints off. The
//! last column is the subresource of `nodes` that the user needs a permission for; one of two is enough. The verb is that of the method:
//! `get` for `GET`, `create` for `POST`, `update` for `PUT`. Exec, attach, port-forward and run always need `create`.
//!
//! | path | answer | method of the builder | permission |
//! |---|---|---|---|
//! | `/healthz`, `/healthz/NAME` | health checks; `?verbose`, `?exclude=NAME` | [`health`](NodeApiBuilder::health) | `healthz` or `proxy` |
//! | `/pods` | the desired pods, with their statuses | always there | `pods` or `proxy` |
//! | `/runningpods/` | the pods that the runtime runs | [`running_pods`](NodeApiBuilder::running_pods) | `pods` or `proxy` |
//! | `/containerLogs/NAMESPACE/POD/CONTAINER` | a log; the query has the fields of `PodLogOptions` | [`logs`](NodeApiBuilder::logs) | `proxy` |
//! | `/exec/NAMESPACE/POD[/UID]/CONTAINER` | the streams of a command | [`runtime`](NodeApiBuilder::runtime) | `create` on `proxy` |
//! | `/attach/NAMESPACE/POD[/UID]/CONTAINER` | the streams of a container | [`runtime`](NodeApiBuilder::runtime) | `create` on `proxy` |
//! | `/portForward/NAMESPACE/POD[/UID]` | connections to ports of a pod | [`runtime`](NodeApiBuilder::runtime) | `create` on `proxy` |
//! | `/run/NAMESPACE/POD[/UID]/CONTAINER` | `POST`: the output of a command, once it has ended | [`runtime`](NodeApiBuilder::runtime) | `create` on `proxy` |
//! | `/checkpoint/NAMESPACE/POD/CONTAINER` | `POST`: writes a checkpoint of a container | [`runtime`](NodeApiBuilder::runtime), [`checkpoint_dir`](NodeApiBuilder::checkpoint_dir) | `checkpoint` |
//! | `/metrics`, `/metrics/probes`, `/metrics/slis` | the agent's metrics | [`metrics`](NodeApiBuilder::metrics) | `metrics` |
//! | `/metrics/cadvisor`, `/metrics/resource` | usage of containers and pods, as metrics | [`stats`](NodeApiBuilder::stats) | `metrics` |
//! | `/stats/summary` | the same as JSON | [`stats`](NodeApiBuilder::stats) | `stats` |
//! | `/configz` | the configuration | [`configz`](NodeApiBuilder::configz) | `configz` or `proxy` |
//! | `/flagz` | the command line | [`flags`](NodeApiBuilder::flags) | `configz` |
//! | `/statusz` | version, start time, paths | [`agent`](NodeApiBuilder::agent) | `statusz` |
//! | `/logs/` | files of `/var/log`, and the journal | [`system_logs`](NodeApiBuilder::system_logs) | `log` |
//! | `/debug/flags/v` | `PUT`: sets how much the agent logs | [`verbosity`](NodeApiBuilder::verbosity) | `proxy` |
//! | `/debug/pprof/` | profiles | [`profiler`](NodeApiBuilder::profiler) | `proxy` |
//! | `/console/` | pages to look at the node | [`route`](NodeApiBuilder::route) with a [`Console`](console::Console) | `proxy` |
//! | your own | yours | [`route`](NodeApiBuilder::route) | `proxy` |
//!
//! # Exec, attach and port-forward for a runtime of your own
//!
//! A runtime returns a URL for each request, as CRI runtimes do, and the node's server connects the client to it. Clients speak SPDY or
//! WebSocket. With [`streaming::StreamServer`] your runtime need not know either: it offers a command or a connection to a port as a plain
//! trait object, and gets the URL. Implement [`StreamingRuntime`] for your runtime, and return that URL from its methods. The
//! [module](streaming) has an example. A runtime of the five verbs of `kubelet-cri` has this already: pass the server's handle to
//! `CriAdapterBuilder::streaming`.
//!
//! # In a server of your own
//!
//! [`NodeApi`] is a tower service. It serves all methods and paths that it gets, so mount it at the root, or behind your own paths. It
//! finds three values in the extensions of a request:
//!
//! * [`ClientCertificates`]: the certificates of the connection, if the client has any. TLS must have verified that the client holds the
//!   key, and nothing else. Without them, only tokens and anonymous requests are accepted.
//! * [`Sessions`]: runs the streams of exec, attach and port-forward. Without it, these answer with status 500. End it with your server.
//! * [`SocketAddr`](std::net::SocketAddr): the address of the client, for `X-Forwarded-For`.
//!
//! ```
//! use http::Request;
//! use hyper::body::Incoming;
//! use hyper_util::rt::{TokioExecutor, TokioIo};
//! use hyper_util::server::conn::auto;
//! use hyper_util::service::TowerToHyperService;
//! use kubelet_server::{NodeApi, Sessions};
//! use tower::Layer as _;
//! use tower::util::MapRequestLayer;
//!
//! async fn serve(connection: tokio::net::TcpStream, api: NodeApi, sessions: Sessions) {
//!     let extend = MapRequestLayer::new(move |mut request: Request<Incoming>| {
//!         request.extensions_mut().insert(sessions.clone());
//!         request
//!     });
//!     let service = TowerToHyperService::new(extend.layer(api));
//!     let mut http = auto::Builder::new(TokioExecutor::new());
//!     http.http1().half_close(true); // a client may close its side first
//!     // Streams are upgrades of HTTP/1.1.
//!     let ended = http.serve_connection_with_upgrades(TokioIo::new(connection), service).await;
//!     drop(ended); // a client that went away is no error of the server
//! }
//! ```
//!
//! # Shutdown and cancel safety
//!
//! [`Server::run`] ends when its token is cancelled. It closes its port, gives open requests two seconds, ends the streams and joins its tasks.
//! Every future of this crate may be dropped at any time. A dropped request ends what it began: a log is no longer read, and a
//! runtime kills the command. If the future of `Server::run` is dropped, all connections close.
//!
//! # Limits
//!
//! [`Server`] bounds what clients use: 4,096 connections in all ([`Server::max_connections`]), 10 s for a TLS handshake, 90 s from
//! the end of a request to the whole head of the next one, 1 MiB for a head, 250 requests at once on a connection of HTTP/2. A log is read in
//! pieces, as fast as its client takes them.
//!
//! # Features
//!
//! None is on by default. Each brings in crates that the rest does not need.
//!
//! | feature | adds |
//! |---|---|
//! | `apiserver` | [`ApiServerReviews`]: `TokenReview` and `SubjectAccessReview` |
//! | `pods-api` | [`pods_api`]: the local gRPC API for pods, which is alpha |
//! | `profiling` | [`profiling`]: CPU profiles for `/debug/pprof/` |
//!
//! # Metrics
//!
//! The server emits `kubelet_http_requests_total`, `kubelet_http_requests_duration_seconds`, `kubelet_http_inflight_requests` and
//! `kubelet_websocket_streaming_requests_total` through the [`metrics`](https://docs.rs/metrics) facade.
//!
//! [`ContainerLogs`]: kubelet_core::runtime::ContainerLogs
//! [`StreamingRuntime`]: kubelet_core::runtime::streaming::StreamingRuntime
//! [`ClientCa`]: authentication::ClientCa
//! [`ClientCertificates`]: authentication::ClientCertificates
//! [`TokenCache`]: authentication::TokenCache
//! [`WebhookAuthorizer`]: authorization::WebhookAuthorizer
//!
#![doc = include_str!("limits.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

#[cfg(feature = "apiserver")]
mod api_server_reviews;
pub mod authentication;
pub mod authorization;
mod body;
pub mod console;
mod error;
mod idle;
mod in_process;
mod node_api;
mod pods;
#[cfg(feature = "pods-api")]
pub mod pods_api;
#[cfg(feature = "profiling")]
pub mod profiling;
pub mod prometheus;
mod request_metrics;
mod routes;
mod server;
mod sessions;
pub mod streaming;
pub mod system_logs;
mod tls;
mod upgrade;

#[cfg(feature = "apiserver")]
pub use api_server_reviews::ApiServerReviews;
pub use authentication::{Authentication, UserInfo};
pub use authorization::Authorization;
pub use body::Body;
pub use error::{BoxError, Error};
pub use node_api::{Handlers, NodeApi, NodeApiBuilder};
pub use pods::NodePods;
pub use routes::debug_flags::LogVerbosity;
pub use routes::metrics::{MetricsSelection, MetricsSource};
pub use routes::pprof::Profiler;
pub use routes::zpages::AgentVersion;
pub use server::Server;
pub use sessions::Sessions;
pub use tls::{CertificateFiles, ServingCertificate, TlsSettings};
