//! The example `node-agent` against an API server in memory, on processes of this machine and on a real containerd.

mod alone;
mod bootstrap;
mod cloud;
mod cluster;
mod life;
mod node_of_your_own;
mod on_containerd;
mod on_containerd_2;
mod pods;
mod pressure;
mod python_client;
mod restart;
mod server;
mod settings;
mod shutdown;
mod storm;
mod usage;
mod volumes;

pub(crate) use cluster::Cluster;
