//! The messages of plugin registration (protobuf package `pluginregistration`, version 1).

#[rustfmt::skip]
#[allow(missing_docs, clippy::all)]
mod messages;

#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
pub(crate) mod grpc_client;

#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
mod grpc_server;

pub use grpc_server::registration_server;
pub use messages::*;
