//! The generic runtime manager, on recordings of the kubelet and on a runtime in memory.

mod fake;
mod garbage;
mod killing;
mod life_cycle;
mod pod_actions;
mod pods;
