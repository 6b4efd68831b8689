//! An API server in memory: what agents, controllers and `kubectl` talk to, without a cluster.
//!
//! It answers as kube-apiserver v1.36 does: in codes, reasons and messages, in defaults, validation and admission, in
//! resource versions, watches and pages, in managed fields and graceful deletion, and to kubelets as the Node authorizer
//! and `NodeRestriction` do. Served are the kinds that a node meets. It starts no task and no thread, and keeps to tokio's
//! clock: under `tokio::time::pause` an hour of watches is over at once.
//!
//! A kube client against it, in ten lines:
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
//! * Who asks: [`client`](ApiServer::client) is the administrator, [`client_as`](ApiServer::client_as) whoever you say, such
//!   as [`User::node`].
//! * For other processes: [`serve`](ApiServer::serve) on a TCP port, and [`kubeconfig`](ApiServer::kubeconfig); with the
//!   feature `tls` also over TLS, to whoever a client certificate or a token says.
//! * What goes wrong: [`faults`](ApiServer::faults) befall requests and watches;
//!   [`restart`](ApiServer::restart), [`stop`](ApiServer::stop), [`down_for`](ApiServer::down_for) and
//!   [`compact`](ApiServer::compact) the server.
//! * Without HTTP: [`get`](ApiServer::get), [`list`](ApiServer::list), [`create`](ApiServer::create) and the like.

mod authorize;
mod call;
#[cfg(feature = "signing")]
mod certificates;
mod controllers;
mod direct;
mod error;
#[cfg(feature = "faults")]
mod faults;
mod http;
mod listener;
mod managed_fields;
mod objects;
mod outage;
mod patch;
mod request;
mod resource;
mod schema;
mod server;
mod status_error;
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
#[cfg(feature = "faults")]
pub use faults::{Fault, Faults};
pub use http::{ApiBody, ApiService};
#[doc(no_inline)]
pub use kubelet_core::Calls;
pub use outage::Memory;
pub use request::User;
pub use server::{ApiServer, ApiServerBuilder};
