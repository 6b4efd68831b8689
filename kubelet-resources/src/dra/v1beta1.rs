//! The service of DRA plugins, version `v1beta1`, with the messages of [`v1`](super::v1).

#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
pub(crate) mod grpc_client;

#[rustfmt::skip]
#[cfg(feature = "dra-server")]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all)]
mod grpc_server;

#[cfg(feature = "dra-server")]
#[cfg_attr(docsrs, doc(cfg(feature = "dra-server")))]
pub use grpc_server::dra_plugin_server;
