//! The flags of the kubelet that are not fields of the configuration.

use std::collections::BTreeMap;

use kubelet_core::runtime::GcPolicy;

use crate::kubelet_configuration::GoDuration;

/// The flags that are no fields of the configuration, as their values must not change while the node lives or
/// cannot be shared between nodes (`options.KubeletFlags`). [`Default`] is a command line without any.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KubeletFlags {
    /// `--kubeconfig`: how to reach the API server. Empty: there is none.
    pub kube_config: String,
    /// `--bootstrap-kubeconfig`: how to ask for a client certificate while there is no
    /// [`kube_config`](Self::kube_config) file.
    pub bootstrap_kubeconfig: String,
    /// `--hostname-override`: what the node is called instead of its hostname.
    pub hostname_override: String,
    /// `--node-ip`: the node's IP address, or two, one of each family, or `::` or `0.0.0.0` to prefer a family.
    pub node_ip: String,
    /// `--runtime-cgroups`: the cgroup that the runtime runs in.
    pub runtime_cgroups: String,
    /// `--image-credential-provider-config`: file or folder of the `CredentialProviderConfig`.
    pub image_credential_provider_config_path: String,
    /// `--image-credential-provider-bin-dir`: folder of the credential providers.
    pub image_credential_provider_bin_dir: String,
    /// `--cert-dir`: folder of the agent's certificates. Default: `/var/lib/kubelet/pki`.
    pub cert_directory: String,
    /// `--cloud-provider`: `external`, or empty if there is none.
    pub cloud_provider: String,
    /// `--root-dir`: folder of all that the agent keeps. Default: `/var/lib/kubelet`.
    pub root_directory: String,
    /// `--config`: file of the configuration.
    pub kubelet_config_file: String,
    /// `--config-dir`: folder of drop-ins.
    pub kubelet_dropin_config_directory: String,
    /// `--experimental-mounter-path`: a program that mounts. Deprecated.
    pub experimental_mounter_path: String,
    /// `--experimental-allocatable-ignore-eviction`: whether hard eviction thresholds are left out of what the
    /// node can allocate. Deprecated.
    pub experimental_node_allocatable_ignore_eviction_threshold: bool,
    /// `--node-labels`: labels that the node registers with.
    pub node_labels: BTreeMap<String, String>,
    /// `--lock-file`: a file that only one agent at a time holds.
    pub lock_file_path: String,
    /// `--exit-on-lock-contention`: whether the agent ends when another wants [`lock_file_path`](Self::lock_file_path).
    pub exit_on_lock_contention: bool,
    /// `--minimum-container-ttl-duration`: how long a dead container is kept. Deprecated.
    pub minimum_gc_age: GoDuration,
    /// `--maximum-dead-containers-per-container`: dead ones kept of each container. Deprecated. Default: 1.
    pub max_per_pod_container_count: i32,
    /// `--maximum-dead-containers`: dead containers kept on the node; negative is no limit. Deprecated. Default:
    /// -1.
    pub max_container_count: i32,
    /// `--seccomp-default`: whether `RuntimeDefault` is the seccomp profile of containers without one. The field
    /// `seccompDefault` of the configuration says so as well.
    pub seccomp_default: bool,
}

impl Default for KubeletFlags {
    fn default() -> Self {
        Self {
            kube_config: String::new(),
            bootstrap_kubeconfig: String::new(),
            hostname_override: String::new(),
            node_ip: String::new(),
            runtime_cgroups: String::new(),
            image_credential_provider_config_path: String::new(),
            image_credential_provider_bin_dir: String::new(),
            cert_directory: "/var/lib/kubelet/pki".into(),
            cloud_provider: String::new(),
            root_directory: "/var/lib/kubelet".into(),
            kubelet_config_file: String::new(),
            kubelet_dropin_config_directory: String::new(),
            experimental_mounter_path: String::new(),
            experimental_node_allocatable_ignore_eviction_threshold: false,
            node_labels: BTreeMap::new(),
            lock_file_path: String::new(),
            exit_on_lock_contention: false,
            minimum_gc_age: GoDuration::ZERO,
            max_per_pod_container_count: 1,
            max_container_count: -1,
            seccomp_default: false,
        }
    }
}

impl KubeletFlags {
    /// Which containers are garbage, as `--minimum-container-ttl-duration`, `--maximum-dead-containers-per-container` and
    /// `--maximum-dead-containers` say (`containerGCPolicy`).
    pub fn container_gc_policy(&self) -> GcPolicy {
        GcPolicy {
            min_age: self.minimum_gc_age.try_into().unwrap_or_default(),
            max_per_pod_container: u32::try_from(self.max_per_pod_container_count).ok(),
            max_containers: u32::try_from(self.max_container_count).ok(),
            ..GcPolicy::default()
        }
    }
}
