//! The service of DRA plugins, version `v1beta1`, with the messages of [`v1`](super::v1).

#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
pub(crate) mod grpc_client;

#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
mod grpc_server;

pub use grpc_server::dra_plugin_server;
