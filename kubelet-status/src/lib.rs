//! wip
mod conditions;
mod container_statuses;
mod generate;
mod phase;
mod pod_ips;
mod quantity;
mod readiness;
mod resources;
mod restart_rules;
mod status_ext;
pub use generate::{NodeFacts, generate_api_pod_status};
