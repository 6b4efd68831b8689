//! What an agent is built from: plain values, or a kubelet's flags, configuration and feature gates.

use std::collections::BTreeMap;
use std::path::PathBuf;

use kubelet_config::credential_provider::CredentialProvider;
use kubelet_config::{FeatureGates, KubeletConfiguration};
use kubelet_core::runtime::GcPolicy;

use crate::error::{Error, Result};

/// The version of the kubelet whose behaviour these crates have.
pub const KUBELET_VERSION: &str = "v1.36.2";

/// `legacyContainerLogsDir` in `kuberuntime_container.go`
#[cfg(feature = "program")]
const CONTAINER_LOG_LINKS: &str = "/var/log/containers";

/// The settings of an agent. Each field names the flag of a kubelet that it answers to.
///
/// ```
/// use kubelet_agent::Settings;
///
/// let mut settings = Settings::new("/var/lib/my-agent");
/// settings.node_name = "edge-1".to_owned();
/// settings.configuration.static_pod_path = "/etc/my-agent/pods".to_owned();
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// The name of the node (`--hostname-override`). If empty, it is the host name.
    pub node_name: String,
    /// The folder of the agent and its pods (`--root-dir`).
    pub root_dir: PathBuf,
    /// The configuration.
    pub configuration: KubeletConfiguration,
    /// The feature gates.
    pub feature_gates: FeatureGates,
    /// The version that the node reports; [`KUBELET_VERSION`] by default.
    pub version: String,
    /// The addresses of the node (`--node-ip`). If empty, they are detected.
    pub node_ip: String,
    /// `--cloud-provider`: `external`, or empty.
    pub cloud_provider: String,
    /// The labels with which the node registers (`--node-labels`).
    pub node_labels: BTreeMap<String, String>,
    /// `--experimental-allocatable-ignore-eviction`
    pub ignore_eviction_threshold: bool,
    /// Whether the agent sets the kernel's settings on which a kubelet relies, unless `protectKernelDefaults` only lets it check
    /// them. It needs root. What it may not set is logged.
    pub set_kernel_settings: bool,
    /// The folder with a link to each container's log, for log collectors; `/var/log/containers` of a kubelet. If empty, there are no
    /// links.
    pub container_log_links: PathBuf,
    /// Which dead containers are kept (`--maximum-dead-containers` and others).
    pub gc_policy: GcPolicy,
    /// Plugins that give credentials for images, each with its program (`--image-credential-provider-config`).
    pub credential_providers: Vec<(PathBuf, CredentialProvider)>,
    /// How to reach the cluster (`--kubeconfig`). If empty, there is no cluster.
    pub kubeconfig: PathBuf,
    /// How to request the first certificate (`--bootstrap-kubeconfig`); may be empty.
    pub bootstrap_kubeconfig: PathBuf,
    /// The folder of certificates (`--cert-dir`).
    pub cert_dir: PathBuf,
    /// The flags and their values, for `/flagz`.
    pub flags: BTreeMap<String, String>,
}

impl Settings {
    /// The settings of an agent of your own, with this absolute folder. They are the kubelet's defaults, but the agent opens no
    /// port, accepts swap, leaves cgroups to the runtime, changes nothing on the host, and does not evict:
    ///
    /// | field of the configuration | value |
    /// |---|---|
    /// | `enableServer` | `false` |
    /// | `healthzPort` | 0 |
    /// | `failSwapOn` | `false` |
    /// | `cgroupsPerQOS` | `false` |
    /// | `enforceNodeAllocatable` | empty |
    /// | `evictionHard` | empty: no pod is evicted |
    /// | `podLogsDir` | `logs` in the folder |
    /// | `makeIPTablesUtilChains` | `false` |
    pub fn new(root_dir: impl Into<PathBuf>) -> Self {
        let root_dir = root_dir.into();
        let configuration = KubeletConfiguration {
            enable_server: false,
            healthz_port: 0,
            fail_swap_on: false,
            cgroups_per_qos: false,
            enforce_node_allocatable: Vec::new(),
            eviction_hard: BTreeMap::new(),
            make_iptables_util_chains: false,
            pod_logs_dir: root_dir.join("logs").to_string_lossy().into_owned(),
            ..Default::default()
        };
        Self {
            node_name: String::new(),
            cert_dir: root_dir.join("pki"),
            root_dir,
            configuration,
            feature_gates: FeatureGates::new(),
            version: KUBELET_VERSION.to_owned(),
            node_ip: String::new(),
            cloud_provider: String::new(),
            node_labels: BTreeMap::new(),
            ignore_eviction_threshold: false,
            set_kernel_settings: false,
            container_log_links: PathBuf::new(),
            gc_policy: GcPolicy::default(),
            credential_providers: Vec::new(),
            kubeconfig: PathBuf::new(),
            bootstrap_kubeconfig: PathBuf::new(),
            flags: BTreeMap::new(),
        }
    }

    /// The settings of a kubelet. Blocks while it reads the file of `--image-credential-provider-config`.
    ///
    /// # Errors
    ///
    /// If that file cannot be read, or is not valid.
    #[cfg(feature = "program")]
    pub fn of_kubelet(server: &kubelet_config::flags::KubeletServer) -> Result<Self> {
        match Self::examine(server) {
            (settings, None) => Ok(settings),
            (_, Some(error)) => Err(error.into()),
        }
    }

    /// The settings of a kubelet; if the file of the credential providers cannot be used, without these, and with why.
    #[cfg(feature = "program")]
    pub(crate) fn examine(
        server: &kubelet_config::flags::KubeletServer,
    ) -> (Self, Option<kubelet_config::Error>) {
        let (providers, error) = match server.credential_providers() {
            Ok(providers) => (providers, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let flags = &server.flags;
        let mut configuration = server.configuration.clone();
        // The flag is no field of the configuration.
        configuration.seccomp_default |= flags.seccomp_default;
        let settings = Self {
            node_name: flags.hostname_override.clone(),
            root_dir: flags.root_directory.clone().into(),
            configuration,
            feature_gates: server.feature_gates.clone(),
            version: KUBELET_VERSION.to_owned(),
            node_ip: flags.node_ip.clone(),
            cloud_provider: flags.cloud_provider.clone(),
            node_labels: flags.node_labels.clone(),
            ignore_eviction_threshold: flags.experimental_node_allocatable_ignore_eviction_threshold,
            set_kernel_settings: true,
            container_log_links: CONTAINER_LOG_LINKS.into(),
            gc_policy: flags.container_gc_policy(),
            credential_providers: providers,
            kubeconfig: flags.kube_config.clone().into(),
            bootstrap_kubeconfig: flags.bootstrap_kubeconfig.clone().into(),
            cert_dir: flags.cert_directory.clone().into(),
            flags: BTreeMap::new(),
        };
        (settings, error)
    }

    /// The name of the node: the one that is set, or the host name; trimmed and in lower case (`GetHostname`).
    ///
    /// # Errors
    ///
    /// If the name is empty, or the host name cannot be read.
    pub fn hostname(&self) -> Result<String> {
        /// Go's `os.Hostname` reads the same file.
        const FILE: &str = "/proc/sys/kernel/hostname";
        let name = match self.node_name.as_str() {
            "" => std::fs::read_to_string(FILE).map_err(|source| Error::Io {
                what: format!("cannot read {FILE}"),
                source,
            })?,
            name => name.to_owned(),
        };
        match name.trim() {
            "" => Err(Error::Misconfigured {
                problems: vec!["empty hostname is invalid".to_owned()],
            }),
            name => Ok(name.to_lowercase()),
        }
    }
}

#[cfg(test)]
#[cfg(feature = "program")]
mod tests {
    use kubelet_config::flags::CommandLine;
    use kubelet_config::kubelet_configuration::validation::Host;

    use super::*;

    fn settings(flags: &[&str]) -> Settings {
        let flags = flags.iter().map(std::ffi::OsString::from);
        let server = CommandLine::parse(flags).unwrap().load(&Host::default()).unwrap();
        Settings::of_kubelet(&server).unwrap()
    }

    #[test]
    fn the_seccomp_profile_is_a_flag_too() {
        assert!(!settings(&[]).configuration.seccomp_default);
        assert!(settings(&["--seccomp-default"]).configuration.seccomp_default);
    }

    #[test]
    fn only_a_kubelet_changes_its_host() {
        let kubelet = settings(&[]);
        assert!(kubelet.set_kernel_settings && kubelet.configuration.make_iptables_util_chains);
        assert_eq!(kubelet.container_log_links.to_str(), Some("/var/log/containers"));
        let own = Settings::new("/agent");
        assert!(own.container_log_links.as_os_str().is_empty());
        assert!(!own.set_kernel_settings && !own.configuration.make_iptables_util_chains);
    }
}
