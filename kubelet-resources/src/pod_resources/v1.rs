//! The messages of the pod-resources API (protobuf package `v1`), and its service.

#[rustfmt::skip]
#[allow(missing_docs, clippy::all, rustdoc::all)]
mod messages;

#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, rustdoc::all)]
mod grpc_client;

#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, rustdoc::all)]
mod grpc_server;

pub use grpc_client::pod_resources_lister_client;
pub use grpc_server::pod_resources_lister_server;
pub use messages::*;
