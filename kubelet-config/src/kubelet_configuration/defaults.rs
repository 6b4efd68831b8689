//! The configuration of a Linux node for which nothing is set.

use std::collections::BTreeMap;

use super::GoDuration;
use super::fields::KubeletConfiguration;
use super::logging::LoggingConfiguration;
use super::sections::{
    CrashLoopBackOffConfig, KubeletAuthentication, KubeletAuthorization, MemorySwapConfiguration,
};
use crate::FeatureGates;
use crate::document::Content;

/// `eviction.DefaultEvictionHard` of a Linux node.
const DEFAULT_EVICTION_HARD: [(&str, &str); 5] = [
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
];
/// `ports.KubeletReadOnlyPort`
const KUBELET_READ_ONLY_PORT: i32 = 10255;
/// `v1beta1.MaxContainerBackOff`
pub(super) const MAX_CONTAINER_BACK_OFF: GoDuration = GoDuration::from_secs(300);

/// What is evicted for at once where [`KubeletConfiguration::eviction_hard`] is not set.
pub(super) fn default_eviction_hard() -> BTreeMap<String, String> {
    DEFAULT_EVICTION_HARD
        .map(|(signal, threshold)| (signal.to_owned(), threshold.to_owned()))
        .into()
}

impl KubeletConfiguration {
    /// The configuration of a kubelet that is given no file: that of an empty file, but as a node's server was
    /// before there were files, open to anonymous requests, everything allowed and with a read-only port, and
    /// without hard eviction.
    pub fn without_file() -> Self {
        let mut config = Self {
            eviction_hard: BTreeMap::new(),
            read_only_port: KUBELET_READ_ONLY_PORT,
            ..Self::default()
        };
        config.authentication.anonymous.enabled = true;
        config.authentication.webhook.enabled = false;
        config.authorization.mode = "AlwaysAllow".into();
        config
    }
}

impl KubeletConfiguration {
    /// Sets what is unset. `given` is the document that the rest is from: fields that it has not are the default
    /// already, fields that are zero are unset unless the API distinguishes zero from absent.
    pub(super) fn set_defaults(&mut self, given: &Content, gates: &FeatureGates) {
        let default = Self::default();
        // The report follows the update where only that is set.
        let update = self.node_status_update_frequency;
        if !given.sets("nodeStatusReportFrequency") || self.node_status_report_frequency.is_zero() {
            let follows = given.sets("nodeStatusUpdateFrequency") && !update.is_zero();
            self.node_status_report_frequency = if follows {
                update
            } else {
                default.node_status_report_frequency
            };
        }
        if !given.sets("serializeImagePulls") {
            self.serialize_image_pulls = self.max_parallel_image_pulls.is_none_or(|most| most < 2);
        }
        // Only a file has hard eviction by default.
        if !given.sets("evictionHard") {
            self.eviction_hard.clear();
        }
        if self.pod_pids_limit < 0 {
            self.pod_pids_limit = -1;
        }
        let back_off = &mut self.crash_loop_back_off.max_container_restart_period;
        if gates.enabled("KubeletCrashLoopBackOffMax") {
            back_off.get_or_insert(MAX_CONTAINER_BACK_OFF);
        } else if !given.sets("crashLoopBackOff") {
            *back_off = None;
        }
        let policy = &mut self.image_pull_credentials_verification_policy;
        if gates.enabled("KubeletEnsureSecretPulledImages") {
            fill(policy, default.image_pull_credentials_verification_policy.clone());
        } else if !given.sets("imagePullCredentialsVerificationPolicy") {
            policy.clear();
        }
        self.fill_zeros(default);
    }

    /// Sets the fields that the API takes for unset when they are zero.
    fn fill_zeros(&mut self, default: Self) {
        macro_rules! fill_all {
            ($($($field:ident).+;)+) => { $(fill(&mut self.$($field).+, default.$($field).+);)+ };
        }
        fill_all! {
            sync_frequency;
            file_check_frequency;
            http_check_frequency;
            address;
            port;
            authentication.webhook.cache_ttl;
            authorization.mode;
            authorization.webhook.cache_authorized_ttl;
            authorization.webhook.cache_unauthorized_ttl;
            registry_burst;
            event_burst;
            healthz_bind_address;
            streaming_connection_idle_timeout;
            node_status_update_frequency;
            node_lease_duration_seconds;
            image_minimum_gc_age;
            volume_stats_agg_period;
            cgroup_driver;
            cpu_manager_policy;
            cpu_manager_reconcile_period;
            memory_manager_policy;
            topology_manager_policy;
            topology_manager_scope;
            runtime_request_timeout;
            hairpin_mode;
            max_pods;
            max_open_files;
            content_type;
            kube_api_burst;
            eviction_pressure_transition_period;
            container_log_max_size;
            config_map_and_secret_change_detection_strategy;
            volume_plugin_dir;
            logging.format;
            memory_reservation_policy;
            container_runtime_endpoint;
            pod_logs_dir;
        }
        if self.logging.flush_frequency.duration.is_zero() {
            self.logging.flush_frequency = default.logging.flush_frequency;
        }
    }
}

fn fill<T: Default + PartialEq>(value: &mut T, default: T) {
    if *value == T::default() {
        *value = default;
    }
}

impl Default for KubeletConfiguration {
    fn default() -> Self {
        Self {
            enable_server: true,
            static_pod_path: String::new(),
            pod_logs_dir: "/var/log/pods".into(),
            sync_frequency: GoDuration::from_secs(60),
            file_check_frequency: GoDuration::from_secs(20),
            http_check_frequency: GoDuration::from_secs(20),
            static_pod_url: String::new(),
            static_pod_url_header: BTreeMap::new(),
            address: "0.0.0.0".into(),
            port: 10250,
            read_only_port: 0,
            tls_cert_file: String::new(),
            tls_private_key_file: String::new(),
            tls_cipher_suites: Vec::new(),
            tls_curve_preferences: Vec::new(),
            tls_min_version: String::new(),
            rotate_certificates: false,
            server_tls_bootstrap: false,
            authentication: KubeletAuthentication::default(),
            authorization: KubeletAuthorization::default(),
            registry_pull_qps: 5,
            registry_burst: 10,
            image_pull_credentials_verification_policy: "NeverVerifyPreloadedImages".into(),
            preloaded_images_verification_allowlist: Vec::new(),
            event_record_qps: 50,
            event_burst: 100,
            enable_debugging_handlers: true,
            enable_contention_profiling: false,
            healthz_port: 10248,
            healthz_bind_address: "127.0.0.1".into(),
            oom_score_adj: -999,
            cluster_domain: String::new(),
            cluster_dns: Vec::new(),
            streaming_connection_idle_timeout: GoDuration::from_secs(4 * 60 * 60),
            node_status_update_frequency: GoDuration::from_secs(10),
            node_status_report_frequency: GoDuration::from_secs(5 * 60),
            node_lease_duration_seconds: 40,
            image_minimum_gc_age: GoDuration::from_secs(2 * 60),
            image_maximum_gc_age: GoDuration::ZERO,
            image_gc_high_threshold_percent: 85,
            image_gc_low_threshold_percent: 80,
            volume_stats_agg_period: GoDuration::from_secs(60),
            kubelet_cgroups: String::new(),
            system_cgroups: String::new(),
            cgroup_root: String::new(),
            cgroups_per_qos: true,
            cgroup_driver: "cgroupfs".into(),
            cpu_manager_policy: "none".into(),
            single_process_oom_kill: None,
            cpu_manager_policy_options: BTreeMap::new(),
            cpu_manager_reconcile_period: GoDuration::from_secs(10),
            memory_manager_policy: "None".into(),
            topology_manager_policy: "none".into(),
            topology_manager_scope: "container".into(),
            topology_manager_policy_options: BTreeMap::new(),
            qos_reserved: BTreeMap::new(),
            runtime_request_timeout: GoDuration::from_secs(2 * 60),
            hairpin_mode: "promiscuous-bridge".into(),
            max_pods: 110,
            pod_cidr: String::new(),
            pod_pids_limit: -1,
            resolv_conf: "/etc/resolv.conf".into(),
            run_once: false,
            cpu_cfs_quota: true,
            cpu_cfs_quota_period: GoDuration::from_millis(100),
            node_status_max_images: 50,
            max_open_files: 1_000_000,
            content_type: "application/vnd.kubernetes.protobuf".into(),
            kube_api_qps: 50,
            kube_api_burst: 100,
            serialize_image_pulls: true,
            max_parallel_image_pulls: None,
            eviction_hard: default_eviction_hard(),
            eviction_soft: BTreeMap::new(),
            eviction_soft_grace_period: BTreeMap::new(),
            eviction_pressure_transition_period: GoDuration::from_secs(5 * 60),
            eviction_max_pod_grace_period: 0,
            eviction_minimum_reclaim: BTreeMap::new(),
            merge_default_eviction_settings: false,
            pods_per_core: 0,
            enable_controller_attach_detach: true,
            protect_kernel_defaults: false,
            make_iptables_util_chains: true,
            iptables_masquerade_bit: 14,
            iptables_drop_bit: 15,
            feature_gates: BTreeMap::new(),
            fail_swap_on: true,
            memory_swap: MemorySwapConfiguration::default(),
            container_log_max_size: "10Mi".into(),
            container_log_max_files: 5,
            container_log_max_workers: 1,
            container_log_monitor_interval: GoDuration::from_secs(10),
            config_map_and_secret_change_detection_strategy: "Watch".into(),
            system_reserved: BTreeMap::new(),
            kube_reserved: BTreeMap::new(),
            reserved_system_cpus: String::new(),
            show_hidden_metrics_for_version: String::new(),
            system_reserved_cgroup: String::new(),
            kube_reserved_cgroup: String::new(),
            enforce_node_allocatable: vec!["pods".into()],
            allowed_unsafe_sysctls: Vec::new(),
            volume_plugin_dir: "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/".into(),
            provider_id: String::new(),
            kernel_memcg_notification: false,
            logging: LoggingConfiguration::default(),
            enable_system_log_handler: true,
            enable_system_log_query: false,
            shutdown_grace_period: GoDuration::ZERO,
            shutdown_grace_period_critical_pods: GoDuration::ZERO,
            shutdown_grace_period_by_pod_priority: Vec::new(),
            crash_loop_back_off: CrashLoopBackOffConfig {
                max_container_restart_period: Some(MAX_CONTAINER_BACK_OFF),
            },
            reserved_memory: Vec::new(),
            enable_profiling_handler: true,
            enable_debug_flags_handler: true,
            seccomp_default: false,
            memory_throttling_factor: Some(0.9),
            memory_reservation_policy: "None".into(),
            register_with_taints: Vec::new(),
            register_node: true,
            tracing: None,
            local_storage_capacity_isolation: true,
            container_runtime_endpoint: "unix:///run/containerd/containerd.sock".into(),
            image_service_endpoint: String::new(),
            fail_cgroup_v1: true,
            user_namespaces: None,
        }
    }
}
