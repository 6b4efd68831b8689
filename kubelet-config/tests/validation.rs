//! The rules that a configuration is held to, each broken on its own.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubelet_config::FeatureGates;
use kubelet_config::kubelet_configuration::validation::{FieldError, Host, validate};
use kubelet_config::kubelet_configuration::{
    GoDuration, KubeletConfiguration, MemoryReservation, ShutdownGracePeriodByPodPriority,
    TracingConfiguration, UserNamespaces, VModuleItem,
};

type Config = KubeletConfiguration;
type Change = fn(&mut Config);

fn errors(change: Change, gates: &FeatureGates, host: &Host) -> Vec<FieldError> {
    let mut config = Config::default();
    change(&mut config);
    match validate(&config, gates, host) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.into_iter().collect(),
    }
}

/// Under default gates on a node with cgroup v2, these fields and no others are told.
#[track_caller]
fn told(cases: &[(Change, &[&str])]) {
    for (at, &(change, expected)) in cases.iter().enumerate() {
        let errors = errors(change, &FeatureGates::new(), &Host::default());
        let fields: Vec<_> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, expected, "case {at}: {errors:?}");
    }
}

fn gates(given: &str) -> BTreeMap<String, bool> {
    let pairs = given.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, on)| (name.to_owned(), on == "true")).collect()
}

fn millis(millis: i64) -> GoDuration {
    GoDuration::from_millis(millis)
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

#[test]
fn defaults_are_valid() {
    told(&[(|_| {}, &[])]);
    let without_file = Config::without_file();
    validate(&without_file, &FeatureGates::new(), &Host::default()).unwrap();
}

#[test]
fn numbers() {
    told(&[
        (
            |c| c.node_lease_duration_seconds = 0,
            &["nodeLeaseDurationSeconds"],
        ),
        (|c| c.node_lease_duration_seconds = 1, &[]),
        (|c| c.event_burst = -1, &["eventBurst"]),
        (|c| c.event_record_qps = -1, &["eventRecordQPS"]),
        (|c| (c.event_burst, c.event_record_qps) = (0, 0), &[]),
        (|c| c.iptables_drop_bit = 32, &["iptablesDropBit"]),
        (|c| c.iptables_masquerade_bit = -1, &["iptablesMasqueradeBit"]),
        (
            |c| (c.iptables_drop_bit, c.iptables_masquerade_bit) = (0, 31),
            &[],
        ),
        (|c| c.kube_api_burst = -1, &["kubeAPIBurst"]),
        (|c| c.kube_api_qps = -1, &["kubeAPIQPS"]),
        (|c| c.node_status_max_images = -2, &["nodeStatusMaxImages"]),
        (|c| c.node_status_max_images = -1, &[]),
        (|c| c.max_open_files = -1, &["maxOpenFiles"]),
        (|c| c.max_open_files = i64::MIN, &["maxOpenFiles"]),
        (|c| c.max_pods = -1, &["maxPods"]),
        (|c| c.max_pods = 0, &[]),
        (|c| c.oom_score_adj = -1001, &["oomScoreAdj"]),
        (|c| c.oom_score_adj = 1001, &["oomScoreAdj"]),
        (|c| c.oom_score_adj = 1000, &[]),
        (|c| c.pods_per_core = -1, &["podsPerCore"]),
    ]);
}

#[test]
fn ports() {
    told(&[
        (|c| c.port = 0, &["port"]),
        (|c| c.port = 65536, &["port"]),
        (|c| c.port = 65535, &[]),
        (|c| c.healthz_port = -1, &["healthzPort"]),
        (|c| c.healthz_port = 65536, &["healthzPort"]),
        (|c| c.healthz_port = 0, &[]),
        (|c| c.read_only_port = -1, &["readOnlyPort"]),
        (|c| c.read_only_port = 65536, &["readOnlyPort"]),
        (|c| c.read_only_port = 10255, &[]),
    ]);
}

#[test]
fn what_stands_for_itself() {
    told(&[
        (|c| c.run_once = true, &["runOnce"]),
        (|c| c.show_hidden_metrics_for_version = "1.35".into(), &[]),
        (
            |c| c.show_hidden_metrics_for_version = "1.36".into(),
            &["showHiddenMetricsForVersion"],
        ),
        (
            |c| c.container_runtime_endpoint.clear(),
            &["containerRuntimeEndpoint"],
        ),
        (|c| c.enable_system_log_query = true, &[]),
        (
            |c| (c.enable_system_log_query, c.enable_system_log_handler) = (true, false),
            &["enableSystemLogQuery"],
        ),
        (|c| c.server_tls_bootstrap = true, &[]),
        (
            |c| {
                c.server_tls_bootstrap = true;
                c.feature_gates = gates("RotateKubeletServerCertificate=false");
            },
            &["serverTLSBootstrap"],
        ),
    ]);
}

#[test]
fn images() {
    told(&[
        (
            |c| c.image_gc_high_threshold_percent = 101,
            &["imageGCHighThresholdPercent"],
        ),
        (
            |c| c.image_gc_low_threshold_percent = -1,
            &["imageGCLowThresholdPercent"],
        ),
        (
            |c| c.image_gc_low_threshold_percent = 85,
            &["imageGCLowThresholdPercent"],
        ),
        (
            |c| {
                (
                    c.image_gc_low_threshold_percent,
                    c.image_gc_high_threshold_percent,
                ) = (101, 101)
            },
            &[
                "imageGCHighThresholdPercent",
                "imageGCLowThresholdPercent",
                "imageGCLowThresholdPercent",
            ],
        ),
        (
            |c| {
                (
                    c.image_gc_low_threshold_percent,
                    c.image_gc_high_threshold_percent,
                ) = (0, 1)
            },
            &[],
        ),
        (|c| c.image_minimum_gc_age = millis(-1), &["imageMinimumGCAge"]),
        (|c| c.image_maximum_gc_age = millis(-1), &["imageMaximumGCAge"]),
        (
            |c| c.image_maximum_gc_age = c.image_minimum_gc_age,
            &["imageMaximumGCAge"],
        ),
        (|c| c.image_maximum_gc_age = millis(120_001), &[]),
        (|c| c.registry_burst = -1, &["registryBurst"]),
        (|c| c.registry_pull_qps = -1, &["registryPullQPS"]),
        (
            |c| c.max_parallel_image_pulls = Some(0),
            &["maxParallelImagePulls"],
        ),
        (|c| c.max_parallel_image_pulls = Some(1), &[]),
        (
            |c| c.max_parallel_image_pulls = Some(2),
            &["maxParallelImagePulls"],
        ),
        (
            |c| (c.max_parallel_image_pulls, c.serialize_image_pulls) = (Some(2), false),
            &[],
        ),
    ]);
}

#[test]
fn use_of_pulled_images() {
    const POLICY: &str = "imagePullCredentialsVerificationPolicy";
    const ALLOWLIST: &str = "preloadedImagesVerificationAllowlist";
    told(&[
        (
            |c| c.image_pull_credentials_verification_policy = "AlwaysVerify".into(),
            &[],
        ),
        (
            |c| c.image_pull_credentials_verification_policy = "Always".into(),
            &[POLICY],
        ),
        (
            |c| c.preloaded_images_verification_allowlist = texts(&["a"]),
            &[ALLOWLIST],
        ),
        (
            |c| {
                c.image_pull_credentials_verification_policy = "NeverVerifyAllowlistedImages".into();
                c.preloaded_images_verification_allowlist = texts(&["a", "a:1", "b.io/*"]);
            },
            &["preloadedImagesVerificationAllowlist[1]"],
        ),
        (
            |c| {
                c.feature_gates = gates("KubeletEnsureSecretPulledImages=false");
                c.preloaded_images_verification_allowlist = texts(&["a"]);
            },
            &[POLICY, ALLOWLIST],
        ),
        (
            |c| {
                c.feature_gates = gates("KubeletEnsureSecretPulledImages=false");
                c.image_pull_credentials_verification_policy.clear();
            },
            &[],
        ),
    ]);
}

#[test]
fn periods() {
    const RESTART: &str = "crashLoopBackOff.maxContainerRestartPeriod";
    told(&[
        (
            |c| c.cpu_cfs_quota_period = GoDuration::from_nanos(999_999),
            &["cpuCFSQuotaPeriod"],
        ),
        (|c| c.cpu_cfs_quota_period = millis(1), &[]),
        (|c| c.cpu_cfs_quota_period = millis(1000), &[]),
        (|c| c.cpu_cfs_quota_period = millis(1001), &["cpuCFSQuotaPeriod"]),
        (
            |c| {
                c.feature_gates = gates("CustomCPUCFSQuotaPeriod=false");
                c.cpu_cfs_quota_period = millis(50);
            },
            &["cpuCFSQuotaPeriod"],
        ),
        (|c| c.feature_gates = gates("CustomCPUCFSQuotaPeriod=false"), &[]),
        (
            |c| c.crash_loop_back_off.max_container_restart_period = None,
            &[RESTART],
        ),
        (
            |c| c.crash_loop_back_off.max_container_restart_period = Some(millis(999)),
            &[RESTART],
        ),
        (
            |c| c.crash_loop_back_off.max_container_restart_period = Some(millis(1000)),
            &[],
        ),
        // Fractions of a millisecond do not count.
        (
            |c| {
                c.crash_loop_back_off.max_container_restart_period =
                    Some(GoDuration::from_nanos(300_000_999_999))
            },
            &[],
        ),
        (
            |c| c.crash_loop_back_off.max_container_restart_period = Some(millis(300_001)),
            &[RESTART],
        ),
        (
            |c| c.feature_gates = gates("KubeletCrashLoopBackOffMax=false"),
            &[RESTART],
        ),
        (
            |c| {
                c.feature_gates = gates("KubeletCrashLoopBackOffMax=false");
                c.crash_loop_back_off.max_container_restart_period = None;
            },
            &[],
        ),
    ]);
}

#[test]
fn container_logs() {
    told(&[
        (|c| c.container_log_max_workers = 0, &["containerLogMaxWorkers"]),
        (
            |c| c.container_log_monitor_interval = millis(2999),
            &["containerLogMonitorInterval"],
        ),
        (|c| c.container_log_monitor_interval = millis(3000), &[]),
        (|c| c.container_log_max_files = 1, &["containerLogMaxFiles"]),
        (|c| c.container_log_max_files = 2, &[]),
        (|c| c.pod_logs_dir.clear(), &["podLogsDir"]),
        (|c| c.pod_logs_dir = "logs".into(), &["podLogsDir"]),
        (|c| c.pod_logs_dir = "/var/./log".into(), &["podLogsDir"]),
        (
            |c| c.pod_logs_dir = "/var/lög/".into(),
            &["podLogsDir", "podLogsDir"],
        ),
    ]);
}

#[test]
fn memory_qos() {
    told(&[
        (
            |c| c.memory_throttling_factor = Some(0.0),
            &["memoryThrottlingFactor"],
        ),
        (
            |c| c.memory_throttling_factor = Some(1.1),
            &["memoryThrottlingFactor"],
        ),
        (|c| c.memory_throttling_factor = Some(1.0), &[]),
        (|c| c.memory_throttling_factor = None, &[]),
        (
            |c| {
                c.feature_gates = gates("MemoryQoS=true");
                c.memory_throttling_factor = None;
            },
            &["memoryThrottlingFactor"],
        ),
        (
            |c| c.memory_reservation_policy = "TieredReservation".into(),
            &["memoryReservationPolicy"],
        ),
        (
            |c| {
                c.feature_gates = gates("MemoryQoS=true");
                c.memory_reservation_policy = "TieredReservation".into();
            },
            &[],
        ),
        (
            |c| c.memory_reservation_policy = "none".into(),
            &["memoryReservationPolicy"],
        ),
    ]);
}

#[test]
fn the_node() {
    fn taint(key: &str, value: &str, effect: &str) -> Taint {
        let value = Some(value.to_owned());
        Taint {
            key: key.into(),
            value,
            effect: effect.into(),
            time_added: None,
        }
    }
    fn ids(ids_per_pod: i64) -> Option<UserNamespaces> {
        Some(UserNamespaces {
            ids_per_pod: Some(ids_per_pod),
        })
    }
    told(&[
        (|c| c.system_cgroups = "/system".into(), &["systemCgroups"]),
        (
            |c| (c.system_cgroups, c.cgroup_root) = ("/system".into(), "/".into()),
            &[],
        ),
        (
            |c| c.topology_manager_policy = "Restricted".into(),
            &["topologyManagerPolicy"],
        ),
        (|c| c.topology_manager_policy = "restricted".into(), &[]),
        (|c| c.topology_manager_scope.clear(), &["topologyManagerScope"]),
        (|c| c.topology_manager_scope = "pod".into(), &[]),
        (|c| c.hairpin_mode.clear(), &["hairpinMode"]),
        (|c| c.hairpin_mode = "hairpin-veth".into(), &[]),
        (|c| c.memory_swap.swap_behavior = "LimitedSwap".into(), &[]),
        (
            |c| c.memory_swap.swap_behavior = "UnlimitedSwap".into(),
            &["memorySwap.swapBehavior"],
        ),
        (|c| c.user_namespaces = ids(65_536), &[]),
        (|c| c.user_namespaces = ids(65_535), &["userNamespaces.idsPerPod"]),
        (|c| c.user_namespaces = ids(65_537), &["userNamespaces.idsPerPod"]),
        (|c| c.user_namespaces = ids(65_536 * 65_535), &[]),
        (
            |c| c.user_namespaces = ids(65_536 * 65_536),
            &["userNamespaces.idsPerPod"],
        ),
        (
            |c| c.register_with_taints = vec![taint("a", "", "NoExecute"), taint("a.io/b", "c", "")],
            &[],
        ),
        (
            |c| c.register_with_taints = vec![taint("a", "", "NoSchedule"), taint("", "b c", "Bogus")],
            &[
                "registerWithTaints[1].key",
                "registerWithTaints[1].value",
                "registerWithTaints[1].effect",
            ],
        ),
    ]);
}

#[test]
fn cgroup_versions() {
    let host = Host::default().with_cgroup_v1(true);
    let cases: [(Change, &[&str]); 3] = [
        (|_| {}, &["failCgroupV1"]),
        (|c| c.fail_cgroup_v1 = false, &[]),
        (
            |c| (c.fail_cgroup_v1, c.single_process_oom_kill) = (false, Some(false)),
            &["singleProcessOOMKill"],
        ),
    ];
    for (change, expected) in cases {
        let errors = errors(change, &FeatureGates::new(), &host);
        let fields: Vec<_> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, expected);
    }
    told(&[(|c| c.single_process_oom_kill = Some(false), &[])]);
}

#[test]
fn reservations() {
    fn memory(numa_node: i32, limits: &[(&str, &str)]) -> MemoryReservation {
        let limit = |&(kind, amount): &(&str, &str)| (kind.to_owned(), Quantity(amount.to_owned()));
        MemoryReservation {
            numa_node,
            limits: limits.iter().map(limit).collect(),
        }
    }
    told(&[
        (|c| c.enforce_node_allocatable = texts(&["none"]), &[]),
        (
            |c| c.enforce_node_allocatable = texts(&["none", "pods"]),
            &["enforceNodeAllocatable[0]"],
        ),
        (
            |c| c.enforce_node_allocatable = texts(&["pods", "pods"]),
            &["enforceNodeAllocatable[1]"],
        ),
        (
            |c| c.enforce_node_allocatable = texts(&["Pods"]),
            &["enforceNodeAllocatable[0]"],
        ),
        (
            |c| c.enforce_node_allocatable = texts(&["system-reserved"]),
            &["systemReservedCgroup"],
        ),
        (
            |c| c.enforce_node_allocatable = texts(&["kube-reserved-compressible"]),
            &["kubeReservedCgroup"],
        ),
        (
            |c| {
                c.enforce_node_allocatable = texts(&["system-reserved", "system-reserved-compressible"]);
                c.system_reserved_cgroup = "/s".into();
            },
            &["enforceNodeAllocatable"],
        ),
        (
            |c| {
                c.enforce_node_allocatable = texts(&["kube-reserved", "kube-reserved-compressible"]);
                c.kube_reserved_cgroup = "/k".into();
            },
            &["enforceNodeAllocatable"],
        ),
        (|c| c.cgroups_per_qos = false, &["cgroupsPerQOS"]),
        (
            |c| (c.cgroups_per_qos, c.enforce_node_allocatable) = (false, texts(&["none"])),
            &[],
        ),
        (
            |c| (c.cgroups_per_qos, c.enforce_node_allocatable) = (false, Vec::new()),
            &[],
        ),
        (|c| c.reserved_system_cpus = "0-3,7".into(), &[]),
        (|c| c.reserved_system_cpus = "3-0".into(), &["reservedSystemCPUs"]),
        (
            |c| (c.reserved_system_cpus, c.kube_reserved_cgroup) = ("0".into(), "/k".into()),
            &["reservedSystemCPUs"],
        ),
        (
            |c| {
                c.reserved_memory = vec![
                    memory(0, &[("memory", "1Gi"), ("hugepages-2Mi", "1")]),
                    memory(1, &[("memory", "1")]),
                ]
            },
            &[],
        ),
        (
            |c| c.reserved_memory = vec![memory(0, &[("cpu", "1"), ("memory", "0")])],
            &["reservedMemory[0].limits.cpu", "reservedMemory[0].limits.memory"],
        ),
        (
            |c| c.reserved_memory = vec![memory(0, &[("memory", "1")]), memory(0, &[("memory", "2")])],
            &["reservedMemory[1].limits.memory"],
        ),
    ]);
}

#[test]
fn shutdown() {
    const WHOLE: &str = "shutdownGracePeriod";
    const CRITICAL: &str = "shutdownGracePeriodCriticalPods";
    const BY_PRIORITY: &str = "shutdownGracePeriodByPodPriority";
    const NO_SHUTDOWN: &str = "GracefulNodeShutdown=false,GracefulNodeShutdownBasedOnPodPriority=false,\
                               WindowsGracefulNodeShutdown=false";
    told(&[
        (|c| c.shutdown_grace_period = millis(1000), &[]),
        (|c| c.shutdown_grace_period = millis(999), &[WHOLE]),
        (|c| c.shutdown_grace_period = millis(-1), &[CRITICAL, WHOLE]),
        (
            |c| c.shutdown_grace_period_critical_pods = millis(1000),
            &[CRITICAL],
        ),
        (
            |c| {
                (c.shutdown_grace_period, c.shutdown_grace_period_critical_pods) = (millis(2000), millis(999))
            },
            &[CRITICAL],
        ),
        (
            |c| c.shutdown_grace_period_critical_pods = millis(-1),
            &[CRITICAL],
        ),
        (
            |c| c.shutdown_grace_period_by_pod_priority = vec![ShutdownGracePeriodByPodPriority::default()],
            &[],
        ),
        (
            |c| {
                c.shutdown_grace_period_by_pod_priority = vec![ShutdownGracePeriodByPodPriority::default()];
                c.shutdown_grace_period = millis(1000);
            },
            &[BY_PRIORITY],
        ),
        (|c| c.feature_gates = gates(NO_SHUTDOWN), &[]),
        (
            |c| {
                c.feature_gates = gates(NO_SHUTDOWN);
                c.shutdown_grace_period = millis(1);
            },
            &[WHOLE],
        ),
        (
            |c| {
                c.feature_gates = gates("GracefulNodeShutdownBasedOnPodPriority=false");
                c.shutdown_grace_period_by_pod_priority = vec![ShutdownGracePeriodByPodPriority::default()];
            },
            &[BY_PRIORITY],
        ),
    ]);
}

#[test]
fn logging_and_tracing() {
    fn module(pattern: &str, verbosity: u32) -> VModuleItem {
        VModuleItem {
            file_pattern: pattern.into(),
            verbosity,
        }
    }
    fn tracing(endpoint: &str, rate: i32) -> Option<TracingConfiguration> {
        Some(TracingConfiguration {
            endpoint: Some(endpoint.into()),
            sampling_rate_per_million: Some(rate),
        })
    }
    told(&[
        (
            |c| c.logging.flush_frequency.duration = GoDuration::ZERO,
            &["logging.flushFrequency"],
        ),
        (|c| c.logging.format = "json".into(), &[]),
        (|c| c.logging.format = "xml".into(), &["logging.format"]),
        (|c| c.logging.format.clear(), &["logging.format"]),
        (|c| c.logging.verbosity = 1 << 31, &["logging.verbosity"]),
        (|c| c.logging.verbosity = (1 << 31) - 1, &[]),
        (|c| c.logging.vmodule = vec![module("a*", 3)], &[]),
        (
            |c| c.logging.vmodule = vec![module("", 1 << 31)],
            &["logging.vmodule[0].filePattern", "logging.vmodule[0].verbosity"],
        ),
        (
            |c| c.logging.vmodule = vec![module("a", 1), module("b=", 1)],
            &["logging.vmodule[1].filePattern"],
        ),
        (
            |c| (c.logging.format, c.logging.vmodule) = ("json".into(), vec![module("a", 1)]),
            &["logging.vmodule"],
        ),
        (
            |c| {
                c.logging.options.text.split_stream = true;
                c.logging.options.json.info_buffer_size = Quantity("1Ki".into());
            },
            &[
                "logging.options.text.splitStream",
                "logging.options.json.infoBufferSize",
            ],
        ),
        (
            |c| {
                c.feature_gates = gates("LoggingAlphaOptions=true");
                c.logging.options.text.split_stream = true;
                c.logging.options.json.info_buffer_size = Quantity("1Ki".into());
            },
            &[],
        ),
        (|c| c.tracing = tracing("localhost:4317", 1_000_000), &[]),
        (
            |c| c.tracing = tracing("http://localhost", -1),
            &["tracing.samplingRatePerMillion", "tracing.endpoint"],
        ),
        (
            |c| c.tracing = tracing("unix:///x", 1_000_001),
            &["tracing.samplingRatePerMillion"],
        ),
        (|c| c.tracing = Some(TracingConfiguration::default()), &[]),
    ]);
    let host = Host::default().with_json_log_format(false);
    let errors = errors(|c| c.logging.format = "json".into(), &FeatureGates::new(), &host);
    assert_eq!(errors[0].field, "logging.format");
}

#[test]
fn gates_come_first_and_those_given_count_too() {
    told(&[
        (
            |c| {
                c.feature_gates = gates("Bogus=true,NodeSwap=false");
                c.max_pods = -1;
            },
            &["featureGates.Bogus", "featureGates.NodeSwap"],
        ),
        (
            |c| c.feature_gates = gates("GracefulNodeShutdown=false"),
            &[
                "featureGates.GracefulNodeShutdownBasedOnPodPriority",
                "featureGates.WindowsGracefulNodeShutdown",
            ],
        ),
    ]);
    let mut given = FeatureGates::new();
    given.set("LoggingAlphaOptions=true").unwrap();
    let errors = errors(
        |c| c.logging.options.text.split_stream = true,
        &given,
        &Host::default(),
    );
    assert_eq!(errors, []);
}

#[test]
fn errors_read_well() {
    let config = Config {
        max_pods: -1,
        hairpin_mode: "bogus".into(),
        ..Config::default()
    };
    let errors = validate(&config, &FeatureGates::new(), &Host::default()).unwrap_err();
    assert_eq!(
        kubelet_config::Error::from(errors).to_string(),
        "invalid configuration: maxPods: Invalid value: -1: must be at least 0; \
         hairpinMode: Invalid value: \"bogus\": must be one of \"none\", \"hairpin-veth\", \"promiscuous-bridge\""
    );
}
