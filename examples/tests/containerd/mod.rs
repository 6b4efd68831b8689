//! The whole agent on a real containerd of the test's own. Skipped, visibly, where the host lacks it; in CI that is a
//! failure.

mod cri;
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
