//! The messages of device plugins (protobuf package `v1beta1`), the service of a plugin and that of the node.
//!
//! Maps are `BTreeMap`s, so that equal messages have equal bytes.

#[rustfmt::skip]
#[allow(missing_docs, clippy::all, rustdoc::all)]
mod messages;

#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, rustdoc::all)]
mod grpc_client;

#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, rustdoc::all)]
mod grpc_server;

pub use grpc_client::{device_plugin_client, registration_client};
pub use grpc_server::{device_plugin_server, registration_server};
pub use messages::*;
