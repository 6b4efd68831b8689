//! What the kubelet tells a runtime of a sandbox and of a container: pure functions from a pod, its container and
//! the node's settings to [`v1::PodSandboxConfig`] and [`v1::ContainerConfig`]
//! (`kuberuntime_sandbox.go`, `kuberuntime_container.go`, `kubelet_pods.go`).
//!
//! The few things that touch the host's files stand apart, in `files` and `subpath`.

mod cgroup;
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
mod mounts;
mod namespaces;
mod node;
mod node_ips;
mod resources;
mod sandbox;
mod security_context;
mod service_environment;
mod subpath;
mod swap;

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{Container, Pod};
use kubelet_core::{ConfigObjects, Services};

use kubelet_cri::v1;

pub(crate) use cgroup::pod_cgroup_parent;
pub(crate) use container::{container_config, signal_name};
pub(crate) use error::ConfigError;
pub(crate) use go_json::string as go_string;
pub(crate) use hash::hash_container;
pub(crate) use labels::{AnnotatedContainerInfo, CONTAINER_HASH, LabeledInfo};
pub(crate) use namespaces::user_namespace_of_host;
pub use node::{CgroupDriver, NodeSettings};
pub use node_ips::NodeIps;
pub(crate) use resources::{
    PodTotals, SHARES, container_amounts, container_resources, huge_page_size, milli_cpu_to_quota,
    milli_cpu_to_shares, overhead, pod_amounts, pod_totals, sandbox_overhead, shares_to_milli_cpu,
};
pub(crate) use sandbox::{pod_logs_directory, pod_sandbox_config};
pub(crate) use swap::may_swap;

pub(crate) type Result<T, E = ConfigError> = std::result::Result<T, E>;

/// What the runtime handler of a pod can do, as `Status` tells it of each handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HandlerFeatures {
    /// `recursive_read_only_mounts`
    pub(crate) recursive_read_only_mounts: bool,
    /// `user_namespaces`
    pub(crate) user_namespaces: bool,
}

/// Who an image runs as, from its `ImageStatus`. Neither means root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImageUser {
    /// A number.
    pub(crate) uid: Option<i64>,
    /// A name, where the image gives no number.
    pub(crate) username: String,
}

/// All that goes into the config of one container beside the node's settings.
pub(crate) struct ContainerInputs<'a> {
    /// The pod.
    pub(crate) pod: &'a Pod,
    /// The container: init, regular, or the common part of an ephemeral one.
    pub(crate) container: &'a Container,
    /// How often it was started before; also the CRI's attempt.
    pub(crate) restart_count: u32,
    /// The pod's IPs, the primary first; those of the node, or none, on the host's network.
    pub(crate) pod_ips: &'a [String],
    /// What `ensure_image_exists` returned.
    pub(crate) image_ref: &'a str,
    /// Who the image runs as.
    pub(crate) image_user: &'a ImageUser,
    /// By volume name: where the pod's volumes are on the host.
    pub(crate) volumes: &'a BTreeMap<String, PathBuf>,
    /// By volume name: the images that are mounted as volumes, as pulled.
    pub(crate) image_volumes: &'a BTreeMap<String, v1::ImageSpec>,
    /// The services that the pod may be told of.
    pub(crate) services: &'a dyn Services,
    /// Where config maps and secrets are read.
    pub(crate) config_objects: &'a dyn ConfigObjects,
    /// The id of the container whose process namespace it joins (ephemeral containers).
    pub(crate) target: Option<&'a str>,
    /// What the runtime handler can do.
    pub(crate) handler: HandlerFeatures,
    /// The pod's user namespace.
    pub(crate) user_namespace: &'a v1::UserNamespace,
}
