//! The example `node-agent` against an API server in memory, on processes of this machine and on a real containerd.
//!
//! `cargo test` builds the examples of this package before it runs these tests; with `cargo test --test node_agent`
//! alone, build it first: `cargo build --example node-agent`.

mod alone;
mod bootstrap;
mod cloud;
mod cluster;
mod life;
mod on_containerd;
mod pods;
mod restart;
