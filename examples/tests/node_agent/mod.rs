//! The example `node-agent` against an API server in memory, on processes of this machine and on a real containerd.

mod alone;
mod bootstrap;
mod cloud;
mod cluster;
mod life;
mod on_containerd;
mod pods;
mod pressure;
mod restart;
mod server;
mod shutdown;
mod usage;
mod volumes;
