//! The messages of DRA plugins (protobuf package `k8s.io.kubelet.pkg.apis.dra`, version 1). Version `v1beta1` has the same, without
//! the share of a device.

#[rustfmt::skip]
#[allow(missing_docs, clippy::all)]
mod messages;

#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
pub(crate) mod grpc_client;

#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
mod grpc_server;

pub use grpc_server::dra_plugin_server;
pub use messages::*;
