//! The HTTPS API of a Kubernetes node.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_docs)]

#[cfg(feature = "apiserver")]
mod api_server_reviews;
pub mod authentication;
pub mod authorization;
mod body;
mod error;
mod node_api;
mod pods;
#[cfg(feature = "pods-api")]
pub mod pods_api;
#[cfg(feature = "prometheus")]
pub mod prometheus;
mod request_metrics;
mod routes;
mod server;
mod sessions;
#[cfg(feature = "streaming")]
pub mod streaming;
#[cfg(feature = "system-logs")]
pub mod system_logs;
mod tls;

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
