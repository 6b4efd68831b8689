//! The messages with which DRA plugins report the health of devices (protobuf package `v1alpha1` of `dra-health`).

#[rustfmt::skip]
#[allow(missing_docs, clippy::all)]
mod messages;

#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
pub(crate) mod grpc_client;

#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
mod grpc_server;

pub use grpc_server::dra_resource_health_server;
pub use messages::*;
