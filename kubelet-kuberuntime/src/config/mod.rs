//! The configs of sandboxes and containers: pure functions from a pod, its container and the node's settings to
//! [`v1::PodSandboxConfig`] and [`v1::ContainerConfig`] (`kuberuntime_sandbox.go`, `kuberuntime_container.go`,
//! `kubelet_pods.go`).
//!
//! Only `files` and `subpath` write files of the host. `env_file`, `dns` and `host` read some.

mod additions;
mod container;
mod dns;
mod downward;
mod env_file;
mod environment;
mod error;
pub(crate) mod expansion;
mod files;
mod go_json;
#[cfg(test)]
mod golden;
mod hash;
mod host;
mod hostname;
mod hosts;
mod labels;
mod memory_qos;
mod mounts;
mod namespaces;
mod node;
mod node_ips;
mod oom_score;
mod resource_lists;
mod resources;
mod sandbox;
mod security_context;
mod service_environment;
mod subpath;
mod swap;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::{ConfigObjects, ContainerAdditions, MountedVolume, Services, VolumeLease};

use kubelet_cri::v1;

pub(crate) use container::{container_config, signal_name};
pub(crate) use dns::Recorders;
pub(crate) use error::ConfigError;
pub(crate) use go_json::string as go_string;
pub(crate) use hash::hash_container;
pub(crate) use labels::{AnnotatedContainerInfo, CONTAINER_HASH, LabeledInfo};
pub use memory_qos::ContainerMemoryQos;
pub(crate) use namespaces::user_namespace_of_host;
pub use node::NodeSettings;
pub use node_ips::NodeIps;
pub(crate) use resources::{
    container_amounts, container_resources, overhead, pod_amounts, sandbox_overhead, without_quota,
};
pub(crate) use sandbox::{add_groups_of_volumes, pod_logs_directory, pod_sandbox_config};
pub(crate) use swap::may_swap;

pub(crate) type Result<T, E = ConfigError> = std::result::Result<T, E>;

/// The features of a pod's runtime handler, from `Status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HandlerFeatures {
    /// `recursive_read_only_mounts`
    pub(crate) recursive_read_only_mounts: bool,
    /// `user_namespaces`
    pub(crate) user_namespaces: bool,
}

/// The user of an image, from its `ImageStatus`. Without both fields it is root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImageUser {
    /// The numeric user.
    pub(crate) uid: Option<i64>,
    /// The user's name, if the image has no number.
    pub(crate) username: String,
}

/// The inputs of one container's config, beside the node's settings.
pub(crate) struct ContainerInputs<'a> {
    /// The pod.
    pub(crate) pod: &'a Pod,
    /// The container: init, regular, or the common fields of an ephemeral one.
    pub(crate) container: &'a Container,
    /// How often it was started before; also the CRI's attempt.
    pub(crate) restart_count: u32,
    /// The pod's IPs, the primary first; those of the node, or none, on the host's network.
    pub(crate) pod_ips: &'a [String],
    /// The image reference from `ensure_image_exists`.
    pub(crate) image_ref: &'a str,
    /// The user of the image.
    pub(crate) image_user: &'a ImageUser,
    /// The pod's mounted volumes, by volume name.
    pub(crate) volumes: &'a BTreeMap<String, MountedVolume>,
    /// Keeps the files in them that the container uses.
    pub(crate) lease: &'a VolumeLease,
    /// The pulled images that are mounted as volumes, by volume name.
    pub(crate) image_volumes: &'a BTreeMap<String, v1::ImageSpec>,
    /// The services for environment variables.
    pub(crate) services: &'a dyn Services,
    /// The source of config maps and secrets.
    pub(crate) config_objects: &'a dyn ConfigObjects,
    /// The id of the target container, whose process namespace an ephemeral container joins.
    pub(crate) target: Option<&'a str>,
    /// The features of the runtime handler.
    pub(crate) handler: HandlerFeatures,
    /// The pod's user namespace.
    pub(crate) user_namespace: &'a v1::UserNamespace,
    /// What its devices and CPUs add.
    pub(crate) additions: &'a ContainerAdditions,
}
