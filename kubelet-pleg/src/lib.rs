//! The kubelet's pod lifecycle event generator, for any container runtime
mod error;
mod generic;
mod inspection;
mod metrics;
mod record;
mod relist;
mod shared;
mod transition;

pub use error::Error;
pub use generic::GenericPleg;
