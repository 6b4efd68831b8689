//! A container runtime for virtual machines, on the verbs of `kubelet-cri`.
//!
//! [`MicrovmRuntime`] starts a cloud-hypervisor process for each pod, and speaks its HTTP API. A container is a virtual machine in it:
//! its kernel and its root file system come from the image, and its serial console is the container's log. Chapter 8 of the guide
//! says how, and what a pod may use.

mod api;
mod console;
mod disks;
mod engine;
mod images;
mod machine;
mod network;
mod pod;
mod record;
mod runtime;

pub use network::Subnet;
pub use runtime::{MicrovmRuntime, MicrovmRuntimeBuilder};
