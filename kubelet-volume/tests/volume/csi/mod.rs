//! CSI volumes with a driver in memory, on real sockets.

#[cfg(feature = "apiserver")]
mod api_server;
mod attachment;
mod block;
mod faults;
mod inline;
mod managed;
mod migration;
pub(crate) mod node;
mod node_info;
mod persistent;
mod proto_generated;
mod registration;
mod restart;
mod usage;
