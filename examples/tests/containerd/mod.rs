//! The whole agent on a real containerd for each test. Without containerd or root the tests print `SKIPPED` and pass;
//! in CI they fail.

pub(crate) mod cri;
mod garbage;
mod killed;
mod life_cycle;
mod logs;
mod manager;
mod manifests;
mod network;
mod outage;
mod requests;
mod restart;
mod samples;
