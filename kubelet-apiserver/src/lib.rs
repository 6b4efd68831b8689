//! A Kubernetes API server in memory, for tests of controllers, node agents and `kubectl` plugins, and for a single node that
//! keeps its objects.
//!
//! It behaves like kube-apiserver v1.36: the same codes, reasons and messages, defaults, validation and admission, resource
//! versions, watches and pages, managed fields and graceful deletion. For kubelets, the Node authorizer and `NodeRestriction`
//! apply. It serves the kinds that a node needs. The server starts no task and no thread, and uses tokio's clock: under
//! `tokio::time::pause` an hour of watches takes a moment.
//!
//! A kube client watches pods and retries a request that fails:
//!
//! ```
//! use k8s_openapi::api::core::v1::Pod;
//! use kube_client::Api;
//! use kube_client::api::{PostParams, WatchEvent, WatchParams};
//! use kubelet_apiserver::{ApiServer, Verb};
//! # use futures::{StreamExt, TryStreamExt};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = ApiServer::new();
//! let pods: Api<Pod> = Api::namespaced(server.client(), "default");
//! let mut watch = pods.watch(&WatchParams::default(), "0").await?.boxed();
//!
//! server.faults().on(Verb::Create).resource("pods").first(1).fails(500, "etcdserver: leader changed");
//! let pod: Pod = serde_json::from_value(serde_json::json!({
//!     "metadata": {"name": "web"}, "spec": {"containers": [{"name": "main", "image": "busybox:1.36"}]},
//! }))?;
//! assert!(pods.create(&PostParams::default(), &pod).await.is_err());
//! pods.create(&PostParams::default(), &pod).await?;
//!
//! assert!(matches!(watch.try_next().await?, Some(WatchEvent::Added(pod)) if pod.metadata.uid.is_some()));
//! server.calls().assert_exactly(["create pods default/web", "create pods default/web"]);
//! # Ok(())
//! # }
//! ```
//!
//! | task | methods |
//! |---|---|
//! | get a client | [`client`](ApiServer::client) for the administrator, [`client_as`](ApiServer::client_as) for another user, such as [`User::node`] |
//! | serve other processes | [`serve`](ApiServer::serve) on a TCP port, [`kubeconfig`](ApiServer::kubeconfig), [`find_kubectl`]; with the feature `tls` also HTTPS with client certificates |
//! | inject faults | [`faults`](ApiServer::faults) for requests and watches |
//! | stop or restart the server | [`restart`](ApiServer::restart), [`stop`](ApiServer::stop), [`down_for`](ApiServer::down_for), [`compact`](ApiServer::compact) |
//! | read and write objects without HTTP | [`get`](ApiServer::get), [`list`](ApiServer::list), [`create`](ApiServer::create), [`changes`](ApiServer::changes) and others |
//! | keep the objects | [`open`](ApiServerBuilder::open) on a [`Storage`], with the feature `storage` on a [`FileStorage`]; [`run`](ApiServer::run) |
//! | be the scheduler of one node | [`bind_pods_to`](ApiServerBuilder::bind_pods_to) |
//! | assert on requests | [`calls`](ApiServer::calls) |
//! | allow users more | [`grant`](ApiServer::grant), [`revoke`](ApiServer::revoke) |
//! | bind and attach volumes | `ApiServerBuilder::storage_controllers` |
//! | allocate devices to resource claims | [`claim_controllers`](ApiServerBuilder::claim_controllers) |
//! | `kubectl top` | with the feature `tls`: `ApiServerBuilder::metrics_server` serves `metrics.k8s.io` from `/metrics/resource` of the nodes |
//! | connect nodes | [`certificate_authority`](ApiServer::certificate_authority) for their `clientCAFile`, [`token_for`](ApiServer::token_for) for their reviews; logs, streams and `nodes/proxy` go to their servers, `pods/proxy` to pods, with the feature `tls` |
//!
//! A node's server trusts this API server, and asks it about its clients:
//!
//! ```
//! # #[cfg(feature = "tls")]
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use kubelet_apiserver::{ApiServer, User};
//!
//! let server = ApiServer::builder().sign_certificates().build();
//! // The node's `clientCAFile`.
//! std::fs::write("ca.crt", server.certificate_authority().unwrap_or_default())?;
//! // Creates the node's `TokenReview` and `SubjectAccessReview` objects.
//! let client = server.client_as(User::node("one"));
//! server.grant("prometheus", &["get"], &["nodes/metrics"]);
//! # drop(client);
//! # Ok(())
//! # }
//! ```
//!
#![doc = include_str!("limits.md")]

mod authorize;
mod call;
#[cfg(feature = "tls")]
mod certificates;
mod claim_controllers;
mod controlled_objects;
mod controllers;
mod direct;
mod error;
mod faults;
mod http;
mod kubectl;
mod listener;
mod managed_fields;
#[cfg(feature = "tls")]
mod metrics;
#[cfg(feature = "tls")]
mod nodes;
mod objects;
mod outage;
mod patch;
mod request;
mod resource;
mod reviews;
mod schema;
mod server;
mod status_error;
mod storage;
mod storage_controllers;
mod store;
mod table;
#[cfg(feature = "tls")]
mod tls;
mod tokens;
mod trouble;
mod write;

pub use call::{ApiCall, Verb};
pub use direct::{Change, Changes};
pub use error::{Error, Result};
pub use faults::{Fault, Faults};
pub use http::{ApiBody, ApiService};
pub use kubectl::find_kubectl;
#[doc(no_inline)]
pub use kubelet_core::Calls;
#[cfg(feature = "tls")]
pub use nodes::{NodeDialer, NodeStream};
pub use outage::Memory;
pub use request::User;
pub use server::{ApiServer, ApiServerBuilder};
#[cfg(feature = "storage")]
pub use storage::FileStorage;
pub use storage::Storage;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
