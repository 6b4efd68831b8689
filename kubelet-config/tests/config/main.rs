//! Sources, manifests and configuration, by tables and against recordings of the kubelet.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test"
)]

mod api_objects;
mod api_source;
mod checkpoint_source;
mod cluster_trust_bundles;
mod command_lines;
mod command_lines_recorded;
mod feature_gates;
mod file_events;
mod file_source;
mod flags;
mod http_source;
mod informer;
mod kubelet_configuration_decoding;
mod kubelet_configuration_files;
mod kubelet_configuration_mutations;
mod kubelet_configuration_recorded;
mod manifest_validation;
mod pod_certificates;
mod pod_config;
mod pod_storage;
mod recorded_manifests;
mod recorded_sequences;
mod static_pod_uids;
mod validation;
mod validation_recorded;
