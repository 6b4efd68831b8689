//! The fields of a `KubeletConfiguration`.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use serde::{Deserialize, Serialize};

use super::GoDuration;
use super::canonical::taints;
use super::logging::LoggingConfiguration;
use super::omit::{go_float, is_zero};
use super::sections::{
    CrashLoopBackOffConfig, KubeletAuthentication, KubeletAuthorization, MemoryReservation,
    MemorySwapConfiguration, ShutdownGracePeriodByPodPriority, TracingConfiguration, UserNamespaces,
};

/// How a kubelet is configured (`KubeletConfiguration` of `kubelet.config.k8s.io/v1beta1`): all of it in force,
/// with defaults where nothing was set.
///
/// Read it with [`from_yaml`](Self::from_yaml). [`Default`] is what an empty file gives. What is an enum in the API
/// is text here, as in the kubelet: the validation rejects a wrong one.
///
/// As JSON it is written as the kubelet writes it: zero values are left out where Kubernetes' API leaves them out.
/// [`Deserialize`] reads that again; the rules for files, by which zero or `null` may mean a default, are
/// [`from_yaml`](Self::from_yaml)'s.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KubeletConfiguration {
    /// Whether the node's server (`:10250`) runs. Default: `true`.
    pub enable_server: bool,
    /// Folder or file of static pods; relative paths start at the configuration file's folder. Unset: none.
    #[serde(skip_serializing_if = "is_zero")]
    pub static_pod_path: String,
    /// Folder of the pods' logs. Default: `/var/log/pods`.
    #[serde(skip_serializing_if = "is_zero")]
    pub pod_logs_dir: String,
    /// The longest that a running pod goes without a comparison of wish and fact. Default: `1m`.
    pub sync_frequency: GoDuration,
    /// How often the static pods' folder is read whole. Default: `20s`.
    pub file_check_frequency: GoDuration,
    /// How often static pods are fetched from [`static_pod_url`](Self::static_pod_url). Default: `20s`.
    pub http_check_frequency: GoDuration,
    /// Where static pods are fetched from. Unset: nowhere.
    #[serde(rename = "staticPodURL", skip_serializing_if = "is_zero")]
    pub static_pod_url: String,
    /// Headers for [`static_pod_url`](Self::static_pod_url); their values may be
    /// secret.
    #[serde(rename = "staticPodURLHeader", skip_serializing_if = "is_zero")]
    pub static_pod_url_header: BTreeMap<String, Vec<String>>,
    /// The IP address that the server listens at. Default: `0.0.0.0`.
    #[serde(skip_serializing_if = "is_zero")]
    pub address: String,
    /// The server's port. Default: 10250.
    #[serde(skip_serializing_if = "is_zero")]
    pub port: i32,
    /// The port of the server without authentication; 0 is off. Default: 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub read_only_port: i32,
    /// The server's certificate, followed by those that signed it, as PEM.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_cert_file: String,
    /// The key of [`tls_cert_file`](Self::tls_cert_file).
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_private_key_file: String,
    /// The cipher suites that the server allows, by their Go names. Unset: Go's choice.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_cipher_suites: Vec<String>,
    /// The key exchanges that the server allows, by their TLS number, first is best. Unset: Go's choice.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_curve_preferences: Vec<i32>,
    /// The lowest TLS version that the server allows, e.g. `VersionTLS12`. Unset: Go's choice.
    #[serde(skip_serializing_if = "is_zero")]
    pub tls_min_version: String,
    /// Whether the client certificate is renewed from the API server before it ends. Default: `false`.
    #[serde(skip_serializing_if = "is_zero")]
    pub rotate_certificates: bool,
    /// Whether the server's certificate is requested from the API server instead of self-signed. Default:
    /// `false`.
    #[serde(rename = "serverTLSBootstrap", skip_serializing_if = "is_zero")]
    pub server_tls_bootstrap: bool,
    /// Who a request to the server is from.
    pub authentication: KubeletAuthentication,
    /// What a request to the server may do.
    pub authorization: KubeletAuthorization,
    /// Image pulls a second, at most; 0 is no limit. Default: 5.
    #[serde(rename = "registryPullQPS")]
    pub registry_pull_qps: i32,
    /// Image pulls at once while within [`registry_pull_qps`](Self::registry_pull_qps). Default: 10.
    #[serde(skip_serializing_if = "is_zero")]
    pub registry_burst: i32,
    /// When a pod must prove that it may use an image that is on the node already: `NeverVerify`,
    /// `NeverVerifyPreloadedImages`, `NeverVerifyAllowlistedImages` or `AlwaysVerify`. Default:
    /// `NeverVerifyPreloadedImages` where the gate `KubeletEnsureSecretPulledImages` is on.
    #[serde(skip_serializing_if = "is_zero")]
    pub image_pull_credentials_verification_policy: String,
    /// Images that need no proof under `NeverVerifyAllowlistedImages`; `/*` at the end takes in all below.
    #[serde(skip_serializing_if = "is_zero")]
    pub preloaded_images_verification_allowlist: Vec<String>,
    /// Events sent a second, at most; 0 is no limit. Default: 50.
    #[serde(rename = "eventRecordQPS")]
    pub event_record_qps: i32,
    /// Events sent at once while within [`event_record_qps`](Self::event_record_qps). Default: 100.
    #[serde(skip_serializing_if = "is_zero")]
    pub event_burst: i32,
    /// Whether the server gives logs, runs commands and forwards ports. Default: `true`.
    pub enable_debugging_handlers: bool,
    /// Whether lock contention is profiled. Default: `false`.
    #[serde(skip_serializing_if = "is_zero")]
    pub enable_contention_profiling: bool,
    /// The port of the health check; 0 is off. Default: 10248.
    pub healthz_port: i32,
    /// The IP address of the health check. Default: `127.0.0.1`.
    #[serde(skip_serializing_if = "is_zero")]
    pub healthz_bind_address: String,
    /// The agent's own `oom_score_adj`. Default: -999.
    pub oom_score_adj: i32,
    /// The cluster's DNS domain, a search domain of every container's.
    #[serde(skip_serializing_if = "is_zero")]
    pub cluster_domain: String,
    /// IP addresses of the cluster's DNS servers.
    #[serde(rename = "clusterDNS", skip_serializing_if = "is_zero")]
    pub cluster_dns: Vec<String>,
    /// How long an idle `exec`, `attach` or `port-forward` stays open. Default: `4h`.
    pub streaming_connection_idle_timeout: GoDuration,
    /// How often the node's status is computed. Default: `10s`.
    pub node_status_update_frequency: GoDuration,
    /// How often an unchanged node status is sent. Default: `5m`, or
    /// [`node_status_update_frequency`](Self::node_status_update_frequency) if that is set.
    pub node_status_report_frequency: GoDuration,
    /// How long the node's lease holds, in seconds. Default: 40.
    #[serde(skip_serializing_if = "is_zero")]
    pub node_lease_duration_seconds: i32,
    /// How long an unused image is kept for sure. Default: `2m`.
    #[serde(rename = "imageMinimumGCAge")]
    pub image_minimum_gc_age: GoDuration,
    /// How long an unused image is kept at most; 0 is no limit. Default: `0s`.
    #[serde(rename = "imageMaximumGCAge")]
    pub image_maximum_gc_age: GoDuration,
    /// The disk usage above which images are collected. Default: 85.
    #[serde(rename = "imageGCHighThresholdPercent")]
    pub image_gc_high_threshold_percent: i32,
    /// The disk usage down to which images are collected. Default: 80.
    #[serde(rename = "imageGCLowThresholdPercent")]
    pub image_gc_low_threshold_percent: i32,
    /// How often the volumes' usage is measured; negative is never. Default: `1m`.
    pub volume_stats_agg_period: GoDuration,
    /// The cgroup that the agent itself runs in.
    #[serde(skip_serializing_if = "is_zero")]
    pub kubelet_cgroups: String,
    /// The cgroup for all processes outside of one; needs [`cgroup_root`](Self::cgroup_root).
    #[serde(skip_serializing_if = "is_zero")]
    pub system_cgroups: String,
    /// The cgroup that the pods' are in. Unset: the runtime's choice.
    #[serde(skip_serializing_if = "is_zero")]
    pub cgroup_root: String,
    /// Whether there is a cgroup for each pod and QoS class. Default: `true`.
    #[serde(rename = "cgroupsPerQOS")]
    pub cgroups_per_qos: bool,
    /// `cgroupfs` or `systemd`; what the runtime says goes first. Default: `cgroupfs`.
    #[serde(skip_serializing_if = "is_zero")]
    pub cgroup_driver: String,
    /// `none` or `static`. Default: `none`.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_manager_policy: String,
    /// Whether a container out of memory loses one process instead of all. Unset: `true` on cgroup v1, else
    /// `false`.
    #[serde(rename = "singleProcessOOMKill", skip_serializing_if = "Option::is_none")]
    pub single_process_oom_kill: Option<bool>,
    /// Options of the CPU manager's policy, by name.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_manager_policy_options: BTreeMap<String, String>,
    /// How often the CPU manager sets the cgroups right. Default: `10s`.
    pub cpu_manager_reconcile_period: GoDuration,
    /// `None` or `Static`. Default: `None`.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_manager_policy: String,
    /// `none`, `best-effort`, `restricted` or `single-numa-node`. Default: `none`.
    #[serde(skip_serializing_if = "is_zero")]
    pub topology_manager_policy: String,
    /// `container` or `pod`: what is aligned as one. Default: `container`.
    #[serde(skip_serializing_if = "is_zero")]
    pub topology_manager_scope: String,
    /// Options of the topology manager's policy, by name.
    #[serde(skip_serializing_if = "is_zero")]
    pub topology_manager_policy_options: BTreeMap<String, String>,
    /// How much of the requests of higher QoS classes is kept from lower ones, by resource (`memory` only), in
    /// percent (`50%`).
    #[serde(skip_serializing_if = "is_zero")]
    pub qos_reserved: BTreeMap<String, String>,
    /// How long a request to the runtime may take, pulls, logs, exec and attach aside. Default: `2m`.
    pub runtime_request_timeout: GoDuration,
    /// How a container reaches itself through a service: `promiscuous-bridge`, `hairpin-veth` or `none`.
    /// Default: `promiscuous-bridge`.
    #[serde(skip_serializing_if = "is_zero")]
    pub hairpin_mode: String,
    /// Pods on the node, at most. Default: 110.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_pods: i32,
    /// Addresses of the pods of an agent without an API server.
    #[serde(rename = "podCIDR", skip_serializing_if = "is_zero")]
    pub pod_cidr: String,
    /// Processes in a pod, at most; -1 is as many as the node has. Default: -1.
    pub pod_pids_limit: i64,
    /// The resolver configuration that containers' are made from; the empty text is none. Default:
    /// `/etc/resolv.conf`.
    pub resolv_conf: String,
    /// Once: run the static pods and end. The kubelet no longer does this and refuses it. Default: `false`.
    #[serde(skip_serializing_if = "is_zero")]
    pub run_once: bool,
    /// Whether CPU limits are enforced through CFS quota. Default: `true`.
    #[serde(rename = "cpuCFSQuota")]
    pub cpu_cfs_quota: bool,
    /// The CFS quota's period; other than the default needs the gate `CustomCPUCFSQuotaPeriod`. Default:
    /// `100ms`.
    #[serde(rename = "cpuCFSQuotaPeriod")]
    pub cpu_cfs_quota_period: GoDuration,
    /// Images in the node's status, at most; -1 is no limit, 0 is none. Default: 50.
    pub node_status_max_images: i32,
    /// Files the agent may have open. Default: 1000000.
    #[serde(skip_serializing_if = "is_zero")]
    pub max_open_files: i64,
    /// The content type of requests to the API server. Default: `application/vnd.kubernetes.protobuf`.
    #[serde(skip_serializing_if = "is_zero")]
    pub content_type: String,
    /// Requests to the API server a second. Default: 50.
    #[serde(rename = "kubeAPIQPS")]
    pub kube_api_qps: i32,
    /// Requests to the API server at once while within [`kube_api_qps`](Self::kube_api_qps). Default: 100.
    #[serde(rename = "kubeAPIBurst", skip_serializing_if = "is_zero")]
    pub kube_api_burst: i32,
    /// Whether images are pulled one after the other. Default: `true`, unless
    /// [`max_parallel_image_pulls`](Self::max_parallel_image_pulls) is more than 1.
    pub serialize_image_pulls: bool,
    /// Pulls at the same time, at most. Unset: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_parallel_image_pulls: Option<i32>,
    /// Signals that evict pods at once, with their threshold, a quantity or percentage of the whole. Default:
    /// `memory.available: 100Mi`, `nodefs.available: 10%`, `nodefs.inodesFree: 5%`, `imagefs.available: 15%`,
    /// `imagefs.inodesFree: 5%`.
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_hard: BTreeMap<String, String>,
    /// Signals that evict pods after a grace period, with their threshold.
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_soft: BTreeMap<String, String>,
    /// The grace period (`1m30s`) of each signal of [`eviction_soft`](Self::eviction_soft).
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_soft_grace_period: BTreeMap<String, String>,
    /// How long a pressure condition outlasts the pressure. Default: `5m`.
    pub eviction_pressure_transition_period: GoDuration,
    /// The most that a pod evicted softly has to end, in seconds. Default: 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_max_pod_grace_period: i32,
    /// How much an eviction frees at least, by signal.
    #[serde(skip_serializing_if = "is_zero")]
    pub eviction_minimum_reclaim: BTreeMap<String, String>,
    /// Whether [`eviction_hard`](Self::eviction_hard) keeps the default of signals it does not name. Default:
    /// `false`.
    pub merge_default_eviction_settings: bool,
    /// Pods on the node for each core, at most and within [`max_pods`](Self::max_pods); 0 is no limit. Default:
    /// 0.
    #[serde(skip_serializing_if = "is_zero")]
    pub pods_per_core: i32,
    /// Whether volumes are attached by the controller instead of the node. Default: `true`.
    pub enable_controller_attach_detach: bool,
    /// Whether kernel settings other than needed are an error instead of being set. Default: `false`.
    #[serde(skip_serializing_if = "is_zero")]
    pub protect_kernel_defaults: bool,
    /// Whether the agent makes the iptables chains that others rely on. Default: `true`.
    #[serde(rename = "makeIPTablesUtilChains")]
    pub make_iptables_util_chains: bool,
    /// The packet mark's bit for masquerading. Default: 14.
    pub iptables_masquerade_bit: i32,
    /// The packet mark's bit for dropping. Default: 15.
    pub iptables_drop_bit: i32,
    /// Features that are switched from their default.
    #[serde(skip_serializing_if = "is_zero")]
    pub feature_gates: BTreeMap<String, bool>,
    /// Whether the agent refuses to run on a node with swap. Default: `true`.
    pub fail_swap_on: bool,
    /// How pods use swap.
    pub memory_swap: MemorySwapConfiguration,
    /// The size, a quantity, at which a container's log is rotated. Default: `10Mi`.
    #[serde(skip_serializing_if = "is_zero")]
    pub container_log_max_size: String,
    /// Log files that a container has, at most. Default: 5.
    pub container_log_max_files: i32,
    /// Logs rotated at the same time. Default: 1.
    pub container_log_max_workers: i32,
    /// How often the logs' size is looked at. Default: `10s`.
    pub container_log_monitor_interval: GoDuration,
    /// How changes of config maps and secrets are seen: `Get`, `Cache` or `Watch`. Default: `Watch`.
    #[serde(skip_serializing_if = "is_zero")]
    pub config_map_and_secret_change_detection_strategy: String,
    /// Resources (`cpu`, `memory`, `ephemeral-storage`, `pid`) kept for the system.
    #[serde(skip_serializing_if = "is_zero")]
    pub system_reserved: BTreeMap<String, String>,
    /// Resources (`cpu`, `memory`, `ephemeral-storage`, `pid`) kept for Kubernetes' own processes.
    #[serde(skip_serializing_if = "is_zero")]
    pub kube_reserved: BTreeMap<String, String>,
    /// CPUs (`0-3,7`) kept for the system and Kubernetes' own processes, instead of amounts.
    #[serde(rename = "reservedSystemCPUs", skip_serializing_if = "is_zero")]
    pub reserved_system_cpus: String,
    /// The version (`1.35`) whose hidden metrics are shown again.
    #[serde(skip_serializing_if = "is_zero")]
    pub show_hidden_metrics_for_version: String,
    /// The cgroup that [`system_reserved`](Self::system_reserved) is enforced on.
    #[serde(skip_serializing_if = "is_zero")]
    pub system_reserved_cgroup: String,
    /// The cgroup that [`kube_reserved`](Self::kube_reserved) is enforced on.
    #[serde(skip_serializing_if = "is_zero")]
    pub kube_reserved_cgroup: String,
    /// What reservations are enforced on: `pods`, `system-reserved`, `kube-reserved`, the last two also with
    /// `-compressible`, or `none`. Default: `pods`.
    #[serde(skip_serializing_if = "is_zero")]
    pub enforce_node_allocatable: Vec<String>,
    /// Unsafe sysctls that pods may set; `*` at the end takes in all below.
    #[serde(skip_serializing_if = "is_zero")]
    pub allowed_unsafe_sysctls: Vec<String>,
    /// Folder of further volume plugins. Default: `/usr/libexec/kubernetes/kubelet-plugins/volume/exec/`.
    #[serde(skip_serializing_if = "is_zero")]
    pub volume_plugin_dir: String,
    /// The node's name at its cloud provider.
    #[serde(rename = "providerID", skip_serializing_if = "is_zero")]
    pub provider_id: String,
    /// Whether the kernel notifies about memory thresholds, in addition to polling. Default: `false`.
    #[serde(skip_serializing_if = "is_zero")]
    pub kernel_memcg_notification: bool,
    /// The agent's own log.
    pub logging: LoggingConfiguration,
    /// Whether the server gives the node's `/var/log`. Default: `true`.
    pub enable_system_log_handler: bool,
    /// Whether the server answers queries of the node's logs; needs
    /// [`enable_system_log_handler`](Self::enable_system_log_handler) and the gate `NodeLogQuery`. Default:
    /// `false`.
    pub enable_system_log_query: bool,
    /// How long a node that shuts down waits for its pods. Default: `0s`, not at all.
    pub shutdown_grace_period: GoDuration,
    /// The part of [`shutdown_grace_period`](Self::shutdown_grace_period) for critical pods. Default: `0s`.
    pub shutdown_grace_period_critical_pods: GoDuration,
    /// Shutdown grace periods by the pods' priority, instead of the two above.
    #[serde(skip_serializing_if = "is_zero")]
    pub shutdown_grace_period_by_pod_priority: Vec<ShutdownGracePeriodByPodPriority>,
    /// The back-off of containers that fail again and again.
    pub crash_loop_back_off: CrashLoopBackOffConfig,
    /// Memory kept for the system, by NUMA node.
    #[serde(skip_serializing_if = "is_zero")]
    pub reserved_memory: Vec<MemoryReservation>,
    /// Whether the server gives profiles. Default: `true`.
    pub enable_profiling_handler: bool,
    /// Whether the server lets flags be changed. Default: `true`.
    pub enable_debug_flags_handler: bool,
    /// Whether `RuntimeDefault` is the seccomp profile of containers without one. Default: `false`.
    pub seccomp_default: bool,
    /// The part of a memory limit at which the kernel throttles (`memory.high`). Default: 0.9.
    #[serde(
        skip_serializing_if = "Option::is_none",
        serialize_with = "go_float::serialize_option"
    )]
    pub memory_throttling_factor: Option<f64>,
    /// `None` or `TieredReservation`: whether requests of memory are protected on cgroup v2. Default: `None`.
    #[serde(skip_serializing_if = "is_zero")]
    pub memory_reservation_policy: String,
    /// Taints that the node registers with.
    #[serde(deserialize_with = "taints", skip_serializing_if = "is_zero")]
    pub register_with_taints: Vec<Taint>,
    /// Whether the node registers itself with the API server. Default: `true`.
    pub register_node: bool,
    /// Traces sent to a collector. Unset: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracing: Option<TracingConfiguration>,
    /// Whether local ephemeral storage is a resource. Default: `true`.
    pub local_storage_capacity_isolation: bool,
    /// The runtime's socket. Default: `unix:///run/containerd/containerd.sock`.
    pub container_runtime_endpoint: String,
    /// The image service's socket. Unset: the runtime's.
    #[serde(skip_serializing_if = "is_zero")]
    pub image_service_endpoint: String,
    /// Whether the agent refuses to run on cgroup v1. Default: `true`.
    pub fail_cgroup_v1: bool,
    /// Pods with user namespaces of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_namespaces: Option<UserNamespaces>,
}
