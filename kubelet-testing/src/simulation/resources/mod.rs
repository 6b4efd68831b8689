//! CPUs, memory, devices and claims of simulated nodes.

mod checks;
mod faults;
mod host;
mod managers;
mod state_files;
mod workload;

pub(crate) use self::host::SimulatedMachine;
pub(super) use self::managers::Managers;
pub(super) use self::workload::{add_requests, create_objects, publish_slice, with_devices};

/// The resources of the device plugins.
const GPU: &str = "sim.example/gpu";
const NIC: &str = "sim.example/nic";
/// The driver of the claims.
const DRIVER: &str = "claims.sim.example";
